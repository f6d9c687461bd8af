//! What a relay and the engine say to each other: packets on an AF_UNIX SEQPACKET socket.
//!
//! A packet is one byte for its kind, a fixed head and a body. A body too large for a packet travels in a memfd that
//! is sent along. Kinds that a side does not know are passed over, members of JSON bodies that it does not know too,
//! so that a relay outlives upgrades of the daemon by days. `Hello` and `Welcome` carry a version for what cannot be
//! done that way.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::fail::{FailMode, Why};

/// Version of this protocol.
pub const VERSION: u32 = 1;
/// Bodies up to this many bytes travel inside the packet.
pub const INLINE: usize = 96 << 10;
/// Room for the largest packet.
pub const PACKET: usize = INLINE + 64;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From the agent to the server.
    ToServer,
    /// From the server to the agent.
    ToAgent,
}

impl Way {
    /// The other way.
    #[must_use]
    pub const fn back(self) -> Self {
        match self {
            Self::ToServer => Self::ToAgent,
            Self::ToAgent => Self::ToServer,
        }
    }

    /// 0 or 1.
    pub const fn index(self) -> usize {
        match self {
            Self::ToServer => 0,
            Self::ToAgent => 1,
        }
    }

    const fn of(byte: u8) -> Self {
        if byte == 0 { Self::ToServer } else { Self::ToAgent }
    }
}

/// Whom a relay serves.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Meta {
    /// Unique name of this relay on the host.
    pub relay: String,
    /// User id of agent and server.
    pub uid: u32,
    /// Login name.
    pub user: String,
    /// Name of the agent.
    pub agent: String,
    /// Its process.
    pub agent_pid: u32,
    /// When that process started, nanoseconds since boot.
    pub agent_start: u64,
    /// Identity of the server.
    pub server: String,
    /// Its process.
    pub server_pid: u32,
    /// When that process started, nanoseconds since boot; 0 for unknown.
    pub server_start: u64,
    /// Nothing but its first line can say whether it is an MCP server.
    pub candidate: bool,
    /// The streams are AF_UNIX sockets, not pipes.
    pub socket: bool,
    /// The engine's number of this server instance; 0 where it has none yet.
    pub server_id: u64,
}

/// The first packet of a relay on each connection.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Hello {
    /// [`VERSION`] of the relay.
    pub version: u32,
    /// Whom it serves.
    pub meta: Meta,
    /// Messages have passed before this connection.
    #[serde(default)]
    pub resumed: bool,
    /// What an engine that was not there must know to understand what follows: the handshake, and requests without an
    /// answer in short form. It is not judged.
    #[serde(default)]
    pub before: Vec<Before>,
}

/// A message from before the connection.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Before {
    /// Which way it went.
    pub way: Way,
    /// Its text, or a short form of it.
    pub line: String,
}

/// The engine's answer to [`Hello`], sent again when something in it changes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Welcome {
    /// [`VERSION`] of the engine.
    pub version: u32,
    /// What to do with messages that nobody judged.
    pub fail: FailMode,
    /// Longest message that is inspected, in bytes.
    pub limit: usize,
    /// Pass everything without asking (`kams off`).
    #[serde(default)]
    pub idle: bool,
    /// Results have `resultType` (2026-07-28).
    #[serde(default)]
    pub typed_results: bool,
    /// A better name for the server: the next engine is told this one.
    #[serde(default)]
    pub server: Option<String>,
}

/// Messages that were not judged, told as soon as somebody listens.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Unjudged {
    /// Why.
    pub why: Why,
    /// What was done.
    pub mode: FailMode,
    /// Which way they went.
    pub way: Way,
    /// How many.
    pub count: u64,
    /// Their bytes together.
    pub bytes: u64,
    /// Method of the first, where it had one.
    #[serde(default)]
    pub method: Option<String>,
    /// What the first named: a tool, a prompt.
    #[serde(default)]
    pub subject: Option<String>,
}

/// A message to be judged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frame {
    /// Which way it goes.
    pub way: Way,
    /// Number of the message in this relay.
    pub seq: u64,
    /// Its length in bytes, newline included; of an oversized one what there was of it.
    pub length: u64,
    /// The stream ended without a newline.
    pub unterminated: bool,
    /// Longer than what is inspected: only its beginning is sent.
    pub oversize: bool,
}

/// What a relay says.
#[derive(Debug)]
pub enum FromRelay {
    /// First of all.
    Hello(Box<Hello>),
    /// A message; its text is the packet's body.
    Frame(Frame),
    /// What was not judged.
    Unjudged(Unjudged),
    /// The connection of agent and server is over.
    Bye,
}

/// What becomes of a message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Onward {
    /// It goes on as it is.
    #[default]
    Same,
    /// This goes on in its place.
    Instead(Vec<u8>),
    /// Nothing goes on.
    Nothing,
}

/// A decision about one message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// What goes on.
    pub onward: Onward,
    /// What is sent back to where the message came from; empty for nothing.
    pub back: Vec<u8>,
}

/// What the engine says.
#[derive(Debug)]
pub enum FromEngine {
    /// Settings.
    Welcome(Welcome),
    /// A decision, also about a message that was held.
    Verdict(u64, Verdict),
    /// The relay refuses the message by itself: the engine did not see all of it.
    Refuse(u64, String),
    /// The message steps out of the line until a decision comes; after so many milliseconds without one it is
    /// refused with this text.
    Hold(u64, u64, String),
    /// A message of the engine's own.
    Inject(Way, Vec<u8>),
    /// Close both sides.
    End,
}

/// What cannot be read. The connection is of no use after it.
#[derive(Debug, thiserror::Error)]
#[error("a packet that cannot be read: {0}")]
pub struct BadPacket(&'static str);

/// Sends one packet, whole or not at all; `WouldBlock` where the other side is behind.
pub fn send(socket: BorrowedFd<'_>, head: &[u8], body: &[u8]) -> io::Result<()> {
    if body.len() <= INLINE {
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(socket, &parts, &mut SendAncillaryBuffer::default(), flags)?;
        return Ok(());
    }
    let memory = memfd_create("kams-message", MemfdFlags::CLOEXEC)?;
    let mut at = 0;
    while let Some(rest) = body.get(at..).filter(|rest| !rest.is_empty()) {
        at += rustix::io::pwrite(&memory, rest, at as u64)?;
    }
    send_with(socket, head, &[memory.as_fd()])
}

/// Sends a small packet with descriptors.
pub fn send_with(socket: BorrowedFd<'_>, head: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(fds));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(head)], &mut control, flags)?;
    Ok(())
}

/// Receives one packet into `buffer`, which holds [`PACKET`] bytes; none at the end of the connection.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let mut fds = Vec::new();
    for item in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = item {
            fds.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::TRUNC) || message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet was cut"));
    }
    Ok((message.bytes > 0).then_some((message.bytes, fds)))
}

/// The body of a packet: what stands in it after the head, or the memfd that came along.
pub fn body<'p>(rest: &'p [u8], fds: &[OwnedFd], room: &'p mut Vec<u8>) -> io::Result<&'p [u8]> {
    let Some(memory) = fds.first() else {
        return Ok(rest);
    };
    let size = usize::try_from(rustix::fs::fstat(memory)?.st_size).unwrap_or(0);
    room.clear();
    room.reserve_exact(size);
    while room.len() < size {
        let at = room.len() as u64;
        let read = match rustix::io::pread(memory, rustix::buffer::spare_capacity(room), at) {
            Err(Errno::INTR) => continue,
            read => read?,
        };
        if read == 0 {
            break;
        }
    }
    room.truncate(size);
    Ok(room)
}

fn json<T: Serialize>(kind: u8, value: &T) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend(serde_json::to_vec(value).unwrap_or_default());
    out
}

impl Hello {
    /// The packet, as head and body.
    pub fn packet(&self) -> (Vec<u8>, Vec<u8>) {
        (vec![b'H'], serde_json::to_vec(self).unwrap_or_default())
    }
}

impl Frame {
    const HEAD: usize = 19;

    /// The packet's head; the text follows it.
    pub fn head(&self) -> [u8; Self::HEAD] {
        let mut out = [0; Self::HEAD];
        out[0] = b'F';
        out[1] = u8::from(self.way == Way::ToAgent);
        out[2] = u8::from(self.unterminated) | u8::from(self.oversize) << 1;
        out[3..11].copy_from_slice(&self.seq.to_le_bytes());
        out[11..].copy_from_slice(&self.length.to_le_bytes());
        out
    }
}

impl Unjudged {
    /// The packet.
    pub fn packet(&self) -> Vec<u8> {
        json(b'U', self)
    }
}

/// The packet that ends a connection.
pub const BYE: [u8; 1] = *b"B";

/// Reads what a relay sent; the second part is the body.
pub fn from_relay<'p>(
    packet: &'p [u8],
    fds: &[OwnedFd],
    room: &'p mut Vec<u8>,
) -> Result<Option<(FromRelay, &'p [u8])>, BadPacket> {
    let (kind, rest) = packet.split_first().ok_or(BadPacket("empty"))?;
    let cut = |at: usize| {
        rest.split_at_checked(at)
            .ok_or(BadPacket("its head is cut short"))
    };
    let unreadable = |_: io::Error| BadPacket("its body");
    Ok(Some(match kind {
        b'F' => {
            let (head, rest) = cut(Frame::HEAD - 1)?;
            let frame = Frame {
                way: Way::of(head[0]),
                unterminated: head[1] & 1 != 0,
                oversize: head[1] & 2 != 0,
                seq: number(head, 2),
                length: number(head, 10),
            };
            (
                FromRelay::Frame(frame),
                body(rest, fds, room).map_err(unreadable)?,
            )
        }
        b'H' => {
            let text = body(rest, fds, room).map_err(unreadable)?;
            let hello = serde_json::from_slice(text).map_err(|_bad| BadPacket("hello"))?;
            (FromRelay::Hello(Box::new(hello)), &[])
        }
        b'U' => {
            let told = serde_json::from_slice(rest).map_err(|_bad| BadPacket("unjudged"))?;
            (FromRelay::Unjudged(told), &[])
        }
        b'B' => (FromRelay::Bye, &[]),
        _ => return Ok(None),
    }))
}

impl FromEngine {
    /// The packet, as head and body.
    pub fn packet(&self) -> (Vec<u8>, Vec<u8>) {
        match self {
            Self::Welcome(welcome) => (json(b'W', welcome), Vec::new()),
            Self::Verdict(seq, verdict) => {
                let (how, onward): (u8, &[u8]) = match &verdict.onward {
                    Onward::Same => (0, &[]),
                    Onward::Nothing => (1, &[]),
                    Onward::Instead(bytes) => (2, bytes),
                };
                let mut head = vec![b'V', how];
                head.extend(seq.to_le_bytes());
                head.extend((onward.len() as u64).to_le_bytes());
                (head, [onward, &verdict.back].concat())
            }
            Self::Refuse(seq, text) => {
                let mut head = vec![b'R'];
                head.extend(seq.to_le_bytes());
                (head, text.clone().into_bytes())
            }
            Self::Hold(seq, millis, text) => {
                let mut head = vec![b'K'];
                head.extend(seq.to_le_bytes());
                head.extend(millis.to_le_bytes());
                (head, text.clone().into_bytes())
            }
            Self::Inject(way, line) => (vec![b'I', u8::from(*way == Way::ToAgent)], line.clone()),
            Self::End => (vec![b'E'], Vec::new()),
        }
    }

    /// Reads what the engine sent.
    pub fn read(packet: &[u8], fds: &[OwnedFd]) -> Result<Option<Self>, BadPacket> {
        let (kind, rest) = packet.split_first().ok_or(BadPacket("empty"))?;
        let cut = |at: usize| {
            rest.split_at_checked(at)
                .ok_or(BadPacket("its head is cut short"))
        };
        let mut room = Vec::new();
        let mut read = |rest| match body(rest, fds, &mut room) {
            Ok(bytes) => Ok(bytes.to_vec()),
            Err(_) => Err(BadPacket("its body")),
        };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_bad| BadPacket("its text"));
        Ok(Some(match kind {
            b'V' => {
                let (head, rest) = cut(17)?;
                let onward = usize::try_from(number(head, 9)).unwrap_or(usize::MAX);
                let mut bytes = if rest.is_empty() && fds.is_empty() {
                    Vec::new()
                } else {
                    read(rest)?
                };
                if onward > bytes.len() {
                    return Err(BadPacket("its body is cut short"));
                }
                let back = bytes.split_off(onward);
                let onward = match head[0] {
                    0 => Onward::Same,
                    1 => Onward::Nothing,
                    _ => Onward::Instead(bytes),
                };
                Self::Verdict(number(head, 1), Verdict { onward, back })
            }
            b'W' => Self::Welcome(serde_json::from_slice(rest).map_err(|_bad| BadPacket("welcome"))?),
            b'R' => {
                let (head, rest) = cut(8)?;
                Self::Refuse(number(head, 0), text(read(rest)?)?)
            }
            b'K' => {
                let (head, rest) = cut(16)?;
                Self::Hold(number(head, 0), number(head, 8), text(read(rest)?)?)
            }
            b'I' => {
                let (head, rest) = cut(1)?;
                Self::Inject(Way::of(head[0]), read(rest)?)
            }
            b'E' => Self::End,
            _ => return Ok(None),
        }))
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok());
    u64::from_le_bytes(eight.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap()
    }

    fn through(message: &FromEngine) -> FromEngine {
        let (near, far) = pair();
        let (head, body) = message.packet();
        send(near.as_fd(), &head, &body).unwrap();
        let mut buffer = vec![0; PACKET];
        let (length, fds) = receive(far.as_fd(), &mut buffer).unwrap().unwrap();
        FromEngine::read(&buffer[..length], &fds).unwrap().unwrap()
    }

    #[test]
    fn verdicts_of_any_size_come_through() {
        for size in [0, 1, INLINE, INLINE + 1, 3 << 20] {
            for onward in [Onward::Same, Onward::Nothing, Onward::Instead(vec![b'x'; size])] {
                let verdict = Verdict {
                    onward,
                    back: vec![b'y'; size / 2],
                };
                let FromEngine::Verdict(9, back) = through(&FromEngine::Verdict(9, verdict.clone())) else {
                    panic!("not a verdict")
                };
                assert_eq!(back, verdict);
            }
        }
        let held = through(&FromEngine::Hold(3, 300_000, "why".into()));
        assert!(matches!(held, FromEngine::Hold(3, 300_000, text) if text == "why"));
    }

    #[test]
    fn frames_of_any_size_come_through() {
        for size in [0, INLINE, INLINE + 1, 5 << 20] {
            let (near, far) = pair();
            let frame = Frame {
                way: Way::ToAgent,
                seq: u64::MAX - 1,
                length: size as u64,
                unterminated: true,
                oversize: false,
            };
            let text = vec![b'z'; size];
            send(near.as_fd(), &frame.head(), &text).unwrap();
            let mut buffer = vec![0; PACKET];
            let (length, fds) = receive(far.as_fd(), &mut buffer).unwrap().unwrap();
            let mut room = Vec::new();
            let (got, body) = from_relay(&buffer[..length], &fds, &mut room).unwrap().unwrap();
            assert!(matches!(got, FromRelay::Frame(got) if got == frame));
            assert_eq!(body, text);
        }
    }

    #[test]
    fn what_is_unknown_is_passed_over_and_what_is_cut_is_refused() {
        let mut room = Vec::new();
        assert!(from_relay(b"?later", &[], &mut room).unwrap().is_none());
        assert!(FromEngine::read(b"?later", &[]).unwrap().is_none());
        assert!(FromEngine::read(b"V12", &[]).is_err());
        assert!(from_relay(b"F1", &[], &mut room).is_err());
        let later = br#"W{"version":7,"fail":"closed","limit":5,"colour":"blue"}"#;
        let welcome = FromEngine::read(later, &[]).unwrap().unwrap();
        assert!(matches!(welcome, FromEngine::Welcome(w) if w.fail == FailMode::Closed && w.version == 7));
    }
}
