//! Fuzzing of the parsers: each `fuzz` folder is a package of its own, built by cargo-fuzz.
//!
//! The fuzzed crates forbid unsafe code, so no sanitizer is used, and the stable toolchain suffices.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

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
        must(&mut target.fuzz(arguments.seconds)?)?;
    }
    Ok(())
}

/// Each target for so many seconds, as a step of the suite.
///
/// A target is one thread: as many run at once as there are processors. What one says is shown when it ends.
pub(crate) fn smoke(seconds: u32) -> Outcome {
    let targets = match built() {
        Ok(targets) => targets,
        Err(error) => return Outcome::single(Err(format!("{error:#}"))),
    };
    if targets.is_empty() {
        return Outcome::single(Err("there is no fuzz target".to_owned()));
    }
    let waiting = Mutex::new(targets.iter());
    let outcome = Mutex::new(Outcome::default());
    let work = || {
        while let Some(target) = waiting.lock().ok().and_then(|mut all| all.next()) {
            let result = target.fuzz(seconds).and_then(|mut command| watched(&mut command));
            if let Ok(mut all) = outcome.lock() {
                println!("fuzz target {} for {seconds} s", target.name);
                let result = result.map(|said| print!("{said}"));
                all.add(Outcome::single(
                    result.map_err(|error| format!("fuzz target {}: {error:#}", target.name)),
                ));
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    outcome.into_inner().unwrap_or_default()
}

/// All targets, each package built at once: the crates below them are compiled once and on all processors.
fn built() -> Result<Vec<Target>> {
    for folder in folders() {
        must(&mut cargo_fuzz("build", &folder)?)?;
    }
    targets()
}

/// What a command that must succeed says, on both its outputs.
fn watched(command: &mut Command) -> Result<String> {
    let output = command.output().context("cargo-fuzz")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{}\n{said}", output.status);
    Ok(said.into_owned())
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
    fn fuzz(&self, seconds: u32) -> Result<Command> {
        let found = host::target().join("fuzz-corpus").join(&self.name);
        std::fs::create_dir_all(&found)?;
        let seeds = self.folder.join("corpus").join(&self.name);
        let mut command = cargo_fuzz("run", &self.folder)?;
        command
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
        Ok(command)
    }
}

/// `cargo fuzz` with one of its subcommands, for a package.
///
/// Built for a short build, which is most of the time of a smoke run: the usual one unit per crate keeps all
/// processors but one idle.
fn cargo_fuzz(subcommand: &str, folder: &Path) -> Result<Command> {
    let mut command = Command::new(program()?);
    command
        .current_dir(host::root())
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .args(["fuzz", subcommand, "--sanitizer", "none", "--codegen-units", "16"])
        .arg("--fuzz-dir")
        .arg(folder)
        .arg("--target-dir")
        .arg(host::target().join("fuzz"))
        .stdin(Stdio::null());
    Ok(command)
}

/// Our own pinned cargo-fuzz, installed at first use.
fn program() -> Result<PathBuf> {
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
