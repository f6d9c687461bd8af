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

/// AF_UNIX: the way to the engine.
const UNIX: u64 = 1;
/// PROT_EXEC.
const EXECUTE: u64 = 4;

/// Confines this process from here on.
pub fn confine() -> Result<(), SeccompError> {
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
    filter.load()
}
