//! Server instances: from a candidate whose first bytes are kept back to a conversation that is told.

mod ending;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use kams_export::view::{EventKind, EventView, ServerState, ServerView, Transport};
use kams_host::{Chunk, ExecReport, FdKind, LossReason, Marks, Op, StreamId, StreamKey};
use kams_mcp::Direction;

use super::configured::Reading;
use super::conversation::{Conversation, Limits, Party};
use super::describe;
use super::early::Early;
use super::judging::Work;
use super::sink::Sink;
use super::stream::{Begins, Piece};
use super::{Engine, to_wall};
use crate::discover::agents::{AgentKind, AgentName};
use crate::discover::candidate::{ObjectId, StreamKind};
use crate::discover::tracker::{Action, GoneReason, InstanceId, ProcKey};

/// Bytes kept back of a candidate until it is known to be a server.
const KEPT_BACK: usize = 4 << 20;
/// Bytes kept back of all candidates together.
const KEPT_BACK_OF_ALL: usize = 64 << 20;
/// How long after a server's end its agent may still read what it wrote last. Begins anew while bytes wait there.
const LINGER: u64 = 3_000_000_000;
/// How long at most, however much waits.
const LINGER_MOST: u64 = 600_000_000_000;

/// A server instance of the tracker, and what was read of it.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) id: u64,
    party: Party,
    begins: Begins,
    keys: [StreamKey; 2],
    kind: StreamKind,
    started: u64,
    /// What was read before it was known to be a server; none afterwards.
    kept: Option<Kept>,
    adopted: bool,
    /// A relay shows what is said: what is watched only tells whether it is MCP.
    relayed: bool,
    /// The injector has it. What its agent says meanwhile lies in the stream, and is told by whoever gets it: the relay,
    /// or else the watch.
    asked: bool,
    /// It spoke MCP while the injector had it.
    confirmed_at: Option<u64>,
    /// Why it got no relay.
    pub(super) unrelayed: Option<&'static str>,
    /// What its agent wrote before the watch began, while captured bytes may repeat it.
    early: Option<Early>,
    /// The sensor's numbers of the two watches, once bytes came: an object's address may be another server's by now.
    watches: [Option<StreamId>; 2],
    /// Its last process has ended, then; the agent may still read what it left in the buffer.
    ended: Option<(GoneReason, u64)>,
    /// When something last waited to be read after that.
    waited: u64,
}

#[derive(Debug, Default)]
struct Kept {
    pieces: VecDeque<(Direction, Held)>,
    bytes: usize,
    /// There was more than may be kept.
    cut: bool,
}

#[derive(Debug)]
enum Held {
    Piece(Piece),
    Gap { lost: u64, time: u64 },
}

impl Server {
    pub(super) const fn set_asked(&mut self) {
        self.asked = true;
    }

    pub(super) const fn is_relayed(&self) -> bool {
        self.relayed
    }

    /// Its first messages may have passed unseen.
    pub(super) const fn begins_unseen(&mut self) {
        self.begins = Begins::Unsure;
    }

    /// The injector is through with it. Gives when it spoke MCP, if it did meanwhile.
    pub(super) const fn set_answered(&mut self, relayed: bool) -> Option<u64> {
        self.asked = false;
        self.relayed = relayed;
        self.confirmed_at.take()
    }

    pub(super) const fn party(&self) -> &Party {
        &self.party
    }

    fn event(&self, kind: EventKind, time: u64) -> EventView {
        describe::base(&self.party, kind, to_wall(time))
    }
}

impl Engine {
    /// A candidate: watch its streams and keep back what comes.
    pub(super) fn open_server(
        &mut self,
        instance: InstanceId,
        report: &ExecReport,
        adopted: bool,
        early: Option<Early>,
    ) {
        let Some(seen) = self.tracker.instance(instance) else {
            return;
        };
        let streams = seen.streams;
        let holder = seen.holder;
        let key = |object: ObjectId, op| StreamKey {
            object: kams_host::Object(object.address),
            op,
        };
        let keys = [
            key(streams.agent_writes, Op::Write),
            key(streams.agent_reads, Op::Read),
        ];
        let identity: Arc<str> = seen.identity.to_string().into();
        let version = seen.identity.version.clone();
        let agent: Arc<str> = seen.agent.as_ref().map_or("", |a| a.name.as_str()).into();
        // Forks and exits below a server are needed to know when its last process ends.
        self.mark(
            ProcKey {
                pid: report.pid,
                start: report.start_ns,
            },
            Marks::TREE,
        );
        let id = self.new_id();
        self.descends(id, report.pid, report.start_ns, adopted);
        let transport = if report.fds[0].kind == FdKind::Pipe {
            Transport::Pipe
        } else {
            Transport::Socket
        };
        let user = self.outside.user(report.uid);
        let party = Party {
            server_id: id,
            uid: report.uid,
            user: Arc::clone(&user),
            agent: Arc::clone(&agent),
            agent_pid: holder.pid,
            agent_start: holder.start,
            server: Arc::clone(&identity),
            server_pid: report.pid,
            server_start: report.start_ns,
            transport,
            relayed: false,
        };
        let begins = if report.watched {
            Begins::AtStart
        } else {
            Begins::Unsure
        };
        self.live.registry.lock().add_server(ServerView {
            id,
            uid: report.uid,
            user: user.to_string(),
            agent: agent.to_string(),
            agent_pid: holder.pid,
            identity: identity.to_string(),
            version,
            state: ServerState::Candidate,
            pid: report.pid,
            transport,
            started: to_wall(report.start_ns),
            ..ServerView::default()
        });
        for (key, direction) in keys.into_iter().zip([Direction::ToServer, Direction::ToClient]) {
            self.keys.insert(key, (instance, direction));
        }
        let server = Server {
            id,
            party,
            begins,
            keys,
            kind: streams.agent_writes.kind,
            started: report.time_ns,
            kept: Some(Kept::default()),
            adopted,
            relayed: false,
            asked: false,
            confirmed_at: None,
            unrelayed: None,
            watches: [None, None],
            early: None,
            ended: None,
            waited: 0,
        };
        self.servers.insert(instance, server);
        if let Some(early) = early {
            self.take_early(instance, early, report.time_ns);
        }
    }

    /// Enters what the agent wrote before the watch began, as its first call.
    pub(super) fn take_early(&mut self, instance: InstanceId, early: Early, time: u64) {
        let Some(server) = self.servers.get_mut(&instance) else {
            return;
        };
        let object = ObjectId {
            kind: server.kind,
            address: server.keys[0].object.0,
        };
        let data = early.bytes();
        server.early = Some(early);
        let piece = Piece {
            call: 0,
            last: true,
            time,
            data,
        };
        self.take_piece((instance, Direction::ToServer), object, piece);
    }

    pub(super) fn on_payload(&mut self, chunk: Chunk) {
        let Some((instance, direction)) = self.keys.get(&chunk.key).copied() else {
            return;
        };
        let Some(server) = self.servers.get_mut(&instance) else {
            return;
        };
        let watch = &mut server.watches[usize::from(direction == Direction::ToClient)];
        if *watch.get_or_insert(chunk.stream) != chunk.stream {
            return;
        }
        let object = ObjectId {
            kind: server.kind,
            address: chunk.key.object.0,
        };
        let mut piece = Piece {
            call: chunk.call,
            last: chunk.last,
            time: chunk.time_ns,
            data: chunk.data,
        };
        if direction == Direction::ToServer
            && let Some(early) = &mut server.early
        {
            let (rest, more) = early.rest(&piece.data);
            piece.data = rest;
            if !more {
                server.early = None;
            }
        }
        self.take_piece((instance, direction), object, piece);
    }

    fn take_piece(&mut self, (instance, direction): (InstanceId, Direction), object: ObjectId, piece: Piece) {
        let Some(server) = self.servers.get_mut(&instance) else {
            return;
        };
        let time = piece.time;
        if let Some(kept) = &mut server.kept {
            // A copy: what is kept here for long must not fill the sensor's queue.
            let data = Bytes::copy_from_slice(&piece.data);
            let more = data.len();
            kept.cut |= kept.bytes + more > KEPT_BACK || self.kept_back + more > KEPT_BACK_OF_ALL;
            if !kept.cut {
                kept.bytes += more;
                self.kept_back += more;
                let data = data.clone();
                kept.pieces
                    .push_back((direction, Held::Piece(Piece { data, ..piece })));
            }
            let mut actions = Vec::new();
            match direction {
                Direction::ToServer => {
                    self.tracker.agent_wrote(object, &data, time, &mut actions);
                }
                Direction::ToClient => {
                    self.tracker.agent_read(object);
                }
            }
            self.act(actions, time);
            return;
        }
        self.judging.hand(Work::Piece {
            server: server.id,
            direction,
            piece,
        });
        if direction == Direction::ToClient {
            self.tracker.agent_read(object);
        }
    }

    pub(super) fn on_gap(
        &mut self,
        (key, watch): (StreamKey, StreamId),
        lost: u64,
        reasons: &[LossReason],
        time: u64,
    ) {
        let Some((instance, direction)) = self.keys.get(&key).copied() else {
            return;
        };
        let Some(server) = self.servers.get_mut(&instance) else {
            return;
        };
        if *server.watches[usize::from(direction == Direction::ToClient)].get_or_insert(watch) != watch {
            return;
        }
        if let Some(kept) = &mut server.kept {
            if kept.pieces.len() < 1_024 {
                kept.pieces.push_back((direction, Held::Gap { lost, time }));
            }
            return;
        }
        self.judging.hand(Work::Gap {
            server: server.id,
            direction,
            lost,
            reasons: reasons.to_vec(),
            time,
        });
    }

    /// The agent has read everything that a server wrote before it closed its output.
    pub(super) fn on_eof(&mut self, key: StreamKey) {
        let Some((instance, Direction::ToClient)) = self.keys.get(&key).copied() else {
            return;
        };
        if let Some((why, at)) = self.servers.get(&instance).and_then(|s| s.ended) {
            self.finish(instance, why, at);
        }
    }

    pub(super) fn on_io_uring(&mut self, pid: u32, time: u64) {
        let Some(endpoint) = self.endpoints.get(&pid) else {
            return;
        };
        let uid = endpoint.uid;
        let agent = endpoint.agent.as_ref().map(|known| known.name.name.clone());
        let user = self.outside.user(uid);
        self.live.event(EventView {
            agent,
            agent_pid: Some(pid),
            stage: Some("unsupported".to_owned()),
            reason: Some("io_uring".to_owned()),
            detail: Some("this agent uses io_uring: what it moves that way is not seen".to_owned()),
            ..EventView::new(EventKind::Loss, to_wall(time), uid, &*user)
        });
    }

    /// Carries out what the tracker decided.
    pub(super) fn act(&mut self, actions: Vec<Action>, time: u64) {
        for action in actions {
            match action {
                Action::ProbationStarted(proc) => {
                    let uid = kams_host::procs::facts(proc.pid).map_or(0, |f| f.uid);
                    self.probation_started(proc, uid);
                }
                Action::ProbationEnded { proc, learned } => {
                    let name = if learned { self.name_of_learned(proc) } else { None };
                    self.probation_ended(proc, name, time);
                }
                Action::AgentLearned(program) => {
                    tracing::info!(program = %program.exe.path, "learned as an agent: it speaks MCP to a child");
                    self.learned_paths.insert(program.exe.path.clone());
                }
                Action::Confirmed(id) => {
                    self.confirmed(id, time);
                    self.follow_network();
                }
                Action::ServerLearned(uid, identity) => self.enforce.remember(uid, &identity, to_wall(time)),
                Action::Rejected(id, why) => {
                    if let Some(server) = self.close(id) {
                        tracing::debug!(pid = server.party.server_pid, %why, "no MCP server");
                        if server.relayed {
                            continue;
                        }
                        self.live.registry.lock().remove_server(server.id);
                    }
                }
                Action::Renamed { id, .. } => self.renamed(id),
                Action::Gone(id, _, why) => self.gone(id, why, time),
            }
        }
    }

    fn name_of_learned(&self, proc: ProcKey) -> Option<AgentName> {
        let of_holder = self
            .tracker
            .instances()
            .find(|(_, i)| i.holder == proc && i.agent.is_some());
        of_holder.and_then(|(_, i)| i.agent.clone()).or_else(|| {
            let exe = kams_host::procs::exe(proc.pid)?.to_string_lossy().into_owned();
            let name = exe.rsplit('/').next().unwrap_or_default().to_owned();
            Some(AgentName {
                name,
                kind: AgentKind::Learned,
            })
        })
    }

    pub(super) fn confirmed(&mut self, id: InstanceId, time: u64) {
        self.renamed(id);
        if let Some(server) = self.servers.get_mut(&id)
            && server.asked
        {
            server.confirmed_at = Some(time);
            return;
        }
        self.confirmed_unrelayed(id);
        let Some(server) = self.servers.get_mut(&id) else {
            return;
        };
        let Some(kept) = server.kept.take() else { return };
        self.kept_back -= kept.bytes;
        if server.relayed {
            // The relay's own conversation is told; watching it as well would only cost.
            let keys = server.keys;
            self.judging.hand(Work::Rename {
                server: server.id,
                identity: Arc::clone(&server.party.server),
                agent: Arc::clone(&server.party.agent),
            });
            if let Some(running) = &self.running {
                for key in keys {
                    running.control.unwatch(key, None);
                }
            }
            self.live.count_servers();
            return;
        }
        let adopted = server.adopted;
        let state = if adopted {
            ServerState::Adopted
        } else {
            ServerState::Observed
        };
        if let Some(view) = self.live.registry.lock().server_mut(server.id) {
            view.state = state;
        }
        let party = &server.party;
        tracing::info!(server = %party.server, agent = %party.agent, uid = party.uid, pid = party.server_pid, "MCP server");
        let transport = Some(party.transport);
        let mut started = server.event(EventKind::ServerStarted, server.started);
        started.transport = transport;
        started.reason = adopted.then(|| "adopted".to_owned());
        self.live.event(started);
        let mut confirmed = server.event(EventKind::ServerConfirmed, time);
        confirmed.transport = transport;
        self.live.event(confirmed);
        let limits = Limits {
            max_message: self.config.sensor.max_message,
        };
        let conversation = Conversation::new(
            party.clone(),
            server.begins,
            limits,
            kams_mcp::Config::default(),
            to_wall,
        );
        let number = server.id;
        self.judging.hand(Work::Open {
            server: number,
            conversation: Box::new(conversation),
        });
        let gap = |direction, lost, time| Work::Gap {
            server: number,
            direction,
            lost,
            reasons: Vec::new(),
            time,
        };
        for (direction, held) in kept.pieces {
            self.judging.hand(match held {
                Held::Piece(piece) => Work::Piece {
                    server: number,
                    direction,
                    piece,
                },
                Held::Gap { lost, time } => gap(direction, lost, time),
            });
        }
        if kept.cut {
            for direction in [Direction::ToServer, Direction::ToClient] {
                self.judging.hand(gap(direction, 0, time));
            }
        }
        self.live.count_servers();
    }

    fn renamed(&mut self, id: InstanceId) {
        let Some(instance) = self.tracker.instance(id) else {
            return;
        };
        let identity: Arc<str> = instance.identity.to_string().into();
        let agent: Arc<str> = instance.agent.as_ref().map_or("", |a| a.name.as_str()).into();
        let Some(server) = self.servers.get_mut(&id) else {
            return;
        };
        if let Some(view) = self.live.registry.lock().server_mut(server.id) {
            view.identity = identity.to_string();
            view.version.clone_from(&instance.identity.version);
            view.agent = agent.to_string();
        }
        server.party.server = Arc::clone(&identity);
        server.party.agent = Arc::clone(&agent);
        if server.kept.is_none() {
            self.judging.hand(Work::Rename {
                server: server.id,
                identity,
                agent,
            });
        }
    }

    /// A user's client configurations were read: the remote servers in them are named, and not watched.
    pub(super) fn take_reading(&mut self, reading: Reading) {
        let person = self.outside.person(reading.uid());
        self.configured.take(reading, person);
        let mut remote = Vec::new();
        for (uid, server) in self.configured.remote() {
            let Some(url) = &server.url else { continue };
            remote.push((uid, server.client, server.name.clone(), url.clone()));
        }
        let views = remote
            .into_iter()
            .map(|(uid, client, name, url)| ServerView {
                uid,
                user: self.outside.user(uid).to_string(),
                agent: client.to_owned(),
                identity: format!("url:{url}"),
                name: Some(name),
                state: ServerState::Http,
                transport: Transport::Http,
                ..ServerView::default()
            })
            .collect();
        self.live.registry.lock().set_remote(views);
        self.live.count_servers();
    }
}

const fn gone_word(why: GoneReason) -> &'static str {
    match why {
        GoneReason::Exited => "exited",
        GoneReason::AgentExited => "agent_exited",
        GoneReason::ObjectReused => "object_reused",
        GoneReason::Limit => "released",
    }
}
