//! `kams`: see [`kams_agent::cli`].

use std::io;
use std::path::Path;
use std::process::ExitCode;

use kams_agent::cli::{Offline, main as run};
use kams_export::view::Record;

fn main() -> ExitCode {
    run(Offline { replay })
}

fn replay(_file: &Path, _emit: &mut dyn FnMut(Record) -> io::Result<()>) -> anyhow::Result<()> {
    anyhow::bail!("this build has no engine to replay with")
}
