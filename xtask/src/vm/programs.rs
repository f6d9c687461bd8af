//! The programs that guests run, built for this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use kams_vm_tests::plan::Program;
use serde_json::Value;

use crate::host::{cargo, output};

/// Builds `vm-init`.
pub(super) fn init() -> Result<PathBuf> {
    built(&["build", "-p", "kams-vm-tests", "--bin", "vm-init"], "vm-init")
}

/// The tests: files for the image, and the plan. Names that hold `filter` only, if there is one.
pub(super) fn tests(filter: Option<&str>) -> Result<(Vec<(PathBuf, String)>, Vec<Program>)> {
    let sensor = built(
        &["test", "--no-run", "-p", "kams-host", "--test", "sensor"],
        "sensor",
    )?;
    let mut command = ["/tests/sensor", "--test-threads=1", "--show-output"]
        .map(str::to_owned)
        .to_vec();
    command.extend(filter.map(str::to_owned));
    let plan = Program {
        name: "sensor".to_owned(),
        command,
        environment: Vec::new(),
        limit: Duration::from_secs(540),
    };
    Ok((vec![(sensor, "tests/sensor".to_owned())], vec![plan]))
}

/// Builds a target and returns its program.
pub(super) fn built(arguments: &[&str], target: &str) -> Result<PathBuf> {
    let mut command = cargo();
    command
        .args(arguments)
        .args(["--locked", "--message-format=json-render-diagnostics"]);
    command.stderr(std::process::Stdio::inherit());
    let messages = output(&mut command)?;
    let program = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let name = message.pointer("/target/name")?.as_str()?;
        let path = message.get("executable")?.as_str()?;
        (name == target).then(|| Path::new(path).to_owned())
    });
    program.with_context(|| format!("cargo built no {target}"))
}
