//! The ptrace requests that are used, as functions. All take the thread id of a traced process of the calling thread.

use std::io;

use libc::{c_long, c_void, pid_t};

/// `PTRACE_O_SUSPEND_SECCOMP`: injected calls pass whatever filter the target has. Needs `CAP_SYS_ADMIN` and a tracer
/// without a filter of its own.
pub(super) const SUSPEND_SECCOMP: u64 = 1 << 21;
/// `PTRACE_O_EXITKILL`: the target dies with the tracer.
pub(super) const EXITKILL: u64 = 1 << 20;
/// `PTRACE_EVENT_STOP`.
pub(super) const EVENT_STOP: i32 = 128;

/// What `waitpid` reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Ended; nothing is traced any more.
    Ended,
    /// About to take this signal.
    Signal(i32),
    /// In a group stop by this signal.
    Group(i32),
    /// Stopped for tracing only, or something else that the request did not ask for.
    Other,
}

fn request(request: libc::c_uint, pid: pid_t, address: u64, data: u64) -> io::Result<c_long> {
    // SAFETY: each caller passes what its request wants: numbers, or the address of a local that outlives the call.
    let returned = unsafe { libc::ptrace(request, pid, address as *mut c_void, data as *mut c_void) };
    if returned == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(returned)
    }
}

pub(super) fn seize(pid: pid_t, options: u64) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, pid, 0, options).map(drop)
}

pub(super) fn set_options(pid: pid_t, options: u64) -> io::Result<()> {
    request(libc::PTRACE_SETOPTIONS, pid, 0, options).map(drop)
}

/// Executes one instruction; pending signals are reported first.
pub(super) fn step(pid: pid_t) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, pid, 0, 0).map(drop)
}

/// Asks a running target to stop.
pub(super) fn interrupt(pid: pid_t) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, pid, 0, 0).map(drop)
}

/// Lets a stopped target go, and run.
pub(super) fn detach(pid: pid_t) -> io::Result<()> {
    request(libc::PTRACE_DETACH, pid, 0, 0).map(drop)
}

/// Fills `registers`, the layout of the kernel's `PTRACE_GETREGS`.
pub(super) fn registers<T>(pid: pid_t, registers: &mut T) -> io::Result<()> {
    request(libc::PTRACE_GETREGS, pid, 0, std::ptr::from_mut(registers) as u64).map(drop)
}

pub(super) fn set_registers<T>(pid: pid_t, registers: &T) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, pid, 0, std::ptr::from_ref(registers) as u64).map(drop)
}

/// Eight bytes of the target's memory.
pub(super) fn peek(pid: pid_t, address: u64) -> io::Result<u64> {
    let mut word = 0u64;
    // The raw call stores the word; the library's wrapper returns it, and -1 cannot be told from an error then.
    // SAFETY: `word` is a valid u64 that the kernel writes to.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            c_long::from(libc::PTRACE_PEEKDATA),
            pid,
            address,
            &raw mut word,
        )
    };
    if returned == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(word)
    }
}

pub(super) fn poke(pid: pid_t, address: u64, word: u64) -> io::Result<()> {
    request(libc::PTRACE_POKEDATA, pid, address, word).map(drop)
}

/// Waits for a stop of any target of this thread. `None` when a signal interrupted the wait, or with `block` false when
/// there is nothing to report.
pub(super) fn wait(block: bool) -> io::Result<Option<(pid_t, Stop)>> {
    let mut status = 0;
    // Children of this thread's own do not exist; those of other threads are not asked for.
    let flags = libc::__WALL | libc::__WNOTHREAD | if block { 0 } else { libc::WNOHANG };
    // SAFETY: `status` is a valid int that the kernel writes to.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
    match pid {
        0 => Ok(None),
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(error),
        },
        pid => Ok(Some((pid, stop(status)))),
    }
}

fn stop(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended;
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 => Stop::Signal(signal),
        EVENT_STOP if signal != libc::SIGTRAP => Stop::Group(signal),
        _ => Stop::Other,
    }
}
