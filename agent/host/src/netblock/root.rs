//! The root of the control groups, wherever and whether or not it is mounted.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use crate::procs::new_fd;

/// The root, open.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) folder: File,
    /// It is that of the host, not that of a namespace.
    pub(super) is_whole: bool,
}

const FSCONFIG_CMD_CREATE: libc::c_long = 6;
const FSOPEN_CLOEXEC: libc::c_long = 1;
const FSMOUNT_CLOEXEC: libc::c_long = 1;
/// Inode number of the root of a hierarchy.
const ROOT_INODE: u64 = 1;

/// Opens it through a mount of our own that appears nowhere: hosts mount version 2 at `/sys/fs/cgroup`, beside version 1
/// somewhere below, or not at all, and there is only one hierarchy behind all of them.
pub(super) fn open() -> io::Result<Root> {
    let context = call(|| {
        // SAFETY: a string that ends with NUL, and a number.
        unsafe { libc::syscall(libc::SYS_fsopen, c"cgroup2".as_ptr(), FSOPEN_CLOEXEC) }
    })?;
    let nothing = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes no key and no value.
    let made = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            nothing,
            nothing,
            0,
        )
    };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    let mount = call(|| {
        // SAFETY: numbers only.
        unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) }
    })?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a string that ends with NUL, and numbers; the descriptor is open.
    let folder = unsafe { libc::openat(mount.as_raw_fd(), c".".as_ptr(), flags) };
    if folder < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    let folder = File::from(unsafe { OwnedFd::from_raw_fd(folder) });
    let is_whole = folder.metadata()?.ino() == ROOT_INODE;
    Ok(Root { folder, is_whole })
}

fn call(make: impl FnOnce() -> libc::c_long) -> io::Result<OwnedFd> {
    new_fd(make()).ok_or_else(io::Error::last_os_error)
}
