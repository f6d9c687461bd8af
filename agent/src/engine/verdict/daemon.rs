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
    /// Relays find the daemon at `socket`. Those that run as `relay_uid` are believed.
    pub fn listen(
        socket: &Path,
        relay_uid: Option<u32>,
        live: &Live,
        on_effect: Box<dyn FnMut(Effect) + Send>,
    ) -> io::Result<Self> {
        let standing = Arc::new(Mutex::new(Standing::default()));
        let parties = Served {
            registry: Arc::clone(&live.registry),
            outside: Outside::default(),
            relay_uid,
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

    /// Ends servers for what no relay of theirs has decided.
    pub(in crate::engine) fn kill(&mut self, servers: Vec<(u64, u32)>) {
        for (server_id, pid) in servers {
            (self.on_effect)(Effect::KillServer { server_id, pid });
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
    pub(in crate::engine) fn woken(&self) {
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
    relay_uid: Option<u32>,
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
        if trusted && meta.server_id > 0 {
            return meta.server_id;
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
        let trusted = self.relay_uid == Some(peer.uid);
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
        Some(Party {
            server_id,
            uid,
            user: self.outside.user(uid),
            agent: describe::name(&meta.agent).into(),
            agent_pid: meta.agent_pid,
            agent_start: meta.agent_start,
            server: describe::name(&meta.server).into(),
            server_pid: meta.server_pid,
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
        let mut tables = self.registry.lock();
        let view = tables.server_mut(party.server_id);
        let known = view.is_some();
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
        let mut confirmed = relayed.event(EventKind::ServerConfirmed, now);
        confirmed.reason = Some("relayed".to_owned());
        sink.event(confirmed);
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

    fn closed(&mut self, relayed: &Relayed, now: Nanos) {
        let id = relayed.party().server_id;
        self.told.remove(&id);
        if let Some(pid) = self.processes.remove(&id) {
            let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
            standing.processes.remove(&pid);
        }
        self.registry.lock().end_server(id, to_wall(now));
    }
}
