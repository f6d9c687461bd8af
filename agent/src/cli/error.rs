//! What can go wrong for a person at a terminal, and what they can do.

use std::io;
use std::path::PathBuf;

use kams_export::text::visible;

use crate::admin::ApiError;

/// Why a command failed. The text ends with what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// Nobody listens.
    #[error(
        "kamsd does not answer at {}: {source}\n  start it with `sudo systemctl start kamsd` (or `sudo kamsd` in \
         another terminal); if it runs elsewhere, name its socket with --socket",
        .socket.display()
    )]
    NotRunning {
        /// The socket.
        socket: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The socket is there and closed to us.
    #[error(
        "{}: {source}\n  the socket is open to every user by default: check the mode of its folders",
        .socket.display()
    )]
    NoAccess {
        /// The socket.
        socket: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to kamsd broke: {why}\n  {remedy}")]
    Lost {
        /// How.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// kamsd said no.
    #[error("{}{}", visible(&.0.message), remedy(.0))]
    Refused(ApiError),
    /// The answer makes no sense.
    #[error(
        "kamsd gave an answer that this version does not understand: {why}\n  compare `kams --version` with `kams status -o json`"
    )]
    Answer {
        /// What is wrong with it.
        why: String,
    },
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
    /// A file cannot be read, or does not say what it must.
    #[error("{file}: {why}")]
    Input {
        /// The file.
        file: String,
        /// Why.
        why: String,
    },
    /// A server that could not be wrapped.
    #[error("{0}")]
    Wrap(String),
    /// A policy that does not load; the text has a line per place and excerpt.
    #[error("{0}")]
    Policy(String),
    /// Rows that could not be judged; the others were.
    #[error("{file}: {bad} rows could not be judged; the first is line {number}: {why}")]
    Rows {
        /// The file.
        file: String,
        /// How many.
        bad: u64,
        /// Line of the first one, from 1.
        number: u64,
        /// Why.
        why: String,
    },
    /// A recorded session cannot be replayed.
    #[error("{file}: {why}")]
    Replay {
        /// The file.
        file: String,
        /// Why.
        why: String,
    },
}

fn remedy(error: &ApiError) -> String {
    if error.remedy.is_empty() {
        return String::new();
    }
    format!("\n  {}", visible(&error.remedy))
}

impl CliError {
    pub(super) fn lost(why: impl std::fmt::Display) -> Self {
        let remedy = "see `journalctl -u kamsd`, then try again";
        Self::Lost {
            why: why.to_string(),
            remedy,
        }
    }

    /// Whether waiting for the daemon may help.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::NotRunning { .. } | Self::Lost { .. } => true,
            Self::Refused(error) => error.code == "busy",
            _ => false,
        }
    }
}
