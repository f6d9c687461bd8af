//! A private network namespace with nothing in it but loopback.
//!
//! Agents under test look for updates, models and repositories on the network; in here they find only the mock.

use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

/// Port of the mock LLM. The namespace is private, so it is always free.
pub const LLM_PORT: u16 = 8399;

/// Moves the calling thread, and what it starts from now on, into a new namespace. Call it before the first
/// thread is started.
pub fn enter() -> Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    if uid.is_root() {
        unshare(CloneFlags::CLONE_NEWNET).context("a network namespace of our own")?;
    } else {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
            .context("user namespaces are switched off here, so only root can run agents offline")?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    }
    let status = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()
        .context("`ip` of the package iproute2")?;
    if !status.success() {
        bail!("loopback cannot be brought up: ip ended with {status}");
    }
    Ok(())
}
