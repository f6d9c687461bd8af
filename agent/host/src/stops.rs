//! Continuing a process that we have stopped, without taking away the stops that others asked for meanwhile.
//!
//! SIGCONT removes every stop signal that waits (signal(7)), and a stopped process takes none. So those that wait are
//! looked up before, and sent again after. A second SIGSTOP that comes before the process has taken ours is the same
//! signal for the kernel: then there is one, and it counts as ours.

use std::io;
use std::os::fd::OwnedFd;

use crate::hold::pidfd_signal;

/// Signals that stop, other than SIGSTOP.
const OTHERS: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Whether a signal stops whoever has made no other arrangement.
pub(crate) fn stops(signal: i32) -> bool {
    signal == libc::SIGSTOP || OTHERS.contains(&signal)
}

/// Sends SIGCONT, and the stops of others again. Each one's sender is told as this process then.
///
/// # Errors
/// When the process has ended.
pub(crate) fn continued(pid: u32, process: &OwnedFd) -> io::Result<()> {
    let waiting = Waiting::of(pid);
    continued_with(process, &waiting.signals(waiting.is_stopped))
}

/// The same, where it is known what had been waiting.
pub(crate) fn continued_with(process: &OwnedFd, waiting: &[i32]) -> io::Result<()> {
    pidfd_signal(process, libc::SIGCONT)?;
    for signal in waiting {
        pidfd_signal(process, *signal)?;
    }
    Ok(())
}

/// Signals that a process has not taken yet.
pub(crate) struct Waiting {
    set: u64,
    is_stopped: bool,
}

impl Waiting {
    /// Of a process that has ended nothing waits.
    pub(crate) fn of(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        Self::read(&status.unwrap_or_default())
    }

    /// From the text of `/proc/PID/status` (proc_pid_status(5)).
    fn read(status: &str) -> Self {
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim).unwrap_or_default()
        };
        let set = |name: &str| u64::from_str_radix(value(name), 16).unwrap_or_default();
        Self {
            set: set("SigPnd:") | set("ShdPnd:"),
            is_stopped: value("State:").starts_with('T'),
        }
    }

    /// The stops of others. `taken`: the process has taken our SIGSTOP, so that one that waits is not ours.
    pub(crate) fn signals(&self, taken: bool) -> Vec<i32> {
        let waits = |signal: &i32| self.set & (1 << (signal - 1)) != 0;
        let stop = [libc::SIGSTOP].into_iter().filter(|_| taken);
        stop.chain(OTHERS).filter(waits).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: &str, own: i32, shared: i32) -> String {
        let set = |signal: i32| if signal == 0 { 0_u64 } else { 1 << (signal - 1) };
        format!(
            "Name:\tcat\nState:\t{state}\nSigQ:\t0/1\nSigPnd:\t{:016x}\nShdPnd:\t{:016x}\n",
            set(own),
            set(shared)
        )
    }

    #[test]
    fn stops_that_wait_are_found() {
        let waiting = Waiting::read(&status("T (stopped)", libc::SIGTTIN, libc::SIGTSTP));
        assert!(waiting.is_stopped);
        assert_eq!(waiting.signals(true), [libc::SIGTSTP, libc::SIGTTIN]);
        assert!(
            Waiting::read(&status("S (sleeping)", libc::SIGTERM, 0))
                .signals(true)
                .is_empty()
        );
        assert!(Waiting::read("").signals(true).is_empty());
    }

    #[test]
    fn our_own_stop_is_not_anothers() {
        let waiting = Waiting::read(&status("R (running)", 0, libc::SIGSTOP));
        assert!(!waiting.is_stopped);
        assert!(waiting.signals(false).is_empty());
        assert_eq!(waiting.signals(true), [libc::SIGSTOP]);
    }
}
