//! What a target has open, and what of it is to be replaced.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};

use super::{Kind, Refusal};
use crate::event::FdKind;
use crate::procs::{self, FdLink};

/// The original of one of the target's streams.
#[derive(Debug)]
pub(super) struct Original {
    /// Our copy of the target's descriptor.
    pub(super) fd: OwnedFd,
    pub(super) kind: Kind,
    ino: u64,
    flags: OFlag,
}

/// Which end of a new pair takes a descriptor's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server's.
    Near,
    /// Ours. Only for a target that had the agent's end open as well, by inheritance: it keeps as much as it had.
    Far,
}

/// One descriptor to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) fd: u32,
    /// 0: the pair for standard input, 1: for standard output.
    pub(super) pair: usize,
    pub(super) end: End,
}

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) stdin: Original,
    pub(super) stdout: Original,
    /// One socket serves both: one pair is made.
    pub(super) one_socket: bool,
    /// Descriptors to replace; 0 and 1 come first.
    pub(super) places: Vec<Place>,
}

impl Plan {
    /// Whether standard error is one of the replaced.
    pub(super) fn stderr_shared(&self) -> bool {
        self.places.iter().any(|place| place.fd == 2)
    }

    /// Replaced descriptors besides 0, 1 and 2.
    pub(super) fn copies(&self) -> usize {
        self.places.iter().filter(|place| place.fd > 2).count()
    }

    /// Kinds of the pairs to make.
    pub(super) fn pairs(&self) -> Vec<Kind> {
        if self.one_socket {
            vec![self.stdin.kind]
        } else {
            vec![self.stdin.kind, self.stdout.kind]
        }
    }

    /// The highest descriptor number that is replaced.
    pub(super) fn highest(&self) -> u32 {
        self.places.iter().map(|place| place.fd).max().unwrap_or(1)
    }

    /// Whether the new pair is to be non-blocking because the original was so for the server.
    pub(super) fn is_nonblocking(&self, pair: usize) -> bool {
        let original = if pair == 0 { &self.stdin } else { &self.stdout };
        original.flags.contains(OFlag::O_NONBLOCK)
    }
}

/// Looks at a stopped target.
pub(super) fn plan(pid: u32, parent: u32, pidfd: &OwnedFd, far_ino: [u64; 2]) -> Result<Plan, Refusal> {
    let stdin = original(take(pidfd, 0))?;
    let stdout = original(take(pidfd, 1))?;
    if !readable(stdin.flags) || !writable(stdout.flags) {
        return Err(Refusal::Shape);
    }
    let same = stdin.kind == stdout.kind && stdin.ino == stdout.ino;
    if same && stdin.kind == Kind::Pipe {
        return Err(Refusal::Shape);
    }
    let links = procs::fd_links(pid);
    let is = |link: &&FdLink, at: u32| link.fd == at;
    let own = links.iter().find(|link| is(link, 0)).copied();
    let of_parent = link_of(parent, 0);
    if own.is_some() && own.map(|l| (l.kind, l.ino)) == of_parent.map(|l| (l.kind, l.ino)) {
        return Err(Refusal::StdinOfParent);
    }
    let mut places = places(&links, pidfd, [&stdin, &stdout], same, far_ino);
    places.sort_by_key(|place| place.fd);
    Ok(Plan {
        stdin,
        stdout,
        one_socket: same,
        places,
    })
}

fn places(
    links: &[FdLink],
    pidfd: &OwnedFd,
    originals: [&Original; 2],
    one_socket: bool,
    far_ino: [u64; 2],
) -> Vec<Place> {
    let place = |link: &FdLink| {
        for (at, original) in originals.iter().enumerate() {
            let pair = if one_socket { 0 } else { at };
            let kind = link_kind(original.kind);
            if link.kind == kind && link.ino == original.ino {
                let end = match original.kind {
                    Kind::Socket => End::Near,
                    // Both ends of a pipe have one number: the way it is open tells which this is.
                    Kind::Pipe if link.fd <= 2 && link.fd as usize == at => End::Near,
                    Kind::Pipe => {
                        let flags = take(pidfd, link.fd).ok().and_then(|fd| flags_of(&fd).ok())?;
                        if (at == 0) == readable(flags) {
                            End::Near
                        } else {
                            End::Far
                        }
                    }
                };
                return Some(Place {
                    fd: link.fd,
                    pair,
                    end,
                });
            }
            if original.kind == Kind::Socket
                && link.kind == kind
                && far_ino[at] != 0
                && link.ino == far_ino[at]
            {
                return Some(Place {
                    fd: link.fd,
                    pair,
                    end: End::Far,
                });
            }
        }
        None
    };
    links.iter().filter_map(place).collect()
}

const fn link_kind(kind: Kind) -> FdKind {
    match kind {
        Kind::Pipe => FdKind::Pipe,
        // What procfs says of any socket.
        Kind::Socket => FdKind::SocketOther,
    }
}

fn link_of(pid: u32, fd: u32) -> Option<FdLink> {
    procs::fd_link(pid, fd).filter(|link| link.ino != 0)
}

fn readable(flags: OFlag) -> bool {
    (flags & OFlag::O_ACCMODE) != OFlag::O_WRONLY
}

fn writable(flags: OFlag) -> bool {
    (flags & OFlag::O_ACCMODE) != OFlag::O_RDONLY
}

fn flags_of(fd: &OwnedFd) -> nix::Result<OFlag> {
    fcntl(fd, FcntlArg::F_GETFL).map(OFlag::from_bits_retain)
}

/// Our copy of a target's descriptor.
pub(super) fn take(pidfd: &OwnedFd, fd: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only; the pidfd is open.
    let returned = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) };
    procs::new_fd(returned).ok_or_else(io::Error::last_os_error)
}

fn original(taken: io::Result<OwnedFd>) -> Result<Original, Refusal> {
    let fd = taken.map_err(|error| match error.raw_os_error() {
        Some(libc::EBADF) => Refusal::Shape,
        other => Refusal::Failed(other.unwrap_or(libc::EIO)),
    })?;
    let failed = |error: nix::Error| Refusal::Failed(error as i32);
    let stat = fstat(&fd).map_err(failed)?;
    let flags = flags_of(&fd).map_err(failed)?;
    let kind = match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFIFO if (flags & OFlag::O_ACCMODE) != OFlag::O_RDWR => Kind::Pipe,
        SFlag::S_IFSOCK if is_unix_stream(&fd) => Kind::Socket,
        _ => return Err(Refusal::Shape),
    };
    Ok(Original {
        fd,
        kind,
        ino: stat.st_ino,
        flags,
    })
}

fn is_unix_stream(fd: &OwnedFd) -> bool {
    let ask = |option: i32| {
        let mut value: i32 = 0;
        let mut len = libc::socklen_t::try_from(size_of::<i32>()).unwrap_or(4);
        // SAFETY: `value` and `len` are valid, and `len` says how long `value` is.
        let returned = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw mut value).cast(),
                &raw mut len,
            )
        };
        (returned == 0).then_some(value)
    };
    ask(libc::SO_DOMAIN) == Some(libc::AF_UNIX) && ask(libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

/// A description of our own of the same pipe, non-blocking. Where that cannot be had (a named FIFO without a reader) the
/// shared one is returned as it is.
pub(super) fn own_description(fd: OwnedFd, write: bool) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let mut options = std::fs::OpenOptions::new();
    options.read(!write).write(write);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.open(path).map_or(fd, OwnedFd::from)
}

/// Gives a new pipe the size of the original.
pub(super) fn same_size(original: &OwnedFd, new: &OwnedFd) {
    let (Ok(wanted), Ok(has)) = (
        fcntl(original, FcntlArg::F_GETPIPE_SZ),
        fcntl(new, FcntlArg::F_GETPIPE_SZ),
    ) else {
        return;
    };
    if wanted != has {
        // Less room than the original had is slower, not wrong.
        let _as_it_is = fcntl(new, FcntlArg::F_SETPIPE_SZ(wanted));
    }
}
