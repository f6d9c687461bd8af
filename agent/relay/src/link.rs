//! The connection to the engine: made, lost, made again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::wire::{self, FromEngine, PACKET};

/// First and longest pause between attempts.
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);

/// How the engine is reached.
#[derive(Debug)]
pub enum Connector {
    /// A SEQPACKET socket at this path, again and again.
    Path(PathBuf),
    /// This connection, then the path if there is one.
    Given(OwnedFd, Option<PathBuf>),
    /// There is none: bytes are copied.
    Nobody,
}

#[derive(Debug)]
pub(crate) struct Link {
    given: Option<OwnedFd>,
    path: Option<PathBuf>,
    socket: Option<OwnedFd>,
    /// The engine is behind: nothing is sent until its socket takes more.
    pub(crate) blocked: bool,
    next_try: Option<Instant>,
    pause: Duration,
    buffer: Vec<u8>,
}

impl Link {
    pub(crate) fn new(connector: Connector, now: Instant) -> Self {
        let (given, path) = match connector {
            Connector::Path(path) => (None, Some(path)),
            Connector::Given(fd, path) => (Some(fd), path),
            Connector::Nobody => (None, None),
        };
        let some = given.is_some() || path.is_some();
        Self {
            given,
            path,
            socket: None,
            blocked: false,
            next_try: some.then_some(now),
            pause: FIRST,
            buffer: vec![0; PACKET],
        }
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    pub(crate) const fn is_up(&self) -> bool {
        self.socket.is_some()
    }

    pub(crate) const fn next_try(&self) -> Option<Instant> {
        self.next_try
    }

    /// Tries to connect if it is time; whether there is a new connection.
    pub(crate) fn connect(&mut self, now: Instant) -> bool {
        if self.socket.is_some() || self.next_try.is_none_or(|at| at > now) {
            return false;
        }
        if let Some(given) = self.given.take() {
            self.up(given);
            return true;
        }
        let Some(path) = &self.path else {
            self.next_try = None;
            return false;
        };
        if let Ok(socket) = connect_to(path) {
            self.up(socket);
            return true;
        }
        self.next_try = Some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST);
        false
    }

    fn up(&mut self, socket: OwnedFd) {
        self.socket = Some(socket);
        self.blocked = false;
        self.next_try = None;
        self.pause = FIRST;
    }

    /// The connection is of no use any more.
    pub(crate) fn down(&mut self, now: Instant) {
        self.socket = None;
        self.blocked = false;
        self.next_try = Some(now + self.pause);
    }

    /// Sends a packet; whether it is on its way.
    pub(crate) fn send(&mut self, head: &[u8], body: &[u8], now: Instant) -> bool {
        let Some(socket) = self.socket() else { return false };
        match wire::send(socket, head, body) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.blocked = true;
                false
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
            Err(_) => {
                self.down(now);
                false
            }
        }
    }

    /// The next packet that is there.
    pub(crate) fn receive(&mut self, now: Instant) -> Option<FromEngine> {
        loop {
            let socket = self.socket.as_ref()?.as_fd();
            match wire::receive(socket, &mut self.buffer) {
                Ok(Some((length, fds))) => {
                    let packet = self.buffer.get(..length).unwrap_or_default();
                    match FromEngine::read(packet, &fds) {
                        Ok(Some(said)) => return Some(said),
                        Ok(None) => {}
                        Err(_) => {
                            self.down(now);
                            return None;
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => {
                    self.down(now);
                    return None;
                }
            }
        }
    }
}

/// Whether somebody listens for relays at this path.
pub fn reaches(path: &Path) -> bool {
    connect_to(path).is_ok()
}

fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
