//! What the thread of a session does: takes the user's identity, then opens files.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::{HostUser, Owner, UserFileError};

/// Gives the calling thread the user's file-system identity and takes every capability from it. Not undone: the thread
/// ends with the session.
pub(super) fn become_user(user: &HostUser) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    let own = unsafe { libc::geteuid() };
    if own != 0 {
        // Without privilege there is one identity to have.
        return if own == user.uid {
            Ok(())
        } else {
            Err(Errno::EPERM)
        };
    }
    // Raw calls: libc's wrappers would change every thread of the process.
    // SAFETY: the pointer and the length are those of one living slice of gid_t (u32 on Linux).
    Errno::result(unsafe { libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()) })?;
    set_fs_id(libc::SYS_setfsgid, user.gid)?;
    set_fs_id(libc::SYS_setfsuid, user.uid)?;
    // A change of identity sets the whole process back to what `fs.suid_dumpable` says.
    nix::sys::prctl::set_dumpable(false)?;
    drop_capabilities()
}

/// Sets an id and checks that it took: the call itself returns the former id, and no error.
fn set_fs_id(call: libc::c_long, id: u32) -> Result<(), Errno> {
    // SAFETY: both calls take an integer.
    unsafe { libc::syscall(call, id) };
    // SAFETY: as above; -1 is no id, so this only asks.
    let now = unsafe { libc::syscall(call, u32::MAX) };
    if now == libc::c_long::from(id) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`: 64 capabilities in two records.
const CAP_VERSION: u32 = 0x2008_0522;

fn drop_capabilities() -> Result<(), Errno> {
    let header = CapHeader {
        version: CAP_VERSION,
        pid: 0,
    };
    let none = [CapData {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    }; 2];
    // SAFETY: header and data have the layout of the kernel's version 3 and live through the call; pid 0 is the
    // calling thread.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) })?;
    Ok(())
}

fn failure(errno: Errno) -> UserFileError {
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => UserFileError::Absent,
        Errno::EACCES | Errno::EPERM => UserFileError::Denied,
        Errno::ELOOP => UserFileError::Link,
        other => UserFileError::System(other),
    }
}

/// The file itself, not opened for reading: nothing happens to it.
fn locate(path: &Path, flags: OFlag) -> Result<File, UserFileError> {
    if !path.is_absolute() {
        return Err(UserFileError::Absent);
    }
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | flags)
        .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let fd = match openat2(nix::fcntl::AT_FDCWD, path, how) {
        Ok(fd) => fd,
        // Containers' filters and kernels before 5.6 do not know openat2. Capabilities are gone, so a magic link leads
        // nowhere that matters; what is found is checked all the same.
        Err(Errno::ENOSYS | Errno::EPERM) => nix::fcntl::open(
            path,
            OFlag::O_PATH | OFlag::O_CLOEXEC | flags,
            nix::sys::stat::Mode::empty(),
        )
        .map_err(failure)?,
        Err(errno) => return Err(failure(errno)),
    };
    Ok(File::from(fd))
}

fn magic(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/thread-self/fd/{}", file.as_raw_fd()))
}

/// Opens for reading what was located. `O_NONBLOCK` is for a file that was swapped on a file system of the user's.
fn reopen(file: &File) -> Result<File, UserFileError> {
    let path = std::ffi::CString::new(magic(file).as_os_str().as_bytes());
    let Ok(path) = path else {
        return Err(UserFileError::System(Errno::EINVAL));
    };
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the path is a C string that lives through the call.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    let fd = Errno::result(fd).map_err(failure)?;
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn io(error: &std::io::Error) -> UserFileError {
    failure(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

pub(super) fn read(path: &Path, owner: Owner, uid: u32, limit: u64) -> Result<Vec<u8>, UserFileError> {
    let flags = if owner == Owner::Anyone {
        OFlag::O_NOFOLLOW
    } else {
        OFlag::empty()
    };
    let found = locate(path, flags)?;
    let meta = found.metadata().map_err(|error| io(&error))?;
    if meta.file_type().is_symlink() {
        return Err(UserFileError::Link);
    }
    if !meta.file_type().is_file() {
        return Err(UserFileError::NotRegular);
    }
    let fits = match owner {
        Owner::User => meta.uid() == uid,
        Owner::UserOrRoot => meta.uid() == uid || meta.uid() == 0,
        Owner::Anyone => true,
    };
    if !fits {
        return Err(UserFileError::Foreign(meta.uid()));
    }
    if meta.len() > limit {
        return Err(UserFileError::TooLarge(limit));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed shows a file that grew, or that lied about its size.
    reopen(&found)?
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| io(&error))?;
    if bytes.len() as u64 > limit {
        return Err(UserFileError::TooLarge(limit));
    }
    Ok(bytes)
}

pub(super) fn real_path(path: &Path) -> Result<PathBuf, UserFileError> {
    let found = locate(path, OFlag::empty())?;
    std::fs::read_link(magic(&found)).map_err(|error| io(&error))
}

pub(super) fn list(path: &Path, max: usize) -> Result<Vec<String>, UserFileError> {
    let found = locate(path, OFlag::O_DIRECTORY)?;
    let entries = std::fs::read_dir(magic(&found)).map_err(|error| io(&error))?;
    Ok(entries
        .flatten()
        .take(max)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect())
}
