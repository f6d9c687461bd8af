//! From exec reports to live servers: seen, candidate, confirmed or rejected, gone.
//!
//! The tracker does no IO and has no clock: facts and times come in, [`Action`]s go out. It follows a launcher chain
//! by its streams (every process of `npx -> sh -> node` holds the same two objects), so an instance begins with
//! the child the agent started and ends with the last holder. Kernel addresses and process numbers are reused;
//! processes are keyed with their start time, and an object that turns up where it cannot be ends the instance it
//! belonged to.
//!
//! Everything is bounded by [`Limits`]; what a limit drops is counted in [`Counters`].

mod instance;
mod memory;

use std::collections::{BTreeSet, HashMap, HashSet};

use super::agents::{AgentKind, AgentName};
use super::candidate::{Candidate, ObjectId, Reason};
use super::identity::{Resolved, ServerIdentity};
use super::opening::{Opened, Opening};
pub use instance::{
    GoneReason, Instance, InstanceId, InstanceKey, KnownBy, Nanos, ProcKey, Rejection, State,
};
use memory::Memory;
pub use memory::{ExeKey, ProgramKey};

const SECOND: Nanos = 1_000_000_000;

/// Whether a candidate of a program that is no known agent is looked at (`watch.unknown_agents`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UnknownAgents {
    /// Watch such a program for a short time; if it speaks MCP it is learned as an agent.
    #[default]
    Discover,
    /// Only configured and built-in agents count.
    Ignore,
}

/// Bounds. All counts are at least 1 in effect.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a candidate of a known agent may stay silent.
    pub candidate_time: Nanos,
    /// How long an unknown program stays on probation after its latest candidate.
    pub probation_time: Nanos,
    /// Unknown programs on probation at once.
    pub probation: usize,
    /// Wrong suspicions after which a program is left alone.
    pub doubts: u32,
    /// How long it is left alone.
    pub doubt_time: Nanos,
    /// Open candidates of one holder.
    pub candidates_per_holder: usize,
    /// Open candidates on the host.
    pub candidates: usize,
    /// Instances in any state on the host.
    pub instances: usize,
    /// Processes followed per instance, and forks followed per agent.
    pub members: usize,
    /// Learned agents remembered.
    pub learned: usize,
    /// Servers remembered.
    pub fingerprints: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            candidate_time: 60 * SECOND,
            probation_time: 20 * SECOND,
            probation: 64,
            doubts: 3,
            doubt_time: 3600 * SECOND,
            candidates_per_holder: 64,
            candidates: 512,
            instances: 8192,
            members: 512,
            learned: 512,
            fingerprints: 4096,
        }
    }
}

/// The process that holds the agent's end of a candidate.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The process.
    pub proc: ProcKey,
    /// What the agent table says about it.
    pub agent: Option<AgentName>,
    /// What it runs.
    pub program: ProgramKey,
}

/// What is known at an exec.
#[derive(Clone, Debug)]
pub struct Exec {
    /// When.
    pub time: Nanos,
    /// The process.
    pub proc: ProcKey,
    /// Its parent.
    pub parent: ProcKey,
    /// The user it runs as.
    pub uid: u32,
    /// What it is, or will start.
    pub resolved: Resolved,
    /// A client configuration of the user names this command.
    pub configured: bool,
    /// Objects behind fd 0 and fd 1 ([`super::candidate::stdio`]).
    pub stdio: Option<(ObjectId, ObjectId)>,
    /// Verdict on the shape ([`super::candidate::judge`]).
    pub shape: Result<Candidate, Reason>,
    /// Holder of the agent's end; needed for a candidate.
    pub holder: Option<Holder>,
    /// It was running before: its first line is past.
    pub adopted: bool,
}

/// What an exec turned out to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seen {
    /// A new candidate.
    Candidate(InstanceId),
    /// A further process of a chain that is followed already: no new server.
    SameChain(InstanceId),
    /// Not shaped like a server.
    NotShaped(Reason),
    /// The holder is no known agent, and unknown ones are ignored, doubted, or too many at present.
    UnknownAgent,
}

/// What the caller has to do or record.
#[derive(Clone, Debug)]
pub enum Action {
    /// Watch this unknown program's end of its streams, until [`Action::ProbationEnded`].
    ProbationStarted(ProcKey),
    /// Stop watching it, unless it was learned.
    ProbationEnded {
        /// The process.
        proc: ProcKey,
        /// It speaks MCP.
        learned: bool,
    },
    /// A program is an agent; from now on recognise it at exec with [`Tracker::is_learned`].
    AgentLearned(ProgramKey),
    /// MCP is spoken.
    Confirmed(InstanceId),
    /// No server after all.
    Rejected(InstanceId, Rejection),
    /// The chain reached a program that names the server better.
    Renamed {
        /// The instance.
        id: InstanceId,
        /// What it was called until now.
        from: ServerIdentity,
    },
    /// The instance ended; its state is handed out.
    Gone(InstanceId, Box<Instance>, GoneReason),
}

/// What limits dropped, since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Candidates given up because there were too many.
    pub candidates_evicted: u64,
    /// Instances given up because there were too many.
    pub instances_evicted: u64,
    /// Candidates of unknown programs not looked at because too many were on probation.
    pub probation_full: u64,
    /// Candidates of programs that are left alone after wrong suspicions.
    pub doubted: u64,
    /// Processes of an instance or forks of an agent that were not followed.
    pub members_dropped: u64,
}

#[derive(Debug)]
struct HolderRecord {
    program: ProgramKey,
    agent: Option<AgentName>,
    alive: bool,
    probation: bool,
    /// Forks without an exec of their own: they keep the agent's ends.
    clones: HashSet<ProcKey>,
    instances: BTreeSet<InstanceId>,
}

/// The state machine. One per host.
#[derive(Debug)]
pub struct Tracker {
    boot: [u8; 16],
    limits: Limits,
    unknown_agents: UnknownAgents,
    next: u64,
    instances: HashMap<InstanceId, Instance>,
    by_member: HashMap<ProcKey, InstanceId>,
    by_object: HashMap<ObjectId, InstanceId>,
    starts: HashMap<u32, Nanos>,
    holders: HashMap<ProcKey, HolderRecord>,
    clones: HashMap<ProcKey, ProcKey>,
    on_probation: usize,
    candidates: BTreeSet<InstanceId>,
    rejected: BTreeSet<InstanceId>,
    deadlines: BTreeSet<(Nanos, InstanceId)>,
    memory: Memory,
    counters: Counters,
}

impl Tracker {
    /// An empty tracker. `boot` is the kernel's boot id, part of every instance's name.
    pub fn new(boot: [u8; 16], limits: Limits, unknown_agents: UnknownAgents) -> Self {
        Self {
            boot,
            limits,
            unknown_agents,
            next: 0,
            instances: HashMap::new(),
            by_member: HashMap::new(),
            by_object: HashMap::new(),
            starts: HashMap::new(),
            holders: HashMap::new(),
            clones: HashMap::new(),
            on_probation: 0,
            candidates: BTreeSet::new(),
            rejected: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            memory: Memory::new(limits.learned, limits.learned, limits.fingerprints),
            counters: Counters::default(),
        }
    }

    /// Changes what is done about unknown agents, for later execs.
    pub fn set_unknown_agents(&mut self, mode: UnknownAgents) {
        self.unknown_agents = mode;
    }

    /// An instance by number.
    pub fn instance(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(&id)
    }

    /// All instances, rejected ones included, in no order.
    pub fn instances(&self) -> impl Iterator<Item = (InstanceId, &Instance)> {
        self.instances.iter().map(|(id, instance)| (*id, instance))
    }

    /// The instance that an object belongs to, at either end.
    pub fn by_object(&self, object: ObjectId) -> Option<InstanceId> {
        self.by_object.get(&object).copied()
    }

    /// The instance whose ends a process holds as the server or one of its launchers.
    pub fn by_member(&self, proc: ProcKey) -> Option<InstanceId> {
        self.by_member.get(&proc).copied()
    }

    /// Whether a program was learned as an agent.
    pub fn is_learned(&self, program: &ProgramKey) -> bool {
        self.memory.is_learned(program)
    }

    /// Whether a launch of this user is known from an earlier confirmed one.
    pub fn is_known_server(&mut self, uid: u32, identity: &ServerIdentity) -> bool {
        self.memory.knows_server(uid, identity)
    }

    /// What limits dropped.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// A process executed a new image.
    pub fn exec(&mut self, exec: &Exec, actions: &mut Vec<Action>) -> Seen {
        self.note_start(exec.proc, actions);
        if let Some(agent) = self.clones.remove(&exec.proc)
            && let Some(record) = self.holders.get_mut(&agent)
        {
            record.clones.remove(&exec.proc);
            self.end_holder_if_gone(agent, actions);
        }
        if let Some(id) = self.by_member.get(&exec.proc).copied() {
            if self.same_streams(id, exec.stdio) {
                self.rename(id, &exec.resolved, true, actions);
                return Seen::SameChain(id);
            }
            self.drop_member(exec.proc, actions);
        }
        if let Some(id) = self.shared_chain(exec) {
            self.add_member(id, exec.proc, actions);
            self.rename(id, &exec.resolved, false, actions);
            return Seen::SameChain(id);
        }
        let candidate = match exec.shape {
            Ok(candidate) => candidate,
            Err(reason) => return Seen::NotShaped(reason),
        };
        let Some(holder) = &exec.holder else {
            return Seen::UnknownAgent;
        };
        // An object of a live instance that is somewhere it cannot have been handed to was freed and reused.
        for object in [
            candidate.stdin,
            candidate.stdout,
            candidate.agent_writes,
            candidate.agent_reads,
        ] {
            if let Some(stale) = self.by_object.get(&object).copied() {
                self.end(stale, GoneReason::ObjectReused, actions);
            }
        }
        let known = if exec.configured {
            Some(KnownBy::Configuration)
        } else {
            self.memory
                .knows_server(exec.uid, &exec.resolved.identity)
                .then_some(KnownBy::Fingerprint)
        };
        let Some(agent) = self.admit(holder, exec.time, actions) else {
            return Seen::UnknownAgent;
        };
        self.make_room(holder.proc, exec.time, actions);
        Seen::Candidate(self.open(exec, candidate, holder.proc, agent, known, actions))
    }

    /// A process forked. Needed for members and for agents; harmless for others.
    pub fn fork(&mut self, parent: ProcKey, child: ProcKey, actions: &mut Vec<Action>) {
        let member = self.by_member.get(&parent).copied();
        let agent = if self.holders.contains_key(&parent) {
            Some(parent)
        } else {
            self.clones.get(&parent).copied()
        };
        if member.is_none() && agent.is_none() {
            return;
        }
        self.note_start(child, actions);
        if let Some(id) = member {
            self.add_member(id, child, actions);
        }
        if let Some(agent) = agent
            && let Some(record) = self.holders.get_mut(&agent)
        {
            if record.clones.len() < self.limits.members {
                record.clones.insert(child);
                self.clones.insert(child, agent);
                self.starts.insert(child.pid, child.start);
            } else {
                self.counters.members_dropped += 1;
            }
        }
        self.forget_start(child);
    }

    /// A thread group ended.
    pub fn exit(&mut self, proc: ProcKey, actions: &mut Vec<Action>) {
        self.drop_member(proc, actions);
        if let Some(agent) = self.clones.remove(&proc)
            && let Some(record) = self.holders.get_mut(&agent)
        {
            record.clones.remove(&proc);
            self.end_holder_if_gone(agent, actions);
        }
        if let Some(record) = self.holders.get_mut(&proc) {
            record.alive = false;
            self.end_holder_if_gone(proc, actions);
        }
        self.forget_start(proc);
    }

    /// The agent's end wrote these bytes into `object`. Returns the instance they belong to.
    pub fn agent_wrote(
        &mut self,
        object: ObjectId,
        bytes: &[u8],
        time: Nanos,
        actions: &mut Vec<Action>,
    ) -> Option<InstanceId> {
        let id = self.by_object.get(&object).copied()?;
        let instance = self.instances.get_mut(&id)?;
        if instance.streams.agent_writes == object && matches!(instance.state, State::Candidate(_)) {
            match instance.opening.push(bytes) {
                Opened::Pending => {}
                Opened::Mcp => self.confirm(id, actions),
                Opened::Not(why) => self.reject(id, Rejection::NotMcp(why), time, actions),
            }
        }
        Some(id)
    }

    /// The agent's end read something from `object`: the server is up, and its name stays.
    pub fn agent_read(&mut self, object: ObjectId) -> Option<InstanceId> {
        let id = self.by_object.get(&object).copied()?;
        let instance = self.instances.get_mut(&id)?;
        if instance.streams.agent_reads == object && instance.state == State::Confirmed {
            instance.frozen = true;
        }
        Some(id)
    }

    /// The agent closed its writing end.
    pub fn agent_closed(&mut self, object: ObjectId, time: Nanos, actions: &mut Vec<Action>) {
        if let Some(id) = self.by_object.get(&object).copied()
            && self
                .instances
                .get(&id)
                .is_some_and(|instance| instance.streams.agent_writes == object)
        {
            self.reject(id, Rejection::Eof, time, actions);
        }
    }

    /// Lets time limits take effect. Call about once a second.
    pub fn tick(&mut self, now: Nanos, actions: &mut Vec<Action>) {
        while let Some((at, id)) = self.deadlines.first().copied()
            && at <= now
        {
            self.deadlines.pop_first();
            self.reject(id, Rejection::Time, now, actions);
        }
    }

    /// Entries held in all tables together: what a leak would make grow.
    pub fn size(&self) -> usize {
        let nested: usize = self
            .instances
            .values()
            .map(|instance| instance.members.len())
            .sum();
        self.instances.len()
            + nested
            + self.by_member.len()
            + self.by_object.len()
            + self.starts.len()
            + self.holders.len()
            + self.clones.len()
            + self.candidates.len()
            + self.rejected.len()
            + self.deadlines.len()
            + self.memory.sizes().iter().sum::<usize>()
    }

    /// Ends what a former process of the same number left behind: its exit was missed.
    fn note_start(&mut self, proc: ProcKey, actions: &mut Vec<Action>) {
        if let Some(start) = self.starts.get(&proc.pid).copied()
            && start != proc.start
        {
            self.exit(ProcKey { pid: proc.pid, start }, actions);
        }
    }

    fn forget_start(&mut self, proc: ProcKey) {
        let held = self.by_member.contains_key(&proc)
            || self.clones.contains_key(&proc)
            || self.holders.contains_key(&proc);
        if !held && self.starts.get(&proc.pid) == Some(&proc.start) {
            self.starts.remove(&proc.pid);
        }
    }

    fn same_streams(&self, id: InstanceId, stdio: Option<(ObjectId, ObjectId)>) -> bool {
        self.instances
            .get(&id)
            .is_some_and(|instance| stdio == Some((instance.streams.stdin, instance.streams.stdout)))
    }

    /// The chain a new process belongs to: its parent is in it and it holds the same two streams.
    fn shared_chain(&self, exec: &Exec) -> Option<InstanceId> {
        let id = self.by_member.get(&exec.parent).copied()?;
        self.same_streams(id, exec.stdio).then_some(id)
    }

    fn rename(&mut self, id: InstanceId, later: &Resolved, same_process: bool, actions: &mut Vec<Action>) {
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        if let Some(from) = instance.refine(later, same_process) {
            if instance.state == State::Confirmed {
                self.memory.remember_server(instance.uid, &instance.identity);
            }
            actions.push(Action::Renamed { id, from });
        }
    }

    /// The agent a holder is (none inside when on probation), or `None` when its candidates are not looked at.
    #[expect(
        clippy::option_option,
        reason = "refused, on probation and known are three answers"
    )]
    fn admit(
        &mut self,
        holder: &Holder,
        time: Nanos,
        actions: &mut Vec<Action>,
    ) -> Option<Option<AgentName>> {
        let learned = || AgentName {
            name: learned_name(&holder.program),
            kind: AgentKind::Learned,
        };
        let agent = match &holder.agent {
            Some(agent) => Some(agent.clone()),
            None => self.memory.recall_agent(&holder.program).then(learned),
        };
        if let Some(record) = self.holders.get(&holder.proc) {
            return Some(agent.or_else(|| record.agent.clone()));
        }
        let probation = agent.is_none();
        if probation {
            if self.unknown_agents == UnknownAgents::Ignore {
                return None;
            }
            if self
                .memory
                .is_doubted(&holder.program, time, self.limits.doubts, self.limits.doubt_time)
            {
                self.counters.doubted += 1;
                return None;
            }
            if self.on_probation >= self.limits.probation {
                self.counters.probation_full += 1;
                return None;
            }
            self.on_probation += 1;
            actions.push(Action::ProbationStarted(holder.proc));
        }
        self.note_start(holder.proc, actions);
        self.starts.insert(holder.proc.pid, holder.proc.start);
        self.holders.insert(
            holder.proc,
            HolderRecord {
                program: holder.program.clone(),
                agent: agent.clone(),
                alive: true,
                probation,
                clones: HashSet::new(),
                instances: BTreeSet::new(),
            },
        );
        Some(agent)
    }

    fn make_room(&mut self, holder: ProcKey, time: Nanos, actions: &mut Vec<Action>) {
        let own = self.holders.get(&holder).map(|record| {
            let mut open = record.instances.iter().filter(|id| self.candidates.contains(id));
            let oldest = open.next().copied();
            (oldest, open.count() + usize::from(oldest.is_some()))
        });
        let victim = match own {
            Some((Some(oldest), count)) if count >= self.limits.candidates_per_holder => Some(oldest),
            _ if self.candidates.len() >= self.limits.candidates.max(1) => self.candidates.first().copied(),
            _ => None,
        };
        if let Some(victim) = victim {
            self.counters.candidates_evicted += 1;
            // The holder that is being served must not lose its probation over this.
            self.reject_quietly(victim, Rejection::Limit, time, actions, Some(holder));
        }
        if self.instances.len() >= self.limits.instances.max(1) {
            let victim = self
                .rejected
                .first()
                .or_else(|| self.candidates.first())
                .copied()
                .or_else(|| self.instances.keys().min().copied());
            if let Some(victim) = victim {
                self.counters.instances_evicted += 1;
                self.end_keeping(victim, GoneReason::Limit, actions, Some(holder));
            }
        }
    }

    fn open(
        &mut self,
        exec: &Exec,
        streams: Candidate,
        holder: ProcKey,
        agent: Option<AgentName>,
        known: Option<KnownBy>,
        actions: &mut Vec<Action>,
    ) -> InstanceId {
        let id = InstanceId(self.next);
        self.next += 1;
        let time = if agent.is_some() {
            self.limits.candidate_time
        } else {
            self.limits.probation_time
        };
        // A known server of a known agent may be opened as late as the agent likes.
        let deadline = (known.is_none() || agent.is_none()).then(|| exec.time.saturating_add(time));
        let instance = Instance {
            key: InstanceKey {
                boot: self.boot,
                proc: exec.proc,
            },
            uid: exec.uid,
            agent,
            holder,
            streams,
            identity: exec.resolved.identity.clone(),
            known,
            adopted: exec.adopted,
            state: State::Candidate(deadline),
            launcher: exec.resolved.launcher.is_some(),
            frozen: false,
            opening: if exec.adopted {
                Opening::of_running_stream()
            } else {
                Opening::default()
            },
            members: HashSet::new(),
            untracked_members: false,
        };
        for object in instance.objects() {
            self.by_object.insert(object, id);
        }
        if let Some(at) = deadline {
            self.deadlines.insert((at, id));
        }
        self.candidates.insert(id);
        self.instances.insert(id, instance);
        self.add_member(id, exec.proc, actions);
        if let Some(record) = self.holders.get_mut(&holder) {
            record.instances.insert(id);
        }
        id
    }

    fn add_member(&mut self, id: InstanceId, proc: ProcKey, actions: &mut Vec<Action>) {
        if self.by_member.get(&proc).is_some_and(|other| *other != id) {
            self.drop_member(proc, actions);
        }
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        if instance.members.len() >= self.limits.members.max(1) {
            instance.untracked_members = true;
            self.counters.members_dropped += 1;
            return;
        }
        instance.members.insert(proc);
        self.by_member.insert(proc, id);
        self.starts.insert(proc.pid, proc.start);
    }

    fn drop_member(&mut self, proc: ProcKey, actions: &mut Vec<Action>) {
        let Some(id) = self.by_member.remove(&proc) else {
            return;
        };
        self.forget_start(proc);
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        instance.members.remove(&proc);
        // With processes that were not followed, only the agent's end tells; of a rejected one nobody asks.
        let followed = !instance.untracked_members || matches!(instance.state, State::Rejected(_));
        if instance.members.is_empty() && followed {
            self.end(id, GoneReason::Exited, actions);
        }
    }

    fn confirm(&mut self, id: InstanceId, actions: &mut Vec<Action>) {
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        if let State::Candidate(Some(at)) = instance.state {
            self.deadlines.remove(&(at, id));
        }
        self.candidates.remove(&id);
        instance.state = State::Confirmed;
        instance.opening = Opening::default();
        self.memory.remember_server(instance.uid, &instance.identity);
        let holder = instance.holder;
        if let Some(record) = self.holders.get_mut(&holder)
            && record.probation
        {
            record.probation = false;
            self.on_probation -= 1;
            let agent = AgentName {
                name: learned_name(&record.program),
                kind: AgentKind::Learned,
            };
            record.agent = Some(agent.clone());
            if self.memory.learn(&record.program) {
                actions.push(Action::AgentLearned(record.program.clone()));
            }
            for sibling in &record.instances {
                if let Some(instance) = self.instances.get_mut(sibling) {
                    instance.agent = Some(agent.clone());
                }
            }
            actions.push(Action::ProbationEnded {
                proc: holder,
                learned: true,
            });
        }
        actions.push(Action::Confirmed(id));
    }

    fn reject(&mut self, id: InstanceId, why: Rejection, time: Nanos, actions: &mut Vec<Action>) {
        self.reject_quietly(id, why, time, actions, None);
    }

    fn reject_quietly(
        &mut self,
        id: InstanceId,
        why: Rejection,
        time: Nanos,
        actions: &mut Vec<Action>,
        keep: Option<ProcKey>,
    ) {
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        let State::Candidate(deadline) = instance.state else {
            return;
        };
        if let Some(at) = deadline {
            self.deadlines.remove(&(at, id));
        }
        self.candidates.remove(&id);
        instance.state = State::Rejected(why);
        instance.opening = Opening::default();
        self.rejected.insert(id);
        let holder = instance.holder;
        actions.push(Action::Rejected(id, why));
        if let Some(record) = self.holders.get(&holder)
            && record.probation
            && why != Rejection::Limit
        {
            self.memory.doubt(&record.program, time);
        }
        if keep != Some(holder) {
            self.release_holder(holder, actions);
        }
    }

    fn end(&mut self, id: InstanceId, why: GoneReason, actions: &mut Vec<Action>) {
        self.end_keeping(id, why, actions, None);
    }

    fn end_keeping(
        &mut self,
        id: InstanceId,
        why: GoneReason,
        actions: &mut Vec<Action>,
        keep: Option<ProcKey>,
    ) {
        let Some(mut instance) = self.instances.remove(&id) else {
            return;
        };
        if let State::Candidate(Some(at)) = instance.state {
            self.deadlines.remove(&(at, id));
        }
        self.candidates.remove(&id);
        self.rejected.remove(&id);
        for object in instance.objects() {
            if self.by_object.get(&object) == Some(&id) {
                self.by_object.remove(&object);
            }
        }
        for member in std::mem::take(&mut instance.members) {
            self.by_member.remove(&member);
            self.forget_start(member);
        }
        let holder = instance.holder;
        if let Some(record) = self.holders.get_mut(&holder) {
            record.instances.remove(&id);
        }
        actions.push(Action::Gone(id, Box::new(instance), why));
        if keep != Some(holder) {
            self.release_holder(holder, actions);
        }
    }

    /// Ends the probation of a holder without open candidates, and forgets one without instances.
    fn release_holder(&mut self, proc: ProcKey, actions: &mut Vec<Action>) {
        let Some(record) = self.holders.get_mut(&proc) else {
            return;
        };
        let open = record.instances.iter().any(|id| self.candidates.contains(id));
        if record.probation && !open {
            record.probation = false;
            self.on_probation -= 1;
            actions.push(Action::ProbationEnded { proc, learned: false });
            // Rejected instances stay for their chain's sake, and no longer under this holder.
            record.instances.clear();
        }
        if record.instances.is_empty()
            && let Some(record) = self.holders.remove(&proc)
        {
            for clone in record.clones {
                self.clones.remove(&clone);
                self.forget_start(clone);
            }
            self.forget_start(proc);
        }
    }

    /// When the agent and every fork that kept its ends are gone, nobody can talk to its servers.
    fn end_holder_if_gone(&mut self, proc: ProcKey, actions: &mut Vec<Action>) {
        let Some(record) = self.holders.get(&proc) else {
            return;
        };
        if record.alive || !record.clones.is_empty() {
            return;
        }
        for id in record.instances.clone() {
            self.end(id, GoneReason::AgentExited, actions);
        }
        self.release_holder(proc, actions);
    }
}

/// What a learned agent is called: its script's identity, or its executable's name.
fn learned_name(program: &ProgramKey) -> String {
    match &program.script {
        Some(script) => script.to_string(),
        None => program.exe.path.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests;
