//! Relays on their sockets: who they are, what they ask, what they are told.
//!
//! Whatever thread owns the judge owns this too and calls [`Verdicts::serve`] again and again; nothing here waits for
//! one relay while another has something to say.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kams_mcp::Nanos;
use kams_policy::{Policy, Remedy};
use kams_relay::wire::{self, FromEngine, FromRelay, Hello, Meta, PACKET, Verdict, Welcome};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::relayed::{Effect, Relayed};
use crate::discover::opening::{Opened, Opening};
use crate::engine::conversation::{Party, ToWall};
use crate::engine::judge::Judge;
use crate::engine::sink::Sink;

/// Numbers of the listening socket and of the owner's waker among what is polled.
const LISTENER: u64 = 0;
const WAKER: u64 = 1;
/// Packets of one relay before others get their turn.
const TURN: usize = 32;
/// Packets that wait for a relay that does not read; more, and its connection is closed.
const MOST_WAITING: usize = 4_096;

/// Who is at the other end of a socket, as the kernel says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// User id.
    pub uid: u32,
    /// Process.
    pub pid: u32,
}

/// What the owner knows of relays: whom they serve, and what is to be shown of them.
pub trait Parties: Send {
    /// Whose relay it is, by what it says of itself and who the kernel says it is; none refuses it.
    fn party(&mut self, meta: &Meta, peer: Peer) -> Option<Party>;
    /// Who can do something about a refusal.
    fn remedy(&self) -> Remedy {
        Remedy::Administrator
    }
    /// MCP is spoken on a connection, which is judged from now on.
    fn opened(&mut self, _relayed: &Relayed, _sink: &mut dyn Sink) {}
    /// A server has better names.
    fn renamed(&mut self, _server: u64, _identity: &Arc<str>, _agent: &Arc<str>) {}
    /// Something was said.
    fn heard(&mut self, _relayed: &Relayed) {}
    /// A connection is over, or nobody's to judge any more.
    fn closed(&mut self, _relayed: &Relayed, _unsure: bool, _now: Nanos) {}
}

struct Connection {
    socket: OwnedFd,
    /// Whose it is; none before it said so, and where everything passes unseen.
    relayed: Option<Relayed>,
    /// What the agent says first, where only that tells whether it is MCP.
    opening: Option<Opening>,
    /// Everything passes: it is no MCP, or Kams is off.
    passes: bool,
    /// What the settings that were sent last were made of.
    made_of: Option<(Arc<Policy>, Arc<str>, bool)>,
    welcome: Option<Welcome>,
    waiting: VecDeque<(Vec<u8>, Vec<u8>)>,
}

/// All relays.
pub struct Verdicts {
    epoll: OwnedFd,
    listener: Option<OwnedFd>,
    connections: HashMap<u64, Connection>,
    next: u64,
    parties: Box<dyn Parties>,
    to_wall: ToWall,
    effects: Vec<Effect>,
    /// `kams off`: what comes passes.
    off: bool,
    /// The owner's waker ended a wait.
    woken: bool,
    buffer: Vec<u8>,
    room: Vec<u8>,
}

impl std::fmt::Debug for Verdicts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verdicts")
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}

/// What a serving needs.
pub struct Bench<'a> {
    /// Judges.
    pub judge: &'a mut Judge,
    /// Is told.
    pub sink: &'a mut dyn Sink,
    /// Nanoseconds since boot.
    pub now: fn() -> Nanos,
}

impl Verdicts {
    /// Nobody yet.
    pub fn new(parties: Box<dyn Parties>, to_wall: ToWall) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listener: None,
            connections: HashMap::new(),
            next: WAKER + 1,
            parties,
            to_wall,
            effects: Vec::new(),
            off: false,
            woken: false,
            buffer: vec![0; PACKET],
            room: Vec::new(),
        })
    }

    /// Relays find the engine at this path from now on. Whoever may open it may be judged; who they are the kernel
    /// says.
    pub fn listen(&mut self, path: &Path) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        match path.symlink_metadata() {
            Ok(meta) if !meta.file_type().is_socket() => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "something else stands there",
                ));
            }
            Ok(_) => std::fs::remove_file(path)?,
            Err(_) => {}
        }
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        // Everyone may connect: whose relay one is, the kernel says.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
        rustix::net::listen(&socket, 256)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
        self.listener = Some(socket);
        Ok(())
    }

    /// Takes a connection that was made elsewhere.
    pub fn add(&mut self, socket: OwnedFd) -> io::Result<()> {
        let number = self.next;
        self.next += 1;
        let data = epoll::EventData::new_u64(number);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
        let connection = Connection {
            socket,
            relayed: None,
            opening: None,
            passes: false,
            made_of: None,
            welcome: None,
            waiting: VecDeque::new(),
        };
        self.connections.insert(number, connection);
        Ok(())
    }

    /// Something else that ends a wait when it is readable, and is left as it is.
    pub fn wake_by(&self, waker: impl AsFd) -> io::Result<()> {
        let data = epoll::EventData::new_u64(WAKER);
        epoll::add(&self.epoll, waker, data, epoll::EventFlags::IN)?;
        Ok(())
    }

    /// Whether calls wait for a person: then [`Verdicts::settle`] is due a few times a second.
    pub fn holds(&self) -> bool {
        self.connections
            .values()
            .any(|one| one.relayed.as_ref().is_some_and(Relayed::holds))
    }

    /// Whether the waker ended a wait since the last call.
    pub fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.woken)
    }

    /// How many relays are connected.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// What policy wants done beyond messages, since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Answers what relays say, after waiting at most so long for them. Whether anything was said.
    pub fn serve(&mut self, limit: Duration, bench: &mut Bench<'_>) -> bool {
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let room = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.epoll, room, Some(&limit)).is_err() {
            return false;
        }
        for event in &events {
            let (number, flags) = (event.data.u64(), event.flags);
            if number == LISTENER {
                self.accept();
                continue;
            }
            if number == WAKER {
                self.woken = true;
                continue;
            }
            if flags.contains(epoll::EventFlags::OUT) {
                self.flush(number);
            }
            if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                self.hear(number, bench);
            }
        }
        !events.is_empty()
    }

    /// Looks whether calls that are held may go on, and tells relays of changed settings.
    pub fn settle(&mut self, bench: &mut Bench<'_>) {
        let numbers: Vec<u64> = self.connections.keys().copied().collect();
        for number in numbers {
            let Some(relayed) = self.relayed(number) else {
                continue;
            };
            let said = if relayed.holds() {
                relayed.settle(bench.judge, bench.sink, (bench.now)())
            } else {
                Vec::new()
            };
            for message in said {
                self.say(number, &message);
            }
            self.greet(number, bench);
        }
    }

    /// `kams on` and `kams off`. Off, relays pass everything and ask nobody; on, they are asked for what is open and are
    /// judged again.
    pub fn switch(&mut self, on: bool, bench: &mut Bench<'_>) {
        self.off = !on;
        let numbers: Vec<u64> = self.connections.keys().copied().collect();
        for number in numbers {
            if on {
                self.take_up(number);
            } else {
                self.let_pass(number, "off", bench);
            }
        }
    }

    /// Ends the judging of a connection; the relay stands, and passes everything.
    fn let_pass(&mut self, number: u64, why: &str, bench: &mut Bench<'_>) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.passes = true;
        let unsure = connection.opening.take().is_some();
        let Some(mut relayed) = connection.relayed.take() else {
            return;
        };
        let now = (bench.now)();
        let text = "Kams was switched off while this call waited for approval. It was not made; call again.";
        let said = relayed.give_up_held(text, bench.judge, bench.sink, now);
        let welcome = Welcome {
            idle: true,
            ..relayed.welcome(bench.judge)
        };
        connection.welcome = Some(welcome.clone());
        for message in said.iter().chain([&FromEngine::Welcome(welcome)]) {
            self.say(number, message);
        }
        self.end(relayed, unsure, why, bench);
    }

    /// Has a relay that passed everything ask again. It connects anew and says what is open: meanwhile it was not heard.
    fn take_up(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else {
            return;
        };
        if let (true, Some(welcome)) = (connection.passes, connection.welcome.clone()) {
            self.say(
                number,
                &FromEngine::Welcome(Welcome {
                    idle: false,
                    ..welcome
                }),
            );
            self.connections.remove(&number);
        }
    }

    /// A server has better names.
    pub fn rename(&mut self, server: u64, identity: &Arc<str>, agent: &Arc<str>) {
        self.parties.renamed(server, identity, agent);
        let all = self
            .connections
            .values_mut()
            .filter_map(|one| one.relayed.as_mut());
        for relayed in all.filter(|relayed| relayed.party().server_id == server) {
            relayed.rename(identity, agent);
        }
    }

    fn relayed(&mut self, number: u64) -> Option<&mut Relayed> {
        self.connections.get_mut(&number)?.relayed.as_mut()
    }

    fn accept(&mut self) {
        loop {
            let Some(listener) = &self.listener else { return };
            match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    if let Err(error) = self.add(socket) {
                        tracing::error!(%error, "a relay cannot be served");
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn hear(&mut self, number: u64, bench: &mut Bench<'_>) {
        for _ in 0..TURN {
            let Some(connection) = self.connections.get(&number) else {
                return;
            };
            let mut buffer = std::mem::take(&mut self.buffer);
            let mut room = std::mem::take(&mut self.room);
            let received = wire::receive(connection.socket.as_fd(), &mut buffer);
            let goes_on = match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Some(true),
                Ok(Some((length, fds))) => {
                    let packet = buffer.get(..length).unwrap_or_default();
                    match wire::from_relay(packet, &fds, &mut room) {
                        Ok(Some((said, body))) => Some(self.take(number, said, body, bench)),
                        Ok(None) => Some(true),
                        Err(error) => {
                            tracing::warn!(%error, "a relay's connection is closed");
                            Some(false)
                        }
                    }
                }
                Ok(None) | Err(_) => Some(false),
            };
            self.buffer = buffer;
            self.room = room;
            if self.room.capacity() > 2 << 20 {
                self.room = Vec::new();
            }
            match goes_on {
                None => return,
                Some(true) => {}
                Some(false) => {
                    self.close(number, bench);
                    return;
                }
            }
        }
    }

    fn take(&mut self, number: u64, said: FromRelay, body: &[u8], bench: &mut Bench<'_>) -> bool {
        let before = Instant::now();
        match said {
            FromRelay::Hello(hello) => return self.open(number, &hello, bench),
            FromRelay::Frame(frame) => {
                self.sound_out(number, &frame, body, bench);
                if self.connections.get(&number).is_some_and(|one| one.passes) {
                    // It was on its way when the relay was told.
                    self.say(number, &FromEngine::Verdict(frame.seq, Verdict::default()));
                    return true;
                }
                let Some(relayed) = self.relayed(number) else {
                    return false;
                };
                let said = relayed.take(&frame, body, bench.judge, bench.sink, (bench.now)());
                let effects = relayed.take_effects();
                for message in said {
                    self.say(number, &message);
                }
                if effects
                    .iter()
                    .any(|effect| matches!(effect, Effect::KillServer { .. }))
                {
                    self.say(number, &FromEngine::End);
                }
                bench.sink.verdict(before.elapsed().as_secs_f64());
                self.effects.extend(effects);
                if let Some(relayed) = self.connections.get(&number).and_then(|one| one.relayed.as_ref()) {
                    self.parties.heard(relayed);
                }
                self.greet(number, bench);
            }
            FromRelay::Unjudged(told) => {
                let Some(relayed) = self.relayed(number) else {
                    return self.connections.get(&number).is_some_and(|one| one.passes);
                };
                relayed.unjudged(&told, bench.judge, bench.sink, (bench.now)());
            }
            FromRelay::Bye => return false,
        }
        true
    }

    fn open(&mut self, number: u64, hello: &Hello, bench: &mut Bench<'_>) -> bool {
        let Some(connection) = self.connections.get_mut(&number) else {
            return false;
        };
        if connection.relayed.is_some() || connection.passes {
            return false;
        }
        let peer = match rustix::net::sockopt::socket_peercred(&connection.socket) {
            Ok(peer) => Peer {
                uid: peer.uid.as_raw(),
                pid: u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0),
            },
            Err(_) => return false,
        };
        let Some(party) = self.parties.party(&hello.meta, peer) else {
            tracing::warn!(uid = peer.uid, pid = peer.pid, "a relay was turned away");
            return false;
        };
        let relayed =
            Relayed::new(party, &hello.before, self.to_wall, (bench.now)()).for_remedy(self.parties.remedy());
        if self.off {
            connection.relayed = Some(relayed);
            connection.opening = Some(Opening::default());
            self.let_pass(number, "off", bench);
            return true;
        }
        bench.judge.enter(relayed.party());
        if hello.meta.candidate && hello.before.is_empty() {
            // Of a session that began before us any request may be the next.
            connection.opening = Some(if hello.resumed {
                Opening::of_running_stream()
            } else {
                Opening::default()
            });
        } else {
            self.parties.opened(&relayed, bench.sink);
        }
        connection.relayed = Some(relayed);
        self.greet(number, bench);
        true
    }

    /// Looks at what an agent says first to what may be no MCP server: another protocol is nobody's to judge.
    fn sound_out(&mut self, number: u64, frame: &wire::Frame, body: &[u8], bench: &mut Bench<'_>) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let (Some(opening), Some(relayed)) = (&mut connection.opening, &connection.relayed) else {
            return;
        };
        if frame.way != wire::Way::ToServer {
            return;
        }
        match opening.push(body) {
            Opened::Pending => {}
            Opened::Mcp => {
                connection.opening = None;
                self.parties.opened(relayed, bench.sink);
            }
            Opened::Not(why) => {
                tracing::debug!(pid = relayed.party().server_pid, %why, "a relay stands before what is no MCP server");
                self.let_pass(number, why.name(), bench);
            }
        }
    }

    /// Tells the end of a connection's judging. `unsure`: of what never spoke MCP nothing was told.
    fn end(&mut self, mut relayed: Relayed, unsure: bool, why: &str, bench: &mut Bench<'_>) {
        let now = (bench.now)();
        if unsure {
            bench.judge.leave(relayed.party());
        } else {
            relayed.finish(why, bench.judge, bench.sink, now);
        }
        self.parties.closed(&relayed, unsure, now);
    }

    /// Sends settings that are new.
    fn greet(&mut self, number: u64, bench: &Bench<'_>) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let Some(relayed) = &connection.relayed else {
            return;
        };
        let (policy, server) = (bench.judge.gate.policy(), &relayed.party().server);
        let typed = relayed.is_typed();
        let same = |(before, name, was_typed): &(Arc<Policy>, Arc<str>, bool)| {
            Arc::ptr_eq(before, policy) && Arc::ptr_eq(name, server) && *was_typed == typed
        };
        if connection.made_of.as_ref().is_some_and(same) {
            return;
        }
        connection.made_of = Some((Arc::clone(policy), Arc::clone(server), typed));
        let welcome = relayed.welcome(bench.judge);
        if connection.welcome.as_ref() != Some(&welcome) {
            connection.welcome = Some(welcome.clone());
            self.say(number, &FromEngine::Welcome(welcome));
        }
    }

    fn say(&mut self, number: u64, message: &FromEngine) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let (head, body) = message.packet();
        if connection.waiting.is_empty() {
            match wire::send(connection.socket.as_fd(), &head, &body) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A connection that is broken is noticed where it is read.
                _ => return,
            }
            self.watch_writing(number, true);
        }
        if let Some(connection) = self.connections.get_mut(&number)
            && connection.waiting.len() < MOST_WAITING
        {
            connection.waiting.push_back((head, body));
        }
    }

    fn flush(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            while let Some((head, body)) = connection.waiting.front() {
                match wire::send(connection.socket.as_fd(), head, body) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                    _ => connection.waiting.pop_front(),
                };
            }
        }
        self.watch_writing(number, false);
    }

    fn watch_writing(&self, number: u64, wanted: bool) {
        let Some(connection) = self.connections.get(&number) else {
            return;
        };
        let flags = if wanted {
            epoll::EventFlags::IN | epoll::EventFlags::OUT
        } else {
            epoll::EventFlags::IN
        };
        let data = epoll::EventData::new_u64(number);
        if let Err(error) = epoll::modify(&self.epoll, &connection.socket, data, flags) {
            tracing::error!(%error, "a relay cannot be answered");
        }
    }

    fn close(&mut self, number: u64, bench: &mut Bench<'_>) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        if let Some(relayed) = connection.relayed {
            self.end(relayed, connection.opening.is_some(), "relay_closed", bench);
        }
    }
}
