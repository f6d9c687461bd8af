//! A relay in a thread, the agent's and the server's ends, and the engine's end of its link.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use kams_relay::relay::{Ended, LIMIT};
use kams_relay::wire::{self, FromEngine, FromRelay, Meta, PACKET, Verdict};
use kams_relay::{Connector, Ends, FailMode, Relay, Settings};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
};

/// How the four streams are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Pipes,
    /// Two sockets a side, as Node makes them.
    Sockets,
    /// One socket a side.
    OneSocket,
}

pub(crate) const FORMS: [Form; 3] = [Form::Pipes, Form::Sockets, Form::OneSocket];

/// The outer ends of a relay.
pub(crate) struct Rig {
    pub(crate) agent_out: Option<File>,
    pub(crate) agent_in: Option<File>,
    pub(crate) server_in: Option<File>,
    pub(crate) server_out: Option<File>,
    pub(crate) relay: Option<JoinHandle<Ended>>,
}

pub(crate) struct Options {
    pub(crate) form: Form,
    pub(crate) fail: FailMode,
    pub(crate) limit: usize,
    pub(crate) server_ended: Option<OwnedFd>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            form: Form::Pipes,
            fail: FailMode::Open,
            limit: LIMIT,
            server_ended: None,
        }
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    (a.into(), b.into())
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let (a, b) = std::io::pipe().unwrap();
    (a.into(), b.into())
}

impl Rig {
    pub(crate) fn new(options: Options, connector: Connector) -> Self {
        // Each as (agent or server reads, writes, relay reads, relay writes).
        let side = || match options.form {
            Form::Pipes => {
                let ((relay_reads, writes), (reads, relay_writes)) = (pipe(), pipe());
                (reads, writes, relay_reads, relay_writes)
            }
            Form::Sockets => {
                let ((relay_reads, writes), (reads, relay_writes)) = (pair(), pair());
                (reads, writes, relay_reads, relay_writes)
            }
            Form::OneSocket => {
                let (relay, own) = pair();
                let (relay_too, own_too) = (relay.try_clone().unwrap(), own.try_clone().unwrap());
                (own, own_too, relay, relay_too)
            }
        };
        let (agent_in, agent_out, from_agent, to_agent) = side();
        let (server_in, server_out, from_server, to_server) = side();
        let ends = Ends {
            from_agent,
            to_agent,
            to_server,
            from_server,
            sole: false,
        };
        let settings = Settings {
            meta: Meta {
                relay: "test".into(),
                ..Meta::default()
            },
            fail: options.fail,
            limit: options.limit,
            server_ended: options.server_ended,
        };
        let mut relay = Relay::new(ends, settings, connector).unwrap();
        Self {
            agent_out: Some(agent_out.into()),
            agent_in: Some(agent_in.into()),
            server_in: Some(server_in.into()),
            server_out: Some(server_out.into()),
            relay: Some(std::thread::spawn(move || relay.run().unwrap())),
        }
    }

    /// Relay with a link to an engine whose end is given.
    pub(crate) fn linked(options: Options) -> (Self, OwnedFd) {
        let (near, far) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        (Self::new(options, Connector::Given(near, None)), far)
    }

    pub(crate) fn agent_says(&mut self, text: &str) {
        self.agent_out
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    pub(crate) fn server_says(&mut self, text: &str) {
        self.server_out
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    pub(crate) fn agent_hears(&mut self) -> String {
        line(self.agent_in.as_mut().unwrap())
    }

    pub(crate) fn server_hears(&mut self) -> String {
        line(self.server_in.as_mut().unwrap())
    }

    pub(crate) fn join(&mut self) -> Ended {
        self.relay.take().unwrap().join().unwrap()
    }

    /// Shuts one direction of an outer end, also where both are one socket.
    pub(crate) fn hang_up(file: &mut Option<File>, how: rustix::net::Shutdown) {
        let file = file.take().unwrap();
        if rustix::net::shutdown(&file, how).is_err() {
            drop(file);
        }
    }
}

/// One line, newline included; what there is at the end of the stream.
pub(crate) fn line(from: &mut File) -> String {
    let mut out = Vec::new();
    let mut byte = [0];
    while !out.ends_with(b"\n") && from.read(&mut byte).unwrap() > 0 {
        out.push(byte[0]);
    }
    String::from_utf8(out).unwrap()
}

/// The engine's end.
pub(crate) struct Engine {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Engine {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            buffer: vec![0; PACKET],
        }
    }

    /// The next packet, or none at the end.
    pub(crate) fn hear(&mut self) -> Option<(FromRelay, Vec<u8>)> {
        let mut fds = [rustix::event::PollFd::new(
            &self.socket,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut fds, None).unwrap();
        let (length, fds) = wire::receive(self.socket.as_fd(), &mut self.buffer).ok()??;
        let mut room = Vec::new();
        let read = wire::from_relay(&self.buffer[..length], &fds, &mut room);
        let (said, body) = read.unwrap().unwrap();
        Some((said, body.to_vec()))
    }

    /// The next message to be judged: its number and text.
    pub(crate) fn frame(&mut self) -> Option<(wire::Frame, Vec<u8>)> {
        loop {
            if let (FromRelay::Frame(frame), text) = self.hear()? {
                return Some((frame, text));
            }
        }
    }

    pub(crate) fn say(&mut self, message: &FromEngine) {
        let (head, body) = message.packet();
        loop {
            match wire::send(self.socket.as_fd(), &head, &body) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let out = rustix::event::PollFlags::OUT;
                    let mut fds = [rustix::event::PollFd::new(&self.socket, out)];
                    rustix::event::poll(&mut fds, None).unwrap();
                }
                _ => return,
            }
        }
    }

    /// Lets everything pass until the link ends.
    pub(crate) fn pass_all(mut self) -> JoinHandle<u64> {
        std::thread::spawn(move || {
            let mut count = 0;
            while let Some((frame, _)) = self.frame() {
                self.say(&FromEngine::Verdict(frame.seq, Verdict::default()));
                count += 1;
            }
            count
        })
    }
}

/// A socket on which relays find their engine.
pub(crate) fn listener(path: &Path) -> OwnedFd {
    drop(std::fs::remove_file(path));
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&socket, 16).unwrap();
    socket
}

pub(crate) fn accepted(listener: &OwnedFd) -> Engine {
    Engine::new(accept(listener).unwrap())
}

/// More than a message of a few bytes may wait, and less than a person does.
pub(crate) const SOON: Duration = Duration::from_millis(200);
