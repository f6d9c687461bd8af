//! Policy texts from disk, for commands that need no daemon: nobody is protected by them, so nobody's ownership of the
//! file is asked for, only that it is no device and not too large.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use kams_export::text::visible;
use kams_policy::{Files, Policy, Problem};

use crate::cli::CliError;
use crate::config::place_of;
use crate::policy_file::INSTALLED;

/// More than a policy may have; the loader says so with its own words.
const LARGEST: u64 = 9 << 20;

/// A policy's text and where it came from.
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) yaml: String,
    pub(crate) beside: Beside,
}

/// Documents beside a policy.
pub(crate) struct Beside(PathBuf);

impl Files for Beside {
    fn read(&self, name: &str) -> Result<String, String> {
        if name.contains('/') {
            return Err("documents stand beside the policy: give a file name without folders".to_owned());
        }
        read(&self.0.join(name)).map_err(|error| error.to_string())
    }
}

/// This file; without one the installed policy, and where there is none the default one.
pub(crate) fn of(file: Option<&Path>) -> Result<Text, CliError> {
    let file = match file {
        Some(file) => file,
        None if Path::new(INSTALLED).exists() => Path::new(INSTALLED),
        None => {
            return Ok(Text {
                name: "default.yaml".to_owned(),
                yaml: Policy::default_text().to_owned(),
                beside: Beside(PathBuf::new()),
            });
        }
    };
    Ok(Text {
        name: file.to_string_lossy().into_owned(),
        yaml: text(file)?,
        beside: Beside(file.parent().unwrap_or(Path::new("")).to_owned()),
    })
}

/// The text of any file; `-` reads standard input.
pub(crate) fn text(file: &Path) -> Result<String, CliError> {
    read(file).map_err(|error| CliError::Input {
        file: visible(&file.to_string_lossy()),
        why: error.to_string(),
    })
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().take(LARGEST).read_to_end(&mut bytes)?;
    } else if file.metadata()?.is_file() {
        File::open(file)?.take(LARGEST).read_to_end(&mut bytes)?;
    } else {
        return Err(std::io::Error::other("not a regular file"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let (line, column) = place_of(&error);
        std::io::Error::other(format!(
            "not UTF-8 text: see line {line}, column {column}; save it as UTF-8"
        ))
    })
}

impl Text {
    pub(crate) fn load(&self) -> Result<Policy, Vec<Problem>> {
        Policy::load(&self.name, &self.yaml, &self.beside)
    }
}

/// A policy that must load.
pub(crate) fn strict(file: &Path) -> Result<Policy, CliError> {
    of(Some(file))?.load().map_err(|problems| refused(&problems))
}

/// All problems as one error.
pub(crate) fn refused(problems: &[Problem]) -> CliError {
    let texts: Vec<String> = problems.iter().map(|p| lines(&p.to_string())).collect();
    CliError::Policy(texts.join("\n"))
}

/// Safe to print, with its line breaks.
pub(crate) fn lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}
