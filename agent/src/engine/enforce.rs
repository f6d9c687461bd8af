//! Enforcement at the start of servers: which are held and get a relay, and what is told of those that do not.
//!
//! The kernel side holds what armed agents start; [`Engine::answer_hold`] decides for each, at once. Whatever it does not
//! give to the injector it lets go.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use kams_export::view::{EventKind, EventView, Time};
use kams_host::inject::{Ends, Injector, InjectorOptions, Outcome, Refusal, Target};
use kams_host::{ExecReport, Marks, SensorControl, hold};
use kams_policy::{Fail, Mode, Policy, Seccomp, Settings, Subject};
use kams_relay::HolderClient;
use kams_store::{Store, WriteOp};
use tokio::sync::{mpsc, watch};

use super::Engine;
use super::gate::cut_off::CutOffs;
use super::seccomp;
use super::servers::Server;
use super::sink::Sink;
use crate::config::{RelayWhat, Unrelayed};
use crate::discover::identity::ServerIdentity;
use crate::discover::tracker::{InstanceId, ProcKey, State};

/// How long the injector may say nothing before the daemon is ended, so that the kernel lets go what its thread traces.
const SILENT: u64 = 5_000_000_000;

/// Known servers that are read at the start, of all users together.
const KNOWN: u32 = 4_096;

/// Whom a relay is to serve.
#[derive(Clone, Debug)]
pub struct RelayedServer {
    /// The engine's number of the server.
    pub id: u64,
    /// User id of agent and server.
    pub uid: u32,
    /// Login name.
    pub user: Arc<str>,
    /// Name of the agent.
    pub agent: Arc<str>,
    /// Its process.
    pub agent_pid: u32,
    /// Start of that process, CLOCK_BOOTTIME ns.
    pub agent_start: u64,
    /// Identity of the server.
    pub identity: Arc<str>,
    /// What the relay does when the engine is silent.
    pub fail: Fail,
    /// Nothing but its first line can say whether it is an MCP server.
    pub candidate: bool,
    /// The filter of system calls that it is to be under.
    pub seccomp: Seccomp,
}

/// What puts relays between ends.
pub trait RelaySink: Send {
    /// Whether a relay is at hand. Asked before a server is touched.
    fn is_ready(&mut self) -> bool;

    /// Puts a relay between the ends; it serves when this returns.
    ///
    /// # Errors
    /// In words, when there is none. The ends are closed then, and with them the server's connection.
    fn relay(&mut self, ends: Ends, server: RelayedServer) -> Result<(), String>;
}

/// What enforcement needs from outside the engine.
pub struct Enforcement {
    /// The policy in force.
    pub policy: Arc<Policy>,
    /// Where the map of held processes is pinned; without it nothing is held.
    pub pin: Option<PathBuf>,
    /// Relays; without them nothing is held.
    pub relays: Option<Box<dyn RelaySink>>,
    /// What remembers, over restarts, which servers were seen.
    pub store: Option<Arc<Store>>,
    /// Whom restrictions cut off the network.
    pub cut_offs: watch::Receiver<CutOffs>,
    /// The way to who answers the questions of filters (`seccomp: notify`).
    pub holder: Option<HolderClient>,
}

impl std::fmt::Debug for Enforcement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Enforcement")
            .field("pin", &self.pin)
            .finish_non_exhaustive()
    }
}

/// Outcomes on their way from the injector's thread.
pub(super) type Outcomes = mpsc::UnboundedReceiver<Outcome>;

/// The engine's part.
pub(super) struct Enforce {
    outside: Enforcement,
    injector: Option<Injector>,
    outcomes: mpsc::UnboundedSender<Outcome>,
    /// Servers that the injector has, and whom their relays are to serve.
    asked: HashMap<ProcKey, (InstanceId, RelayedServer)>,
}

impl Enforce {
    pub(super) fn new(outside: Enforcement) -> (Self, Outcomes) {
        let (outcomes, receiver) = mpsc::unbounded_channel();
        let this = Self {
            outside,
            injector: None,
            outcomes,
            asked: HashMap::new(),
        };
        (this, receiver)
    }

    /// Servers that earlier starts of the daemon saw.
    pub(super) fn known_servers(&self) -> Vec<(u32, ServerIdentity)> {
        let Some(store) = &self.outside.store else {
            return Vec::new();
        };
        let known = store.known_servers(KNOWN).unwrap_or_else(|error| {
            tracing::error!(%error, "servers seen before the start are not known");
            Vec::new()
        });
        known
            .into_iter()
            .filter_map(|(uid, server)| Some((uid, ServerIdentity::parse(&server)?)))
            .collect()
    }

    /// A server is known from now on.
    pub(super) fn remember(&self, uid: u32, identity: &ServerIdentity, at: Time) {
        if let Some(store) = &self.outside.store {
            // A full queue is counted by the store.
            let _queued = store.write(WriteOp::Known {
                uid,
                server: identity.to_string(),
                at: at.unix_nanos(),
            });
        }
    }

    /// The policy in force.
    pub(super) const fn policy(&self) -> &Arc<Policy> {
        &self.outside.policy
    }

    pub(super) fn injector(&self) -> Option<&Injector> {
        self.injector.as_ref()
    }

    /// The way to the holder of listeners; once.
    pub(super) fn take_holder(&mut self) -> Option<HolderClient> {
        self.outside.holder.take()
    }

    pub(super) fn pin(&self) -> Option<PathBuf> {
        self.outside.pin.clone()
    }

    /// Whether what agents start is to be held.
    fn is_wanted(&self) -> bool {
        self.outside.pin.is_some() && self.outside.relays.is_some() && self.outside.policy.may_enforce()
    }

    /// Starts or ends the injector as policy wants.
    fn follow(&mut self, control: &SensorControl) {
        if !self.is_wanted() {
            self.injector = None;
            return;
        }
        if self.injector.is_some() {
            return;
        }
        // Relays are started now, not while the first server is held.
        if !self
            .outside
            .relays
            .as_mut()
            .is_some_and(|relays| relays.is_ready())
        {
            return;
        }
        let outcomes = self.outcomes.clone();
        let tell = move |outcome| {
            // The engine has ended: the ends are closed, and with them the server's connection.
            let _closed = outcomes.send(outcome);
        };
        match Injector::start(control, InjectorOptions::default(), tell) {
            Ok(injector) => self.injector = Some(injector),
            Err(error) => tracing::error!(%error, "no relay can be put before servers"),
        }
    }

    /// Marks of an agent besides those that every agent has.
    pub(super) fn marks(&self) -> Marks {
        if self.injector.is_some() {
            Marks::ARMED
        } else {
            Marks::NONE
        }
    }

    pub(super) fn stop(&mut self) {
        self.injector = None;
        self.asked.clear();
    }
}

impl Engine {
    /// Another policy, or a sensor that has just started: arms agents, or disarms them.
    pub(super) fn follow_policy(&mut self, policy: Option<Arc<Policy>>) {
        if let Some(policy) = policy {
            self.enforce.outside.policy = policy;
        }
        let Some(running) = &self.running else { return };
        let control = running.control.clone();
        self.enforce.follow(&control);
        if self.enforce.outside.policy.may_enforce() && self.enforce.injector.is_none() {
            let why = match &self.enforce.outside {
                Enforcement { pin: None, .. } => "there is no BPF filesystem to pin in",
                Enforcement { relays: None, .. } => "there are no relays",
                _ => "the injector did not start",
            };
            tracing::error!(
                "the policy wants enforcement, and it cannot be had: {why}; servers are only watched"
            );
        }
        let marks = self.enforce.marks();
        let agents = self
            .endpoints
            .iter()
            .filter(|(_, endpoint)| endpoint.agent.is_some());
        for (&pid, endpoint) in agents {
            if marks.is_empty() {
                control.unmark(pid, Marks::ARMED);
            } else if let Err(error) = control.mark(pid, Some(endpoint.start), marks) {
                tracing::warn!(pid, %error, "an agent could not be armed");
            }
        }
    }

    /// Ends the holding. Servers that the injector has get their relays: their connections must not end with it.
    pub(super) fn end_injector(&mut self, outcomes: &mut Outcomes) {
        self.enforce.injector = None;
        while let Ok(outcome) = outcomes.try_recv() {
            self.injected(outcome);
        }
    }

    /// Decides what is to become of a process that is held at its exec. Called when the exec has been dealt with.
    pub(super) fn answer_hold(&mut self, report: &ExecReport) {
        if !report.held && !report.hold_failed {
            return;
        }
        if seccomp::is_followed(report) {
            self.answer_followed(report);
            return;
        }
        let proc = ProcKey {
            pid: report.pid,
            start: report.start_ns,
        };
        let choice = self.choose(report, proc);
        if let Ok((id, server)) = choice {
            // Whether there is a relay or not.
            self.cut_off_at_start(id);
            let ready = self
                .enforce
                .outside
                .relays
                .as_mut()
                .is_some_and(|relays| relays.is_ready());
            let (confine, follow) = self.confinement(id, &server, proc);
            if report.held && ready {
                let target = Target {
                    pid: report.pid,
                    start_ns: report.start_ns,
                    parent: report.ppid,
                    far_ino: [report.fds[0].far_ino(), report.fds[1].far_ino()],
                    relay: true,
                    confine,
                    follow,
                };
                if let Some(injector) = &self.enforce.injector {
                    if let Some(entry) = self.servers.get_mut(&id) {
                        entry.set_asked();
                    }
                    self.enforce.asked.insert(proc, (id, server));
                    // Its next image may be told before the injector's answer is.
                    self.tracker.relayed(id);
                    injector.inject(target);
                    return;
                }
            } else {
                let why = if report.held { "no_relay" } else { "not_held" };
                self.unrelayed(id, &server, proc, why);
                self.no_filter(id, why);
            }
        }
        if let Some(id) = self.tracker.by_member(proc) {
            self.see_from_start(id, report);
        }
        self.let_go(proc);
    }

    /// Lets a held process run as it is.
    pub(super) fn let_go(&self, proc: ProcKey) {
        if let Some(injector) = &self.enforce.injector {
            injector.release(proc.pid, proc.start);
        }
    }

    /// The server that a held process is, where it is to get a relay; else why not.
    fn choose(
        &mut self,
        report: &ExecReport,
        proc: ProcKey,
    ) -> Result<(InstanceId, RelayedServer), &'static str> {
        let id = self.tracker.by_member(proc).ok_or("no_server")?;
        let instance = self.tracker.instance(id).ok_or("no_server")?;
        if instance.relayed || matches!(instance.state, State::Rejected(_)) {
            return Err("no_server");
        }
        let server = self.servers.get(&id).ok_or("no_server")?;
        let relayed = self.enforced(server).ok_or("observed")?;
        // One whose ends the agent has closed already is still the agent's own child, with streams of its own.
        let known = instance.known.is_some();
        let wanted = match self.config.relay {
            RelayWhat::Known => known,
            RelayWhat::Candidates => known || instance.streams.verified || report.watched,
        };
        if !wanted {
            return Err("unknown");
        }
        let candidate = !known;
        Ok((id, RelayedServer { candidate, ..relayed }))
    }

    /// Whom a relay before this server is to serve; none where policy only has it watched.
    fn enforced(&self, server: &Server) -> Option<RelayedServer> {
        let party = server.party();
        let subject = Subject {
            user: &party.user,
            agent: &party.agent,
            server: &party.server,
            tool: None,
            relayed: true,
        };
        let Settings {
            mode, fail, seccomp, ..
        } = self.enforce.outside.policy.settings(&subject);
        (mode == Mode::Enforce).then(|| RelayedServer {
            id: server.id,
            uid: party.uid,
            user: Arc::clone(&party.user),
            agent: Arc::clone(&party.agent),
            agent_pid: party.agent_pid,
            agent_start: party.agent_start,
            identity: Arc::clone(&party.server),
            fail,
            candidate: false,
            seccomp,
        })
    }

    /// What the injector says of a process.
    pub(super) fn injected(&mut self, outcome: Outcome) {
        let result = match &outcome {
            Outcome::Injected(_) => "injected",
            Outcome::Confined { .. } => "confined",
            Outcome::Refused { reason, .. } => reason.name(),
            Outcome::Died { .. } => "died",
        };
        self.live.metrics.injections(result);
        match outcome {
            Outcome::Injected(ends) => self.relay(*ends),
            Outcome::Confined {
                pid,
                start_ns,
                confined,
            } => {
                self.confined_later(ProcKey { pid, start: start_ns }, confined);
            }
            Outcome::Refused {
                pid,
                start_ns,
                reason,
            } => {
                self.not_injected(ProcKey { pid, start: start_ns }, reason);
            }
            Outcome::Died { pid, start_ns } => {
                let proc = ProcKey { pid, start: start_ns };
                if let Some((id, server)) = self.enforce.asked.remove(&proc) {
                    self.unrelayed(id, &server, proc, "died");
                    self.answered(id, false);
                }
            }
        }
    }

    fn relay(&mut self, mut ends: Ends) {
        let proc = ProcKey {
            pid: ends.pid,
            start: ends.start_ns,
        };
        let Some((id, server)) = self.enforce.asked.remove(&proc) else {
            tracing::error!(
                pid = proc.pid,
                "a server was injected that nobody asked for; its connection is closed"
            );
            return;
        };
        self.tracker.relayed(id);
        self.relay_stands(id, proc, ends.server_ino, ends.confined.take());
        let Some(relays) = &mut self.enforce.outside.relays else {
            return;
        };
        let relayed = relays.relay(ends, server.clone());
        if let Err(error) = relayed {
            tracing::error!(server = %server.identity, pid = proc.pid, %error, "no relay; the server's connection is closed");
            self.tell_unrelayed(&server, proc, "no_relay");
        } else {
            tracing::info!(server = %server.identity, agent = %server.agent, uid = server.uid, pid = proc.pid, "a relay stands before a server");
        }
        self.answered(id, true);
    }

    /// The injector is through with a server: what was put off until then follows.
    fn answered(&mut self, id: InstanceId, relayed: bool) {
        let spoke = self
            .servers
            .get_mut(&id)
            .and_then(|server| server.set_answered(relayed));
        if let Some(time) = spoke {
            self.confirmed(id, time);
        }
    }

    /// A server runs without a relay that was to get one: told at once if it is known to be a server, else when it shows.
    fn unrelayed(&mut self, id: InstanceId, server: &RelayedServer, proc: ProcKey, why: &'static str) {
        if let (true, Some(entry)) = (server.candidate, self.servers.get_mut(&id)) {
            entry.unrelayed = Some(why);
        } else {
            self.tell_unrelayed(server, proc, why);
        }
    }

    fn not_injected(&mut self, proc: ProcKey, reason: Refusal) {
        if self.not_confined(proc, reason.name()) {
            return;
        }
        let Some((id, server)) = self.enforce.asked.remove(&proc) else {
            tracing::warn!(
                pid = proc.pid,
                reason = reason.name(),
                "a held process was let go"
            );
            return;
        };
        self.tracker.not_relayed(id);
        self.see_from_here(id);
        let closed = server.fail == Fail::Closed && !reason.is_fatal();
        let killed = closed && hold::kill(proc.pid, proc.start);
        tracing::error!(
            server = %server.identity, pid = proc.pid, reason = reason.name(), killed,
            "no relay could be put before a server"
        );
        self.unrelayed(id, &server, proc, reason.name());
        self.no_filter(id, reason.name());
        self.answered(id, false);
    }

    fn tell_unrelayed(&mut self, server: &RelayedServer, proc: ProcKey, why: &'static str) {
        tracing::warn!(server = %server.identity, uid = server.uid, pid = proc.pid, why, "a server runs without a relay");
        self.live.event(EventView {
            server: Some(server.identity.to_string()),
            reason: Some(why.to_owned()),
            ..of_server(server, EventKind::ServerUnrelayed)
        });
    }

    /// A server spoke MCP. Where policy wants it behind a relay and it is not, that is told; it was learned, and gets one at
    /// its next start.
    pub(super) fn confirmed_unrelayed(&mut self, id: InstanceId) {
        let Some(instance) = self.tracker.instance(id) else {
            return;
        };
        let Some(server) = self.servers.get(&id) else {
            return;
        };
        if self.enforce.injector.is_none() {
            return;
        }
        let Some(relayed) = self.enforced(server) else {
            return;
        };
        let why = match server.unrelayed {
            Some(why) => why,
            None if instance.adopted => "ran_before",
            None => "first_seen",
        };
        let (proc, behind_relay) = (instance.key.proc, instance.relayed);
        if !behind_relay {
            self.tell_unrelayed(&relayed, proc, why);
            // Only what has just begun: ending a session that ran before Kams did would do more harm than it prevents.
            if self.config.unrelayed == Unrelayed::Restart && why != "ran_before" {
                let killed = hold::kill_tree(proc.pid, proc.start);
                tracing::warn!(server = %relayed.identity, pid = proc.pid, killed, "a server without a relay was ended; it gets one at its next start");
            }
        }
        self.never_filtered(id, &relayed, proc, why);
    }

    /// Ends the daemon where the injector's thread is stuck: its parent lets go what is held, the kernel what is traced.
    pub(super) fn look_after_injector(&self) {
        if let Some(injector) = &self.enforce.injector
            && injector.silent_ns() > SILENT
        {
            tracing::error!("the injector's thread is stuck; kamsd ends and starts again");
            std::process::abort();
        }
    }
}

fn of_server(server: &RelayedServer, kind: EventKind) -> EventView {
    EventView {
        agent: Some(server.agent.to_string()),
        agent_pid: Some(server.agent_pid),
        ..EventView::new(kind, Time::now(), server.uid, &*server.user)
    }
}
