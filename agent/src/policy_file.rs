//! The policy from disk: as trustworthy as the configuration, and never replaced by an invalid one.

pub mod in_force;
pub mod watch;

use std::path::{Path, PathBuf};

use kams_policy::{Files, Mode, Policy, Problem};

use crate::config::trusted_text;

/// Where the policy stands unless the command line says otherwise.
pub const INSTALLED: &str = "/etc/kams/policy.yaml";

/// Largest policy or document, in bytes: what the policy's own reader takes.
pub(crate) const MAX_BYTES: u64 = 8 << 20;

/// Where a policy comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PolicySource {
    path: PathBuf,
    explicit: bool,
    mode: Mode,
}

/// Why no policy came of it. The text names every problem with its place.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file may not be trusted or cannot be read.
    #[error("{0}")]
    File(crate::config::Problem),
    /// It was named, and is not there.
    #[error("{}: no such file", .0.display())]
    Missing(PathBuf),
    /// It does not say what it must.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Problems(Vec<Problem>),
}

impl PolicySource {
    /// `/etc/kams/policy.yaml` where it exists, else the default policy.
    pub fn installed() -> Self {
        Self {
            path: PathBuf::from(INSTALLED),
            explicit: false,
            mode: Mode::Observe,
        }
    }

    /// This file, which must exist, and may belong to the caller.
    pub fn file(path: PathBuf) -> Self {
        Self {
            path,
            explicit: true,
            mode: Mode::Observe,
        }
    }

    /// The mode of a policy that does not say one.
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and checks it.
    pub fn load(&self) -> Result<Policy, PolicyError> {
        Ok(self.text()?.with_default_mode(self.mode))
    }

    fn text(&self) -> Result<Policy, PolicyError> {
        match trusted_text(&self.path, self.explicit, MAX_BYTES).map_err(PolicyError::File)? {
            Some(text) => {
                let beside = Beside {
                    folder: self.path.parent().unwrap_or(Path::new("/")),
                    explicit: self.explicit,
                };
                Policy::load(&self.path.to_string_lossy(), &text, &beside).map_err(PolicyError::Problems)
            }
            None if self.explicit => Err(PolicyError::Missing(self.path.clone())),
            None => Ok(Policy::default_policy()),
        }
    }
}

/// Documents that a policy names stand beside it.
struct Beside<'a> {
    folder: &'a Path,
    explicit: bool,
}

impl Files for Beside<'_> {
    fn read(&self, name: &str) -> Result<String, String> {
        if name.contains('/') {
            return Err("documents stand beside the policy: give a file name without folders".to_owned());
        }
        match trusted_text(&self.folder.join(name), self.explicit, MAX_BYTES) {
            Ok(Some(text)) => Ok(text),
            Ok(None) => Err("no such file beside the policy".to_owned()),
            Err(problem) => Err(problem.to_string()),
        }
    }
}
