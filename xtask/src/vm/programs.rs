//! The programs that guests run, built for this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use kams_vm_tests::plan::Program;
use serde_json::Value;

use super::kernels::Kernel;
use crate::host::{cargo, output};

/// Where the sensor's tests are in a guest.
const SENSOR: &str = "tests/sensor";
const PROGRAM_LIMIT: Duration = Duration::from_mins(15);

/// Builds `vm-init`.
pub(super) fn init() -> Result<PathBuf> {
    built(&["build", "-p", "kams-vm-tests", "--bin", "vm-init"], "vm-init")
}

/// The test programs that guests run.
pub(super) struct Tests {
    sensor: PathBuf,
}

impl Tests {
    /// Builds them.
    pub(super) fn build() -> Result<Self> {
        Ok(Self {
            sensor: built(
                &["test", "--no-run", "-p", "kams-host", "--test", "sensor"],
                "sensor",
            )?,
        })
    }

    /// Files for the image.
    pub(super) fn files(&self) -> Vec<(PathBuf, String)> {
        vec![(self.sensor.clone(), SENSOR.to_owned())]
    }

    /// What a kernel is to run: tests whose name holds `filter`, if there is one.
    pub(super) fn plan(kernel: &Kernel, filter: Option<&str>) -> Vec<Program> {
        let sensor = |name: &str, filter: Option<&str>, environment: &[&str]| {
            let path = format!("/{SENSOR}");
            let fixed = [path.as_str(), "--test-threads=1", "--show-output"];
            Program {
                name: name.to_owned(),
                command: fixed.into_iter().chain(filter).map(str::to_owned).collect(),
                environment: environment.iter().map(|&variable| variable.to_owned()).collect(),
                limit: PROGRAM_LIMIT,
            }
        };
        // Where only the security modules differ, only what the kernel offers is asked.
        let own_filter = (!kernel.names_modules).then_some("start::");
        let mut plan = vec![sensor("sensor", filter.or(own_filter), &[])];
        if kernel.both_ways {
            plan.push(sensor(
                "sensor-at-system-calls",
                filter.or(Some("forms::")),
                &["KAMS_SENSOR_BACKEND=system-calls"],
            ));
        }
        plan
    }
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
