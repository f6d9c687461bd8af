//! `kams`, the command line.
//!
//! Data goes to stdout, everything else to stderr. Exit status: 0 clean, 1 findings at or above `--fail-on` (or
//! a failed check of `doctor`), 2 error. A reader that goes away (`kams events | head`) is success.

mod args;
mod baseline;
mod client;
mod commands;
mod detect;
mod error;
mod exceptions;
mod follow;
mod out;
mod pages;
mod policy;
mod runs;
mod scan;
mod show;
mod table;
mod telemetry;
mod waste;
mod wrap;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use kams_export::view::Record;
use kams_policy::Policy;

pub use args::Args;
pub use error::CliError;
pub use out::{Out, Terminal};

/// Reads one recorded session (a path, or `-` for stdin) and hands over the records that the engine makes of
/// it under a policy, in order.
pub type Replay = fn(&Path, Arc<Policy>, &mut dyn FnMut(Record) -> io::Result<()>) -> anyhow::Result<()>;

/// What works without a daemon, provided by the engine.
#[derive(Clone, Copy, Debug)]
pub struct Offline {
    /// `kams replay`.
    pub replay: Replay,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// Nothing to report.
    Clean,
    /// Something that was asked to fail the command.
    Found,
    /// As the server that was wrapped.
    Like(std::process::ExitStatus),
}

/// The whole program.
pub fn main(offline: Offline) -> ExitCode {
    let stdout = io::stdout();
    let terminal = Terminal::of_stdout(stdout.is_terminal());
    let mut out = Out::new(
        Box::new(io::BufWriter::with_capacity(64 * 1024, stdout)),
        terminal,
    );
    match run(std::env::args_os(), offline, &mut out) {
        Ok(Ended::Clean) => ExitCode::SUCCESS,
        Ok(Ended::Found) => ExitCode::from(1),
        Ok(Ended::Like(status)) => crate::wrap::end_like(status),
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(2)
        }
    }
}

/// Runs one command line. Usage errors and `--help` end the process, as is usual.
pub fn run(
    args: impl IntoIterator<Item = OsString>,
    offline: Offline,
    out: &mut Out,
) -> Result<Ended, CliError> {
    let args = Args::parse_from(args);
    out.prefer(args.color, args.output);
    let ended = commands::run(&args, offline, out).and_then(|ended| {
        out.flush()?;
        Ok(ended)
    });
    match ended {
        Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Ended::Clean),
        ended => ended,
    }
}

/// One line for the person, on stderr. Where nobody can read it, that is fine.
fn say(text: &str) {
    let line = format!("kams: {text}\n");
    if io::stderr().write_all(line.as_bytes()).is_err() {
        tracing::trace!("stderr is closed");
    }
}

#[cfg(test)]
mod tests;
