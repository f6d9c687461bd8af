//! The daemon's relays: injected ones, and `kams wrap` of any user.
//!
//! An injected relay runs as an identity of its own that nobody else has, and says whom it serves. Who else connects
//! is a user's own `kams wrap`: it serves that user, whatever it says.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kams_export::view::{EventKind, ServerState, ServerView, Transport};
use kams_host::clock;
use kams_mcp::Nanos;
use kams_relay::wire::Meta;
use rustix::event::{EventfdFlags, eventfd};

use super::relayed::{Effect, Relayed};
use super::service::{Bench, Parties, Peer, Verdicts};
use crate::engine::conversation::Party;
use crate::engine::describe;
use crate::engine::judge::Judge;
use crate::engine::live::Live;
use crate::engine::outside::Outside;
use crate::engine::registry::Registry;
use crate::engine::sink::Sink;
use crate::engine::to_wall;

/// Longest sleep while nothing happens, and while a call waits for a person.
const QUIET: Duration = Duration::from_secs(5);
const HOLDING: Duration = Duration::from_millis(100);
/// Names and numbers that are remembered; more, and all are forgotten, which costs a better name.
const MOST: usize = 4_096;
/// Numbers of servers that no sensor has seen begin here.
const UNSEEN: u64 = 1 << 40;

/// What is to be done beyond messages; called on the judging thread, so it only hands over.
type OnEffect = Box<dyn FnMut(Effect) + Send>;

/// All relays of a daemon.
pub struct Relays {
    verdicts: Verdicts,
    waker: OwnedFd,
    standing: Arc<Mutex<Standing>>,
    on_effect: OnEffect,
}

/// What the judging thread must know of relays.
#[derive(Debug, Default)]
struct Standing {
    /// Servers that are not to be judged from where they are watched, since they were last asked for.
    new: Vec<u64>,
    /// Processes that relay: what they say to their servers is what their agents say.
    processes: HashSet<u32>,
}

impl std::fmt::Debug for Relays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relays").finish_non_exhaustive()
    }
}

impl Relays {
    /// Relays find the daemon at `socket`. Those that run as this user are believed; `instance` names this start of the
    /// daemon, whose numbers of servers mean something to it.
    pub fn listen(
        socket: &Path,
        (relay_uid, instance): (u32, &str),
        live: &Live,
        on_effect: Box<dyn FnMut(Effect) + Send>,
    ) -> io::Result<Self> {
        let standing = Arc::new(Mutex::new(Standing::default()));
        let parties = Served {
            registry: Arc::clone(&live.registry),
            outside: Outside::default(),
            relay_uid,
            instance: format!("{instance}."),
            numbers: HashMap::new(),
            names: HashMap::new(),
            next: UNSEEN,
            standing: Arc::clone(&standing),
            told: HashMap::new(),
            processes: HashMap::new(),
        };
        let mut verdicts = Verdicts::new(Box::new(parties), to_wall)?;
        verdicts.listen(socket)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        verdicts.wake_by(&waker)?;
        Ok(Self {
            verdicts,
            waker,
            standing,
            on_effect,
        })
    }

    /// What ends the wait of [`Relays::serve`] when a number is written to it.
    pub(in crate::engine) fn waker(&self) -> io::Result<OwnedFd> {
        self.waker.try_clone()
    }

    /// Answers relays; waits for them where nothing else is to be done.
    pub(in crate::engine) fn serve(&mut self, wait: bool, judge: &mut Judge, live: &mut Live) {
        let holds = self.verdicts.holds();
        let limit = match (wait, holds) {
            (false, _) => Duration::ZERO,
            (true, true) => HOLDING,
            (true, false) => QUIET,
        };
        let mut bench = Bench {
            judge,
            sink: live,
            now: clock::boot_ns,
        };
        self.verdicts.serve(limit, &mut bench);
        if holds && wait {
            self.verdicts.settle(&mut bench);
        }
        for effect in self.verdicts.take_effects() {
            (self.on_effect)(effect);
        }
    }

    /// `kams on` and `kams off`.
    pub(in crate::engine) fn switch(&mut self, on: bool, judge: &mut Judge, live: &mut Live) {
        self.verdicts.switch(
            on,
            &mut Bench {
                judge,
                sink: live,
                now: clock::boot_ns,
            },
        );
    }

    /// A server has better names.
    pub(in crate::engine) fn rename(&mut self, server: u64, identity: &Arc<str>, agent: &Arc<str>) {
        self.verdicts.rename(server, identity, agent);
    }

    /// Ends servers for what no relay of theirs has decided.
    pub(in crate::engine) fn kill(&mut self, servers: Vec<Effect>) {
        for server in servers {
            (self.on_effect)(server);
        }
    }

    /// Policy or its state may have changed.
    pub(in crate::engine) fn settle(&mut self, judge: &mut Judge, live: &mut Live) {
        self.verdicts.settle(&mut Bench {
            judge,
            sink: live,
            now: clock::boot_ns,
        });
    }

    /// The wait is over: the waker can be used again.
    pub(in crate::engine) fn woken(&mut self) {
        if !self.verdicts.take_woken() {
            return;
        }
        let mut number = [0; 8];
        // Nothing to read is as good as something that was read.
        if rustix::io::read(&self.waker, &mut number).is_err() {}
    }

    /// Servers that are relayed since the last call.
    pub(in crate::engine) fn take_new(&self) -> Vec<u64> {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut standing.new)
    }

    /// Whether this process relays.
    pub(in crate::engine) fn is_relay(&self, pid: u32) -> bool {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.processes.contains(&pid)
    }
}

struct Served {
    registry: Arc<Registry>,
    outside: Outside,
    relay_uid: u32,
    /// What the names of this start's relays begin with.
    instance: String,
    /// Numbers that relays of earlier starts got from this one, by their names.
    numbers: HashMap<String, u64>,
    /// Better names of servers, from their launcher chains: identity and agent.
    names: HashMap<u64, (Arc<str>, Arc<str>)>,
    next: u64,
    standing: Arc<Mutex<Standing>>,
    /// By number of the server: the process that relays.
    processes: HashMap<u64, u32>,
    /// What the two sides said of themselves, as it was last entered.
    told: HashMap<u64, Arc<kams_mcp::session::Identity>>,
}

impl Served {
    /// The number of the server that the sensor watches in this relay's place, or another.
    fn number(&mut self, meta: &Meta, peer: Peer, trusted: bool) -> u64 {
        if trusted && meta.server_id > 0 && meta.relay.starts_with(&self.instance) {
            return meta.server_id;
        }
        if trusted {
            if self.numbers.len() >= MOST {
                self.numbers.clear();
            }
            let next = &mut self.next;
            let number = self.numbers.entry(meta.relay.clone()).or_insert_with(|| {
                *next += 1;
                *next
            });
            return *number;
        }
        let tables = self.registry.lock();
        let watched = tables
            .live_servers()
            .find(|view| view.pid == peer.pid && view.uid == peer.uid)
            .map(|view| view.id);
        drop(tables);
        watched.unwrap_or_else(|| {
            self.next += 1;
            self.next
        })
    }
}

impl Parties for Served {
    fn party(&mut self, meta: &Meta, peer: Peer) -> Option<Party> {
        let trusted = self.relay_uid == peer.uid;
        let uid = if trusted { meta.uid } else { peer.uid };
        let server_id = self.number(meta, peer, trusted);
        let mut tables = self.registry.lock();
        let behind: Vec<u64> = tables
            .live_servers()
            .filter(|view| view.agent_pid == peer.pid)
            .map(|view| view.id)
            .collect();
        for id in &behind {
            tables.remove_server(*id);
        }
        drop(tables);
        self.processes.insert(server_id, peer.pid);
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.processes.insert(peer.pid);
        standing.new.extend(behind);
        standing.new.push(server_id);
        drop(standing);
        let (server, agent) = self.names.get(&server_id).cloned().unwrap_or_else(|| {
            let name = |text| describe::name(text).into();
            (name(&meta.server), name(&meta.agent))
        });
        Some(Party {
            server_id,
            uid,
            user: self.outside.user(uid),
            agent,
            agent_pid: meta.agent_pid,
            agent_start: meta.agent_start,
            server,
            server_pid: meta.server_pid,
            // A user's word is no reason to kill a process.
            server_start: if trusted { meta.server_start } else { 0 },
            transport: if meta.socket {
                Transport::Socket
            } else {
                Transport::Pipe
            },
            relayed: true,
        })
    }

    fn opened(&mut self, relayed: &Relayed, sink: &mut dyn Sink) {
        let party = relayed.party();
        let now = clock::boot_ns();
        let injected = party.server_start != 0;
        let mut tables = self.registry.lock();
        let view = tables.server_mut(party.server_id);
        let known = view.is_some() && !injected;
        if let Some(view) = view {
            view.state = ServerState::Relayed;
            view.enforced = true;
            view.identity = party.server.to_string();
        } else {
            tables.add_server(ServerView {
                id: party.server_id,
                uid: party.uid,
                user: party.user.to_string(),
                agent: party.agent.to_string(),
                agent_pid: party.agent_pid,
                identity: party.server.to_string(),
                state: ServerState::Relayed,
                enforced: true,
                pid: party.server_pid,
                transport: party.transport,
                started: to_wall(now),
                ..ServerView::default()
            });
        }
        drop(tables);
        let mut started = relayed.event(EventKind::ServerStarted, now);
        started.transport = Some(party.transport);
        if !known {
            sink.event(started);
        }
        if injected {
            sink.event(relayed.event(EventKind::ServerRelayed, now));
        }
        let mut confirmed = relayed.event(EventKind::ServerConfirmed, now);
        confirmed.reason = Some("relayed".to_owned());
        sink.event(confirmed);
    }

    fn renamed(&mut self, server: u64, identity: &Arc<str>, agent: &Arc<str>) {
        if self.names.len() >= MOST {
            self.names.clear();
        }
        self.names
            .insert(server, (Arc::clone(identity), Arc::clone(agent)));
    }

    fn heard(&mut self, relayed: &Relayed) {
        let (id, identity) = (relayed.party().server_id, relayed.session().identity());
        if self.told.get(&id).is_some_and(|told| Arc::ptr_eq(told, identity)) {
            return;
        }
        self.told.insert(id, Arc::clone(identity));
        if let Some(view) = self.registry.lock().server_mut(id) {
            view.revision = identity.revision.as_ref().map(|r| describe::name(r.name()));
            view.name = identity.server.as_ref().map(|s| describe::name(&s.name));
            view.claimed_version = identity.server.as_ref().map(|s| describe::name(&s.version));
        }
    }

    fn closed(&mut self, relayed: &Relayed, unsure: bool, now: Nanos) {
        let id = relayed.party().server_id;
        self.told.remove(&id);
        self.names.remove(&id);
        if let Some(pid) = self.processes.remove(&id) {
            let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
            standing.processes.remove(&pid);
        }
        let mut tables = self.registry.lock();
        if unsure {
            tables.remove_server(id);
        } else {
            tables.end_server(id, to_wall(now));
        }
    }
}
