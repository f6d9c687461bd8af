//! Fuzzing of the parsers: each `fuzz` folder is a package of its own, built by cargo-fuzz.
//!
//! The fuzzed crates forbid unsafe code, so no sanitizer is used, and the stable toolchain suffices.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::host::{self, cargo, must};
use crate::suite::Outcome;

const CARGO_FUZZ: &str = "0.13.2";

/// How long.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds per target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Only targets whose name contains this word.
    only: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let only = arguments.only.as_deref().unwrap_or_default();
    for target in targets()?.iter().filter(|target| target.name.contains(only)) {
        target.fuzz(arguments.seconds)?;
    }
    Ok(())
}

/// Each target for so many seconds, as a step of the suite.
pub(crate) fn smoke(seconds: u32) -> Outcome {
    let targets = match targets() {
        Ok(targets) => targets,
        Err(error) => return Outcome::single(Err(format!("{error:#}"))),
    };
    if targets.is_empty() {
        return Outcome::single(Err("there is no fuzz target".to_owned()));
    }
    let mut outcome = Outcome::default();
    for target in targets {
        outcome.add(Outcome::single(
            target.fuzz(seconds).map_err(|error| format!("{error:#}")),
        ));
    }
    outcome
}

/// Folders of fuzz packages that are there.
pub(crate) fn folders() -> Vec<PathBuf> {
    ["mcp/fuzz", "detect/fuzz", "policy/fuzz"]
        .into_iter()
        .map(|folder| host::root().join(folder))
        .filter(|folder| folder.join("Cargo.toml").exists())
        .collect()
}

struct Target {
    folder: PathBuf,
    name: String,
}

fn targets() -> Result<Vec<Target>> {
    let mut found = Vec::new();
    for folder in folders() {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml"))?;
        let manifest: toml::Table =
            toml::from_str(&manifest).with_context(|| folder.display().to_string())?;
        for target in manifest
            .get("bin")
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten()
        {
            let name = target
                .get("name")
                .and_then(toml::Value::as_str)
                .context("a target without a name")?;
            found.push(Target {
                folder: folder.clone(),
                name: name.to_owned(),
            });
        }
    }
    Ok(found)
}

impl Target {
    /// Runs from the committed corpus; what is found on the way goes to a folder that is not tracked.
    fn fuzz(&self, seconds: u32) -> Result<()> {
        println!("fuzz target {} for {seconds} s", self.name);
        let found = host::target().join("fuzz-corpus").join(&self.name);
        std::fs::create_dir_all(&found)?;
        let seeds = self.folder.join("corpus").join(&self.name);
        let mut command = Command::new(cargo_fuzz()?);
        command
            .current_dir(host::root())
            .args(["fuzz", "run", "--sanitizer", "none", "--fuzz-dir"])
            .arg(&self.folder)
            .arg("--target-dir")
            .arg(host::target().join("fuzz"))
            .arg(&self.name)
            .arg(found)
            .args(Some(seeds).filter(|seeds| seeds.exists()))
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .args([
                "-print_final_stats=0",
                "-verbosity=0",
                "-timeout=20",
                "-rss_limit_mb=2048",
            ]);
        must(command.stdin(Stdio::null()))
    }
}

/// Our own pinned cargo-fuzz, installed at first use.
fn cargo_fuzz() -> Result<PathBuf> {
    let tools = host::target().join("tools");
    let program = tools.join("bin/cargo-fuzz");
    let pinned = tools.join(format!("cargo-fuzz-{CARGO_FUZZ}"));
    if !(program.exists() && pinned.exists()) {
        let mut install = cargo();
        install.args([
            "install",
            "-q",
            "cargo-fuzz",
            "--locked",
            "--force",
            "--version",
            CARGO_FUZZ,
            "--root",
        ]);
        must(install.arg(&tools))?;
        std::fs::write(pinned, "")?;
    }
    Ok(program)
}
