//! `kams detect`: texts, names and arguments tried against the detectors, without a daemon.

mod rows;
mod text;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use kams_detect::Severity;
use kams_detect::corpus::Options;
use kams_detect::integrity::Thresholds;
use kams_export::text::visible;
use kams_policy::Policy;
use serde_json::Value;

use super::args::parse_severity;
use super::{CliError, Ended, Out, say};
use crate::policy_file::PolicySource;

/// Longest line or text in bytes.
const LONGEST: u64 = 256 << 20;

/// What can be asked of `kams detect`.
#[derive(Debug, clap::Args)]
pub struct Detect {
    /// The text; `-` reads standard input.
    #[arg(
        required_unless_present = "corpus",
        conflicts_with = "corpus",
        value_name = "TEXT-FILE"
    )]
    file: Option<PathBuf>,
    /// What the text is.
    #[arg(long = "as", value_enum, default_value_t = What::Description, value_name = "WHAT")]
    what: What,
    /// JSON lines, one case each (`id`, `kind`, `text` or `value`, or `before` and `after`); `-` reads standard
    /// input. One JSON line with the answer comes out for each.
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
    /// Thresholds of this policy instead of the default ones.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// What changes are compared with: a pinned baseline gives full severity.
    #[arg(long, value_enum, default_value_t = State::Provisional, value_name = "STATE")]
    baseline: State,
    /// Exit with 1 if there is a finding at or above this severity.
    #[arg(long, value_parser = parse_severity, value_name = "SEVERITY")]
    fail_on: Option<Severity>,
}

/// What a text is, which decides what would be odd in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum What {
    /// Description or title of a tool, prompt or resource.
    Description,
    /// Description of a parameter.
    Parameter,
    /// Instructions that a server gives at its start.
    Instructions,
    /// A text in a tool's result.
    Result,
    /// Name of a tool.
    Name,
    /// Arguments of a call, as JSON.
    Arguments,
}

/// State of the baseline that drift rows are compared with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum State {
    /// Confirmed by a person.
    Pinned,
    /// Learned by itself.
    Provisional,
}

pub(super) fn run(detect: &Detect, out: &mut Out) -> Result<Ended, CliError> {
    let mut options = Options {
        pinned: detect.baseline == State::Pinned,
        ..Options::default()
    };
    if let Some(path) = &detect.policy {
        let policy = PolicySource::file(path.clone())
            .load()
            .map_err(|error| failed(path, error))?;
        options.thresholds = thresholds(&policy);
    }
    match (&detect.corpus, &detect.file) {
        (Some(path), _) => corpus(path, detect.fail_on, &options, out),
        (None, Some(path)) => {
            let mut bytes = Vec::new();
            open(path)?
                .take(LONGEST)
                .read_to_end(&mut bytes)
                .map_err(|error| failed(path, error))?;
            text::run(
                &String::from_utf8_lossy(&bytes),
                detect.what,
                detect.fail_on,
                &options,
                out,
            )
        }
        // The command line's own rules ask for one of them.
        (None, None) => Ok(Ended::Clean),
    }
}

/// What a policy says of the text detectors.
fn thresholds(policy: &Policy) -> Thresholds {
    let fallback = Thresholds::default();
    let knob = |name, otherwise| {
        policy
            .threshold("integrity.description_delta", name)
            .unwrap_or(otherwise)
    };
    Thresholds {
        high: knob("high", fallback.high),
        medium: knob("medium", fallback.medium),
    }
}

fn corpus(
    path: &Path,
    fail_on: Option<Severity>,
    options: &Options,
    out: &mut Out,
) -> Result<Ended, CliError> {
    let mut input = open(path)?;
    let mut line = Vec::new();
    let (mut bad, mut first) = (0_u64, None);
    let mut worst = None;
    for number in 1_u64.. {
        line.clear();
        let read = input.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        if read.map_err(|error| failed(path, error))? == 0 {
            break;
        }
        let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line).trim_ascii();
        if text.is_empty() {
            continue;
        }
        let answer = std::str::from_utf8(text)
            .map_err(|error| error.to_string())
            .and_then(|text| rows::judge(text, options));
        let failed = match answer {
            Ok(answer) => {
                out.json_line(&answer.row)?;
                worst = worst.max(severity(&answer.row));
                answer
                    .failed
                    .then(|| answer.row["error"].as_str().unwrap_or_default().to_owned())
            }
            Err(why) => {
                out.json_line(&rows::refused(number, &why))?;
                say(&format!("{}: line {number}: {}", shown(path), visible(&why)));
                Some(why)
            }
        };
        if let Some(why) = failed {
            bad += 1;
            first.get_or_insert((number, why));
        }
    }
    if let Some((number, why)) = first {
        out.flush()?;
        return Err(CliError::Rows {
            file: shown(path),
            bad,
            number,
            why: visible(&why),
        });
    }
    Ok(ended(worst, fail_on))
}

/// The highest severity among an answer's findings.
fn severity(row: &Value) -> Option<Severity> {
    row.get("findings")?
        .as_array()?
        .iter()
        .filter_map(|finding| Severity::from_name(finding.get("severity")?.as_str()?))
        .max()
}

fn ended(worst: Option<Severity>, fail_on: Option<Severity>) -> Ended {
    match (worst, fail_on) {
        (Some(worst), Some(limit)) if worst >= limit => Ended::Found,
        _ => Ended::Clean,
    }
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, CliError> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| failed(path, error))?;
    Ok(Box::new(BufReader::with_capacity(256 * 1024, file)))
}

fn shown(path: &Path) -> String {
    visible(&path.to_string_lossy())
}

fn failed(path: &Path, why: impl std::fmt::Display) -> CliError {
    CliError::Input {
        file: shown(path),
        why: why.to_string(),
    }
}
