//! What a relay may ask of the kernel: a list, and nothing else.
//!
//! By libseccomp, so that the numbers are right on each architecture. Whatever is not on the list ends the process:
//! that ends the server's connection, and does not open it.

use libseccomp::error::SeccompError;
use libseccomp::{ScmpAction, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};

/// Calls that copying, waiting and remembering need.
const ALLOWED: &[&str] = &[
    "read",
    "write",
    "readv",
    "writev",
    "pread64",
    "pwrite64",
    "recvfrom",
    "sendto",
    "recvmsg",
    "sendmsg",
    "shutdown",
    "close",
    "poll",
    "ppoll",
    "fstat",
    "newfstatat",
    "fcntl",
    "memfd_create",
    "connect",
    "mmap",
    "munmap",
    "mremap",
    "madvise",
    "brk",
    "clock_gettime",
    "gettimeofday",
    "getrandom",
    "futex",
    "rt_sigreturn",
    "sigaltstack",
    "restart_syscall",
    "exit",
    "exit_group",
];

/// Further calls of the process that answers the questions of servers' filters.
const OF_HOLDER: &[&str] = &["accept4", "getsockopt"];
/// The requests of a filter's listener: all that `ioctl` is for (`SECCOMP_IOCTL_NOTIF_RECV` and `_SEND`).
const LISTENER: [u64; 2] = [0xc050_2100, 0xc018_2101];

/// `SECCOMP_GET_NOTIF_SIZES`.
const GET_NOTIF_SIZES: u64 = 3;

/// AF_UNIX: the way to the engine.
const UNIX: u64 = 1;
/// PROT_EXEC.
const EXECUTE: u64 = 4;

/// Confines this process from here on, as a relay.
pub fn confine() -> Result<(), SeccompError> {
    relay()?.load()
}

/// Confines this process from here on, as the holder of listeners.
pub fn confine_holder() -> Result<(), SeccompError> {
    // The library asks once what the kernel can do, with calls that are not on the list.
    libseccomp::get_api();
    let mut filter = relay()?;
    for name in OF_HOLDER {
        filter.add_rule(ScmpAction::Allow, ScmpSyscall::from_name(name)?)?;
    }
    // The library asks again how long a question is.
    let sizes = ScmpArgCompare::new(0, ScmpCompareOp::MaskedEqual(0xffff_ffff), GET_NOTIF_SIZES);
    filter.add_rule_conditional(ScmpAction::Allow, ScmpSyscall::from_name("seccomp")?, &[sizes])?;
    let ioctl = ScmpSyscall::from_name("ioctl")?;
    for request in LISTENER {
        let only = ScmpArgCompare::new(1, ScmpCompareOp::MaskedEqual(0xffff_ffff), request);
        filter.add_rule_conditional(ScmpAction::Allow, ioctl, &[only])?;
    }
    filter.load()
}

fn relay() -> Result<ScmpFilterContext, SeccompError> {
    let mut filter = ScmpFilterContext::new(ScmpAction::KillProcess)?;
    for name in ALLOWED {
        match *name {
            // Memory that can be run is none that a relay needs.
            "mmap" => {
                let plain = ScmpArgCompare::new(2, ScmpCompareOp::MaskedEqual(EXECUTE), 0);
                filter.add_rule_conditional(ScmpAction::Allow, ScmpSyscall::from_name(name)?, &[plain])?;
            }
            _ => {
                filter.add_rule(ScmpAction::Allow, ScmpSyscall::from_name(name)?)?;
            }
        }
    }
    let to_engine = ScmpArgCompare::new(0, ScmpCompareOp::MaskedEqual(0xffff_ffff), UNIX);
    filter.add_rule_conditional(ScmpAction::Allow, ScmpSyscall::from_name("socket")?, &[to_engine])?;
    Ok(filter)
}
