//! Who answers the questions of filters: a process of its own, `kams-relay holder`.
//!
//! A server under a filter that asks (`seccomp: notify`) waits in `socket()` until whoever has the filter's listener
//! answers, and gets ENOSYS when nobody has it any more. So the daemon, which is restarted and upgraded, does not keep
//! it. This process does, with one decision per server, and goes on with the last one it was told: whatever becomes
//! of the daemon, a server that was allowed stays allowed, and one that was cut off stays cut off.
//!
//! It is one thread with a bounded number of listeners. It has no privilege, a filter of its own, and nothing to read
//! of whoever asks: the answer depends on the listener alone. That is also why it need not look whether a question is
//! still valid before it answers: the kernel looks, and an answer to one who has ended goes nowhere.

pub mod client;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libseccomp::{ScmpNotifReq, ScmpNotifResp, ScmpNotifRespFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use serde::{Deserialize, Serialize};

use crate::wire::{self, PACKET};

/// Listeners that are kept at most; a server beyond them is started without.
pub const MOST: usize = 512;
/// Daemons that are connected at most: the old one and the new one of an upgrade, and one more.
const DAEMONS: usize = 3;
/// What a refused socket gets, as from a filter that refuses by itself.
const EACCES: i32 = 13;
/// How long the first order may take to come.
const FIRST: Duration = Duration::from_secs(30);

/// One filtered process.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Key {
    /// Process id of the image that was filtered.
    pub pid: u32,
    /// Its start, CLOCK_BOOTTIME ns.
    pub start: u64,
}

/// What is kept of one, as it is told.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Held {
    /// Whose listener.
    pub key: Key,
    /// Process id of the server as the daemon shows it: that of its launcher, where it has one.
    pub server: u32,
    /// Sockets are let through.
    pub allow: bool,
    /// Questions so far.
    pub asked: u64,
    /// Those that were refused.
    pub refused: u64,
}

/// What a daemon says.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
enum Order {
    /// Keep the listener that comes along.
    Keep { key: Key, server: u32, allow: bool },
    /// Decide so from now on; for one, or for all.
    Set { key: Option<Key>, allow: bool },
    /// Tell what is kept.
    List,
}

/// The answer to an order.
#[derive(Clone, Debug, Deserialize, Serialize)]
enum Answer {
    /// Done; for how many.
    Done(usize),
    /// There is no room, or no listener came along.
    Refused,
    /// What is kept.
    Held(Vec<Held>),
}

struct Listener {
    fd: OwnedFd,
    held: Held,
}

/// Runs until nobody is connected and nothing is kept. `door` is a SEQPACKET socket that listens.
pub fn serve(door: &OwnedFd) -> io::Result<()> {
    let mut this = Holder {
        daemons: Vec::new(),
        listeners: Vec::new(),
        buffer: vec![0; PACKET],
    };
    let mut first = true;
    loop {
        if !first && this.daemons.is_empty() && this.listeners.is_empty() {
            return Ok(());
        }
        let ready = this.wait(door.as_fd(), first.then_some(FIRST))?;
        if first && ready.iter().all(PollFlags::is_empty) {
            return Ok(());
        }
        let (of_daemons, of_listeners) = ready.split_at(1 + this.daemons.len());
        this.answer(of_listeners);
        this.obey(of_daemons.get(1..).unwrap_or_default());
        if of_daemons.first().is_some_and(|door| !door.is_empty()) {
            first &= !this.admit(door.as_fd());
        }
    }
}

struct Holder {
    daemons: Vec<OwnedFd>,
    listeners: Vec<Listener>,
    buffer: Vec<u8>,
}

impl Holder {
    /// Waits; what is ready: the door, the daemons, the listeners.
    fn wait(&self, door: BorrowedFd<'_>, limit: Option<Duration>) -> io::Result<Vec<PollFlags>> {
        let daemons = self.daemons.iter().map(AsFd::as_fd);
        let listeners = self.listeners.iter().map(|one| one.fd.as_fd());
        let mut fds: Vec<PollFd<'_>> = std::iter::once(door)
            .chain(daemons)
            .chain(listeners)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: 0,
        });
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(fds.iter().map(PollFd::revents).collect()),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers one question of each listener that has one, so that none keeps the others waiting; forgets those of
    /// which every process has ended.
    fn answer(&mut self, ready: &[PollFlags]) {
        let mut ready = ready.iter();
        self.listeners.retain_mut(|one| {
            let ready = ready.next().copied().unwrap_or(PollFlags::empty());
            if ready.contains(PollFlags::IN) {
                one.answer();
                return true;
            }
            !ready.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
        });
    }

    fn obey(&mut self, ready: &[PollFlags]) {
        let mut at = 0;
        for ready in ready {
            if ready.is_empty() || self.serve_one(at).is_some() {
                at += 1;
            } else {
                self.daemons.remove(at);
            }
        }
    }

    /// One order of one daemon; none when it is gone.
    fn serve_one(&mut self, at: usize) -> Option<()> {
        let socket = self.daemons.get(at)?;
        let (order, mut fds) = match wire::receive(socket.as_fd(), &mut self.buffer) {
            Ok(Some((length, fds))) => (
                self.buffer
                    .get(..length)
                    .and_then(|text| serde_json::from_slice(text).ok()),
                fds,
            ),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(()),
            Ok(None) | Err(_) => return None,
        };
        let answer = match order {
            Some(Order::Keep { key, server, allow }) => self.keep(key, server, allow, fds.pop()),
            Some(Order::Set { key, allow }) => self.set(key, allow),
            Some(Order::List) => Answer::Held(self.listeners.iter().map(|one| one.held).collect()),
            None => Answer::Refused,
        };
        let text = serde_json::to_vec(&answer).ok()?;
        let socket = self.daemons.get(at)?;
        wire::send(socket.as_fd(), &text, &[]).ok()
    }

    fn keep(&mut self, key: Key, server: u32, allow: bool, fd: Option<OwnedFd>) -> Answer {
        let Some(fd) = fd.filter(|_| self.listeners.len() < MOST) else {
            return Answer::Refused;
        };
        let held = Held {
            key,
            server,
            allow,
            asked: 0,
            refused: 0,
        };
        self.listeners.push(Listener { fd, held });
        Answer::Done(1)
    }

    fn set(&mut self, key: Option<Key>, allow: bool) -> Answer {
        let mut count = 0;
        for one in &mut self.listeners {
            if key.is_none_or(|key| key == one.held.key) {
                one.held.allow = allow;
                count += 1;
            }
        }
        Answer::Done(count)
    }

    /// Lets a daemon in; whether that happened. Others than root have no say.
    fn admit(&mut self, door: BorrowedFd<'_>) -> bool {
        let Ok(socket) = accept_with(door, SocketFlags::CLOEXEC) else {
            return false;
        };
        let root = rustix::net::sockopt::socket_peercred(&socket).is_ok_and(|peer| peer.uid.is_root());
        if !root || self.daemons.len() >= DAEMONS {
            return false;
        }
        self.daemons.push(socket);
        true
    }
}

impl Listener {
    fn answer(&mut self) {
        let fd = self.fd.as_raw_fd();
        // One whose asker was killed meanwhile is none.
        let Ok(question) = ScmpNotifReq::receive(fd) else {
            return;
        };
        self.held.asked += 1;
        let answer = if self.held.allow {
            // The family is in a register: what continues is what was asked about.
            ScmpNotifResp::new_continue(question.id, ScmpNotifRespFlags::empty())
        } else {
            self.held.refused += 1;
            ScmpNotifResp::new_error(question.id, -EACCES, ScmpNotifRespFlags::empty())
        };
        // Fails only where the asker has ended, or went on by a signal and will ask again.
        let _ended = answer.respond(fd);
    }
}
