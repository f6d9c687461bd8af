//! From exec reports to live servers: seen, candidate, confirmed or rejected, gone.
//!
//! The tracker does no IO and has no clock: facts and times come in, [`Action`]s go out. It follows a launcher chain
//! by its streams (every process of `npx -> sh -> node` holds the same two objects), so an instance begins with
//! the child the agent started and ends with the last holder. Kernel addresses and process numbers are reused;
//! processes are keyed with their start time, and an object that turns up where it cannot be ends the instance it
//! belonged to.
//!
//! Everything is bounded by [`Limits`]; what a limit drops is counted in [`Counters`].

mod facts;
mod instance;
mod memory;
mod steps;

use std::collections::{BTreeSet, HashMap, HashSet};

use super::agents::AgentName;
use super::candidate::ObjectId;
use super::identity::ServerIdentity;
use super::opening::Opened;
pub use facts::{Action, Counters, Exec, Holder, Limits, Seen, UnknownAgents};
pub use instance::{
    GoneReason, Instance, InstanceId, InstanceKey, KnownBy, Nanos, ProcKey, Rejection, State,
};
use memory::Memory;
pub use memory::{ExeKey, ProgramKey};

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

    /// Forgets who runs; what was learned of programs and servers stays.
    pub fn start_again(&mut self) {
        let mut new = Self::new(self.boot, self.limits, self.unknown_agents);
        std::mem::swap(&mut new.memory, &mut self.memory);
        new.counters = self.counters;
        // Numbers are not used again: something may still be on its way under an old one.
        new.next = self.next;
        *self = new;
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

    /// A server that an earlier tracker knew.
    pub fn recall_server(&mut self, uid: u32, identity: &ServerIdentity) {
        // News to this tracker only.
        let _news = self.memory.remember_server(uid, identity);
    }

    /// What limits dropped.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// A process executed a new image.
    pub fn exec(&mut self, exec: &Exec, actions: &mut Vec<Action>) -> Seen {
        self.note_start(exec.proc, actions);
        self.drop_clone(exec.proc, actions);
        if let Some(id) = self.by_member.get(&exec.proc).copied() {
            if self.stays(id, exec) {
                self.rename(id, &exec.resolved, exec.proc, actions);
                return Seen::SameChain(id);
            }
            self.drop_member(exec.proc, actions);
        }
        if let Some(id) = self.shared_chain(exec) {
            self.add_member(id, exec.proc, actions);
            self.rename(id, &exec.resolved, exec.proc, actions);
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

    /// A relay stands before the server from now on, or is being put there; the agent's objects stay what they were.
    pub fn relayed(&mut self, id: InstanceId) {
        self.set_relayed(id, true);
    }

    /// None could be put there.
    pub fn not_relayed(&mut self, id: InstanceId) {
        self.set_relayed(id, false);
    }

    fn set_relayed(&mut self, id: InstanceId, relayed: bool) {
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.relayed = relayed;
        }
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
        if let Some(agent) = agent {
            // A child that is another agent's fork already: that one's exit was missed.
            self.drop_clone(child, actions);
            if let Some(record) = self.holders.get_mut(&agent) {
                if record.clones.len() < self.limits.members.max(1) {
                    record.clones.insert(child);
                    self.clones.insert(child, agent);
                    self.starts.insert(child.pid, child.start);
                } else {
                    self.counters.members_dropped += 1;
                }
            }
        }
        self.forget_start(child);
    }

    /// A thread group ended.
    pub fn exit(&mut self, proc: ProcKey, actions: &mut Vec<Action>) {
        self.drop_member(proc, actions);
        self.drop_clone(proc, actions);
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
}

#[cfg(test)]
mod tests;
