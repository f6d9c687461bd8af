//! The target's limit on descriptor numbers, raised for the moment where the new pairs would not fit.

use std::io;

use libc::rlimit;

use super::Refusal;
use super::descriptors::Plan;
use crate::procs;

/// Numbers that two new pairs can take.
const NEW_DESCRIPTORS: u64 = 4;

/// Makes room; returns the limit to restore, if it had to be changed.
pub(super) fn raise(pid: i32, plan: &Plan) -> Result<Option<rlimit>, Refusal> {
    let has = of(pid).ok_or(Refusal::Failed(libc::EPERM))?;
    // The lowest free numbers are at most as many as descriptors are open.
    let open = u64::try_from(procs::fd_links(pid.unsigned_abs()).len()).unwrap_or(0);
    let highest = u64::from(plan.highest());
    let needed = (highest + 1).max(open + NEW_DESCRIPTORS);
    if has.rlim_cur >= needed {
        return Ok(None);
    }
    let more = rlimit {
        rlim_cur: needed,
        rlim_max: has.rlim_max.max(needed),
    };
    match set(pid, &more) {
        Ok(()) => Ok(Some(has)),
        // Without the right to do so it is as for the target itself: no room.
        Err(_) => Err(Refusal::Failed(libc::EMFILE)),
    }
}

/// The present limit. Asking the kernel needs the same right as changing it, for a target of another user; procfs tells
/// without.
fn of(pid: i32) -> Option<rlimit> {
    let mut has = rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the new limit may be null; the old one is written to a valid local.
    let returned = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut has) };
    if returned == 0 {
        return Some(has);
    }
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let mut values = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_ascii_whitespace()
        .map(|word| {
            if word == "unlimited" {
                Some(u64::MAX)
            } else {
                word.parse().ok()
            }
        });
    Some(rlimit {
        rlim_cur: values.next()??,
        rlim_max: values.next()??,
    })
}

/// Sets it.
pub(super) fn set(pid: i32, limit: &rlimit) -> io::Result<()> {
    // SAFETY: the limit is a valid one that the call reads; the old one is not asked for.
    let returned = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, limit, std::ptr::null_mut()) };
    if returned == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
