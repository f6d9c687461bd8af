//! The programs that guests run, built for this machine.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use kams_vm_tests::plan::Program;
use serde_json::Value;

use super::kernels::Kernel;
use crate::host::{cargo, output};

/// Where test programs are in a guest.
const FOLDER: &str = "tests";
/// The one that is run by other ways of reading payload too, and in part only where security modules differ.
const SENSOR: &str = "sensor";
const PROGRAM_LIMIT: Duration = Duration::from_mins(15);

/// Builds `vm-init`.
pub(super) fn init() -> Result<PathBuf> {
    built(&["build", "-p", "kams-vm-tests", "--bin", "vm-init"], "vm-init")
}

/// The interpreter that tests start servers and agents with.
const PYTHON: &str = "/usr/bin/python3";
/// What those programs import; with what these import, a guest needs no more of it.
const MODULES: &str = "ctypes,encodings.idna,errno,fcntl,json,os,select,signal,socket,stat,struct,\
    subprocess,sys,threading,time";
/// Other programs that tests need as they are: busybox knows what it is to do by `argv[0]` only.
const OTHERS: [&str; 3] = ["/bin/cat", "/usr/bin/env", "/usr/bin/id"];

/// The test programs that guests run: every one of the crate of privileged operations, by name. And what these need.
pub(super) struct Tests {
    programs: Vec<(String, PathBuf)>,
    needed: Vec<(PathBuf, String)>,
}

impl Tests {
    /// Builds them.
    pub(super) fn build() -> Result<Self> {
        let arguments = ["test", "--no-run", "-p", "kams-host", "--tests"];
        let mut programs = executables(&arguments)?;
        programs.retain(|program| program.kind == "test");
        let programs = programs.into_iter().map(|program| (program.name, program.path));
        let others = OTHERS.map(PathBuf::from);
        let needed = python()?.into_iter().chain(others);
        let here = |path: &PathBuf| path.display().to_string().trim_start_matches('/').to_owned();
        Ok(Self {
            programs: programs.collect(),
            needed: needed.map(|path| (path.clone(), here(&path))).collect(),
        })
    }

    /// Files for the image.
    pub(super) fn files(&self) -> Vec<(PathBuf, String)> {
        let place = |name| format!("{FOLDER}/{name}");
        let programs = self.programs.iter();
        programs
            .map(|(name, path)| (path.clone(), place(name)))
            .chain(self.needed.iter().cloned())
            .collect()
    }

    /// What a kernel is to run: tests whose name holds one of these words, or all.
    pub(super) fn plan(&self, kernel: &Kernel, words: &[String]) -> Vec<Program> {
        let program = |test: &str, name: String, usual: &[&str], environment: &[&str]| {
            let path = format!("/{FOLDER}/{test}");
            let fixed = [path.as_str(), "--test-threads=1", "--show-output"];
            let mut command: Vec<String> = fixed.into_iter().map(str::to_owned).collect();
            if words.is_empty() {
                command.extend(usual.iter().map(|&word| word.to_owned()));
            } else {
                command.extend_from_slice(words);
            }
            Program {
                name,
                command,
                environment: environment.iter().map(|&variable| variable.to_owned()).collect(),
                limit: PROGRAM_LIMIT,
            }
        };
        // Where only the security modules differ, only what the kernel offers is asked.
        let usual: &[&str] = if kernel.names_modules { &[] } else { &["start::"] };
        let names = self.programs.iter().map(|(name, _)| name.as_str());
        let mut plan: Vec<Program> = names
            .filter(|&name| kernel.names_modules || name == SENSOR)
            .map(|name| program(name, name.to_owned(), usual, &[]))
            .collect();
        if kernel.both_ways {
            plan.push(program(
                SENSOR,
                format!("{SENSOR}-at-system-calls"),
                &["forms::"],
                &["KAMS_SENSOR_BACKEND=system-calls"],
            ));
        }
        plan
    }
}

/// The interpreter, and the files of the modules that tests import, at the places where it looks for them.
fn python() -> Result<Vec<PathBuf>> {
    let program = format!(
        "import {MODULES}\nfor module in list(sys.modules.values()):\n path = getattr(module, '__file__', None)\n if path: print(path)"
    );
    let files = output(Command::new(PYTHON).args(["-I", "-S", "-c", &program]))
        .with_context(|| format!("{PYTHON} (Debian package python3-minimal)"))?;
    let files = files.lines().map(PathBuf::from);
    Ok(std::iter::once(PathBuf::from(PYTHON)).chain(files).collect())
}

/// Builds a target and returns its program.
pub(super) fn built(arguments: &[&str], target: &str) -> Result<PathBuf> {
    let mut programs = built_all(arguments, &[target])?;
    programs.pop().with_context(|| format!("cargo built no {target}"))
}

/// Builds targets and returns the programs of these names, in the same order.
pub(super) fn built_all(arguments: &[&str], names: &[&str]) -> Result<Vec<PathBuf>> {
    let built = executables(arguments)?;
    let program = |name: &&str| {
        let found = built.iter().find(|program| program.name == **name);
        found
            .map(|program| program.path.clone())
            .with_context(|| format!("cargo built no {name}"))
    };
    names.iter().map(program).collect()
}

/// What cargo built.
struct Executable {
    /// `bin`, `test`, `example`, `lib` (its unit tests).
    kind: String,
    name: String,
    path: PathBuf,
}

fn executables(arguments: &[&str]) -> Result<Vec<Executable>> {
    let mut command = cargo();
    command
        .args(arguments)
        .args(["--locked", "--message-format=json-render-diagnostics"]);
    command.stderr(std::process::Stdio::inherit());
    let messages = output(&mut command)?;
    let programs = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let text = |place| Some(message.pointer(place)?.as_str()?.to_owned());
        Some(Executable {
            kind: text("/target/kind/0")?,
            name: text("/target/name")?,
            path: text("/executable")?.into(),
        })
    });
    Ok(programs.collect())
}
