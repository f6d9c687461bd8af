//! The steps that the tracker's events are made of. Each leaves all tables in agreement.

use std::collections::{BTreeSet, HashSet};

use super::facts::{Action, Exec, Holder, UnknownAgents};
use super::instance::{
    GoneReason, Instance, InstanceId, InstanceKey, KnownBy, Nanos, ProcKey, Rejection, State,
};
use super::{HolderRecord, Tracker};
use crate::discover::agents::{AgentKind, AgentName};
use crate::discover::candidate::{Candidate, ObjectId, Reason};
use crate::discover::identity::Resolved;
use crate::discover::opening::Opening;

impl Tracker {
    /// Ends what a former process of the same number left behind: its exit was missed.
    pub(super) fn note_start(&mut self, proc: ProcKey, actions: &mut Vec<Action>) {
        if let Some(start) = self.starts.get(&proc.pid).copied() {
            let before = ProcKey { pid: proc.pid, start };
            if before != proc {
                self.exit(before, actions);
            }
        }
    }

    pub(super) fn forget_start(&mut self, proc: ProcKey) {
        let held = self.by_member.contains_key(&proc)
            || self.clones.contains_key(&proc)
            || self.holders.contains_key(&proc);
        let same = |start| ProcKey { pid: proc.pid, start } == proc;
        if !held && self.starts.get(&proc.pid).copied().is_some_and(same) {
            self.starts.remove(&proc.pid);
        }
    }

    pub(super) fn same_streams(&self, id: InstanceId, stdio: Option<(ObjectId, ObjectId)>) -> bool {
        self.instances
            .get(&id)
            .is_some_and(|instance| stdio == Some((instance.streams.stdin, instance.streams.stdout)))
    }

    /// Whether an image that a member runs leaves it in its chain: it holds the same two streams, or those that a relay
    /// put in their place.
    pub(super) fn stays(&self, id: InstanceId, exec: &Exec) -> bool {
        let relayed = self.instances.get(&id).is_some_and(|instance| instance.relayed);
        relayed || self.same_streams(id, exec.stdio)
    }

    /// The chain a new process belongs to: its parent is in it and it holds the same two streams.
    pub(super) fn shared_chain(&self, exec: &Exec) -> Option<InstanceId> {
        let id = self.by_member.get(&exec.parent).copied()?;
        let relayed = self.instances.get(&id).is_some_and(|instance| instance.relayed);
        // Behind a relay the chain has other objects than its first process began with; they are inherited all the same.
        let inherits = relayed && exec.shape == Err(Reason::StdinInherited);
        (inherits || self.same_streams(id, exec.stdio)).then_some(id)
    }

    pub(super) fn rename(
        &mut self,
        id: InstanceId,
        later: &Resolved,
        proc: ProcKey,
        actions: &mut Vec<Action>,
    ) {
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        if let Some(from) = instance.refine(later, proc) {
            if instance.state == State::Confirmed
                && self.memory.remember_server(instance.uid, &instance.identity)
            {
                actions.push(Action::ServerLearned(instance.uid, instance.identity.clone()));
            }
            actions.push(Action::Renamed { id, from });
        }
    }

    /// The agent a holder is (none inside when on probation), or `None` when its candidates are not looked at.
    #[expect(
        clippy::option_option,
        reason = "refused, on probation and known are three answers"
    )]
    pub(super) fn admit(
        &mut self,
        holder: &Holder,
        time: Nanos,
        actions: &mut Vec<Action>,
    ) -> Option<Option<AgentName>> {
        let learned = || AgentName {
            name: holder.program.name(),
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

    pub(super) fn make_room(&mut self, holder: ProcKey, time: Nanos, actions: &mut Vec<Action>) {
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

    pub(super) fn open(
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
            relayed: false,
            state: State::Candidate(deadline),
            launcher: exec.resolved.launcher.is_some(),
            named_by: exec.proc,
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

    pub(super) fn add_member(&mut self, id: InstanceId, proc: ProcKey, actions: &mut Vec<Action>) {
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

    pub(super) fn drop_member(&mut self, proc: ProcKey, actions: &mut Vec<Action>) {
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

    pub(super) fn drop_clone(&mut self, proc: ProcKey, actions: &mut Vec<Action>) {
        let Some(agent) = self.clones.remove(&proc) else {
            return;
        };
        self.forget_start(proc);
        if let Some(record) = self.holders.get_mut(&agent) {
            record.clones.remove(&proc);
            self.end_holder_if_gone(agent, actions);
        }
    }

    pub(super) fn confirm(&mut self, id: InstanceId, actions: &mut Vec<Action>) {
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        if let State::Candidate(Some(at)) = instance.state {
            self.deadlines.remove(&(at, id));
        }
        self.candidates.remove(&id);
        instance.state = State::Confirmed;
        instance.opening = Opening::default();
        if self.memory.remember_server(instance.uid, &instance.identity) {
            actions.push(Action::ServerLearned(instance.uid, instance.identity.clone()));
        }
        let holder = instance.holder;
        if let Some(record) = self.holders.get_mut(&holder)
            && record.probation
        {
            record.probation = false;
            self.on_probation -= 1;
            let agent = AgentName {
                name: record.program.name(),
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

    pub(super) fn reject(&mut self, id: InstanceId, why: Rejection, time: Nanos, actions: &mut Vec<Action>) {
        self.reject_quietly(id, why, time, actions, None);
    }

    pub(super) fn reject_quietly(
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

    pub(super) fn end(&mut self, id: InstanceId, why: GoneReason, actions: &mut Vec<Action>) {
        self.end_keeping(id, why, actions, None);
    }

    pub(super) fn end_keeping(
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
    pub(super) fn release_holder(&mut self, proc: ProcKey, actions: &mut Vec<Action>) {
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
    pub(super) fn end_holder_if_gone(&mut self, proc: ProcKey, actions: &mut Vec<Action>) {
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
