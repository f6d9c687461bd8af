//! `kams`: see [`kams_agent::cli`].
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use kams_agent::cli::{Offline, main as run};
use kams_agent::engine::replay;
use kams_export::view::Record;
use kams_policy::Policy;

fn main() -> ExitCode {
    run(Offline { replay })
}

fn replay(
    file: &Path,
    policy: Arc<Policy>,
    emit: &mut dyn FnMut(Record) -> io::Result<()>,
) -> anyhow::Result<()> {
    let name = file
        .file_stem()
        .unwrap_or(file.as_os_str())
        .to_string_lossy()
        .into_owned();
    let mut input = BufReader::new(File::open(file).with_context(|| file.display().to_string())?);
    replay::replay(&name, policy, &mut input, emit).with_context(|| file.display().to_string())
}
