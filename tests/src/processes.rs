//! What the kernel tells of processes, and signals to them.

use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal.
pub fn send(pid: u32, signal: Signal) -> Result<()> {
    Ok(kill_process(
        Pid::from_raw(i32::try_from(pid)?).context("a process")?,
        signal,
    )?)
}

/// State of a process, as the kernel's letter.
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Children of all threads of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>())
        .collect()
}

/// Control group of a process, in the hierarchy of version 2.
pub fn group(pid: u32) -> Result<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("0::"));
    Ok(line.context("a group")?.to_owned())
}

/// The relays that serve, where `program` is the relays' program.
pub fn serving(program: &Path) -> Result<Vec<u32>> {
    let program = std::fs::canonicalize(program)?;
    let mut relays = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let link = |name: &str| std::fs::read_link(entry.path().join(name)).ok();
        // One that waits for its task has a socket there.
        if link("exe").is_some_and(|exe| exe == program)
            && link("fd/0").is_some_and(|stdin| stdin == Path::new("/dev/null"))
        {
            relays.extend(entry.file_name().to_string_lossy().parse::<u32>());
        }
    }
    Ok(relays)
}

/// A stopped process that goes on when this is dropped: a test that fails leaves nothing stopped.
#[derive(Debug)]
pub struct Stopped(pub u32);

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        drop(send(self.0, Signal::CONT));
    }
}
