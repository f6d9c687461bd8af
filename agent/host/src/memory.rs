//! What becomes of this process's memory: given back to the system, and never written to a disk by a core dump.

use std::io;

use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Keeps this process's memory out of core dumps: agents' traffic passes through it, and secrets with it.
///
/// Two locks, because neither holds alone. The kernel forgets the first when a thread takes a user's file-system
/// identity and `fs.suid_dumpable` is set, so [`crate::userfile`] renews it; the second is a limit of 1 byte, which
/// also stops dumps into a pipe (a limit of 0 does not, see `do_coredump`).
pub fn keep_from_disk() -> io::Result<()> {
    set_dumpable(false)?;
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE)?;
    let limit = hard.min(1);
    Ok(setrlimit(Resource::RLIMIT_CORE, limit, limit)?)
}

/// Returns freed heap pages. Reading the kernel's type information takes tens of megabytes for a moment, which the
/// allocator would keep for good.
pub fn give_back() {
    // SAFETY: malloc_trim takes no pointer and may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::prctl::get_dumpable;

    #[test]
    fn no_dump_is_left() {
        keep_from_disk().unwrap();
        assert!(!get_dumpable().unwrap());
        assert!(getrlimit(Resource::RLIMIT_CORE).unwrap().1 <= 1);
        // Asked again, as by a second command of one process.
        keep_from_disk().unwrap();
    }
}
