//! One end of a stream that the relay holds: a pipe or an AF_UNIX socket.
//!
//! `O_NONBLOCK` belongs to the open file description, which others may share (a wrapper shell, the agent): it is
//! never set on a description that may be shared. A pipe is opened anew where that is allowed; where it is not, and
//! for sockets, each call by itself does not wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// What a pipe that is ready takes without waiting (PIPE_BUF).
const ATOMIC: usize = 4_096;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Its own description, not waiting.
    Own,
    /// A description that may be shared: asked before each call.
    Shared,
    Socket,
}

/// An end.
#[derive(Debug)]
pub struct End {
    fd: OwnedFd,
    kind: Kind,
    /// The other direction goes through the same socket.
    duplex: bool,
}

/// Result of a call that does not wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moved {
    /// So many bytes.
    Bytes(usize),
    /// Nothing now.
    Later,
    /// The other side is gone, or has ended.
    Over,
}

impl End {
    /// Takes an end. `sole`: nobody else has its description.
    pub fn new(fd: OwnedFd, sole: bool) -> io::Result<Self> {
        let stat = fstat(&fd)?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => Kind::Socket,
            FileType::Fifo if sole => {
                fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
                Kind::Own
            }
            FileType::Fifo => {
                if let Some(fd) = reopened(&fd) {
                    return Ok(Self {
                        fd,
                        kind: Kind::Own,
                        duplex: false,
                    });
                }
                Kind::Shared
            }
            _ => Kind::Shared,
        };
        Ok(Self {
            fd,
            kind,
            duplex: false,
        })
    }

    /// Notes that two ends are one socket.
    pub fn pair_up(&mut self, other: &mut Self) -> io::Result<()> {
        if self.kind == Kind::Socket && other.kind == Kind::Socket {
            let (a, b) = (fstat(&self.fd)?, fstat(&other.fd)?);
            let same = (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
            self.duplex = same;
            other.duplex = same;
        }
        Ok(())
    }

    /// Whether it is a socket.
    pub fn is_socket(&self) -> bool {
        self.kind == Kind::Socket
    }

    /// Reads what is there, at most `most` bytes, to the end of `into`.
    pub fn read(&self, into: &mut Vec<u8>, most: usize) -> io::Result<Moved> {
        into.reserve(most);
        let room = rustix::buffer::spare_capacity(into);
        let read = match self.kind {
            Kind::Socket => recv(&self.fd, room, RecvFlags::DONTWAIT).map(|(read, _)| read),
            Kind::Own => rustix::io::read(&self.fd, room),
            Kind::Shared if self.is_ready(PollFlags::IN)? => rustix::io::read(&self.fd, room),
            Kind::Shared => return Ok(Moved::Later),
        };
        match read {
            Ok(0) | Err(Errno::CONNRESET) => Ok(Moved::Over),
            Ok(bytes) => Ok(Moved::Bytes(bytes)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Moved::Later),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes what goes in without waiting.
    pub fn write(&self, bytes: &[u8]) -> io::Result<Moved> {
        let wrote = match self.kind {
            Kind::Socket => send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Kind::Own => rustix::io::write(&self.fd, bytes),
            Kind::Shared if self.is_ready(PollFlags::OUT)? => {
                rustix::io::write(&self.fd, bytes.get(..ATOMIC).unwrap_or(bytes))
            }
            Kind::Shared => return Ok(Moved::Later),
        };
        match wrote {
            Ok(bytes) => Ok(Moved::Bytes(bytes)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Moved::Later),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Ok(Moved::Over),
            Err(error) => Err(error.into()),
        }
    }

    /// Nothing more will be read from it.
    pub fn close_reading(self) {
        self.close(Shutdown::Read);
    }

    /// Nothing more will be written to it.
    pub fn close_writing(self) {
        self.close(Shutdown::Write);
    }

    fn close(self, how: Shutdown) {
        // Where the other side is gone already there is nothing left to say.
        if self.duplex && shutdown(&self.fd, how).is_err() {}
    }

    fn is_ready(&self, what: PollFlags) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.fd, what)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&now)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The same pipe under a description of our own that does not wait; none where it is no pipe, or the file system's
/// permissions refuse it. Root is not refused: who hands ends to a relay without privilege opens them anew first.
pub fn reopened(fd: &OwnedFd) -> Option<OwnedFd> {
    if FileType::from_raw_mode(fstat(fd).ok()?.st_mode) != FileType::Fifo {
        return None;
    }
    let access = fcntl_getfl(fd).ok()? & OFlags::ACCMODE;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
    open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()
}
