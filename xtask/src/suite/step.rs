//! The kinds of step: a function, commands that must succeed, and test programs whose lines are counted.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::Outcome;
use crate::host::{must, shown};

/// A step longer than this is stuck.
const LIMIT: &str = "1200";

/// A function that must succeed.
pub(super) fn function(step: impl FnOnce() -> Result<()>) -> Outcome {
    Outcome::single(step().map_err(|error| format!("{error:#}")))
}

/// A check that cannot be made here.
pub(super) fn skipped(name: &str, reason: &str) -> Outcome {
    Outcome {
        skipped: vec![(name.to_owned(), reason.to_owned())],
        ..Outcome::default()
    }
}

/// Commands that must all succeed; all are run.
pub(super) fn commands(list: impl IntoIterator<Item = Command>) -> Outcome {
    let mut outcome = Outcome::default();
    for mut command in list {
        outcome.add(function(|| must(command.stdin(Stdio::null()))));
    }
    outcome
}

/// A run of test programs, with the root-only tests where `all` is set.
pub(super) fn tests(command: &Command, all: bool) -> Outcome {
    let name = shown(command);
    match counted(command, all) {
        Ok((mut outcome, true)) => {
            // Programs that failed to build, or died, count nothing themselves.
            if outcome.failed == 0 && outcome.passed + outcome.skipped.len() == 0 {
                outcome.add(Outcome::single(Err(format!("{name}: no test was run"))));
            }
            outcome
        }
        Ok((mut outcome, false)) => {
            if outcome.failed == 0 {
                outcome.add(Outcome::single(Err(name)));
            }
            outcome
        }
        Err(error) => Outcome::single(Err(format!("{error:#}"))),
    }
}

fn counted(command: &Command, all: bool) -> Result<(Outcome, bool)> {
    let mut limited = Command::new("timeout");
    limited
        .args(["--kill-after=10", LIMIT])
        .arg(command.get_program())
        .args(command.get_args());
    if all {
        let has_own = command.get_args().any(|arg| arg == "--");
        limited.args(["--", "--include-ignored"].into_iter().skip(usize::from(has_own)));
    }
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    let mut child = limited
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("timeout (Debian package coreutils)")?;
    let mut outcome = Outcome::default();
    let output = child.stdout.take().context("piped output")?;
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        print!("{text}");
        outcome.line(text.trim_end());
        line.clear();
    }
    Ok((outcome, child.wait()?.success()))
}
