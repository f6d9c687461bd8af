//! Processes that hold the agent's end of streams.

use std::collections::hash_map::Entry;

use kams_export::view::{AgentView, EventKind, EventView};
use kams_host::Marks;

use super::judging::Work;
use super::sink::Sink;
use super::{Engine, to_wall};
use crate::discover::agents::{AgentKind, AgentName};
use crate::discover::tracker::ProcKey;

/// An agent process, or one on probation.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) start: u64,
    pub(super) uid: u32,
    /// None while on probation.
    pub(super) agent: Option<Known>,
}

impl Endpoint {
    /// Whether this is of that process, and not of an earlier one with its number.
    pub(super) fn is(&self, proc: ProcKey) -> bool {
        let own = ProcKey {
            pid: proc.pid,
            start: self.start,
        };
        own == proc
    }
}

/// What is shown of an agent.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) id: u64,
    pub(super) name: AgentName,
}

impl Engine {
    /// A process is an agent: from here on its calls on watched streams are read.
    pub(super) fn agent_started(&mut self, proc: ProcKey, uid: u32, name: &AgentName, time: u64) {
        if let Some(endpoint) = self.endpoints.get(&proc.pid)
            && endpoint.is(proc)
            && endpoint.agent.as_ref().is_some_and(|known| known.name == *name)
        {
            self.mark(proc, self.enforce.marks().with(Marks::TREE).with(Marks::ENDPOINT));
            return;
        }
        self.agent_ended(proc.pid, time);
        if !self.mark(proc, self.enforce.marks().with(Marks::TREE).with(Marks::ENDPOINT)) {
            self.missed_agents += 1;
            return;
        }
        self.attach_payload();
        let id = self.new_id();
        let known = Known {
            id,
            name: name.clone(),
        };
        self.endpoints.insert(
            proc.pid,
            Endpoint {
                start: proc.start,
                uid,
                agent: Some(known),
            },
        );
        self.share_endpoints();
        let person = self.outside.person(uid);
        self.configured.agent_started(person, proc.pid);
        let user = self.outside.user(uid);
        self.live.registry.lock().add_agent(AgentView {
            id,
            uid,
            user: user.to_string(),
            name: name.name.clone(),
            pid: proc.pid,
            started: to_wall(proc.start),
            live: true,
            known: name.kind != AgentKind::Learned,
            ..AgentView::default()
        });
        self.live.event(EventView {
            agent: Some(name.name.clone()),
            agent_pid: Some(proc.pid),
            reason: Some(name.kind.name().to_owned()),
            ..EventView::new(EventKind::AgentStarted, to_wall(time), uid, &*user)
        });
    }

    /// A program that is no known agent is looked at for a while.
    pub(super) fn probation_started(&mut self, proc: ProcKey, uid: u32) {
        if let Entry::Vacant(entry) = self.endpoints.entry(proc.pid) {
            entry.insert(Endpoint {
                start: proc.start,
                uid,
                agent: None,
            });
        }
        self.mark(proc, Marks::ENDPOINT.with(Marks::PROBATION));
        self.attach_payload();
    }

    /// The look is over.
    pub(super) fn probation_ended(&mut self, proc: ProcKey, learned: Option<AgentName>, time: u64) {
        let Some(endpoint) = self.endpoints.get(&proc.pid) else {
            return;
        };
        if !endpoint.is(proc) || endpoint.agent.is_some() {
            return;
        }
        let uid = endpoint.uid;
        if let Some(running) = &self.running {
            running.control.unmark(proc.pid, Marks::PROBATION);
        }
        if let Some(name) = learned {
            self.agent_started(proc, uid, &name, time);
        } else {
            self.endpoints.remove(&proc.pid);
            self.share_endpoints();
            if let Some(running) = &self.running {
                running.control.unmark(proc.pid, Marks::ENDPOINT);
            }
        }
    }

    /// A process ended, or runs another image that is no agent.
    pub(super) fn agent_ended(&mut self, pid: u32, time: u64) {
        let Some(endpoint) = self.endpoints.remove(&pid) else {
            return;
        };
        self.share_endpoints();
        let Some(Known { id, name }) = endpoint.agent else {
            return;
        };
        self.live.registry.lock().end_agent(id);
        let user = self.outside.user(endpoint.uid);
        let event = Box::new(EventView {
            agent: Some(name.name),
            agent_pid: Some(pid),
            ..EventView::new(EventKind::AgentGone, to_wall(time), endpoint.uid, &*user)
        });
        self.judging.hand(Work::AgentGone { pid, event });
    }

    /// Marks a process; false where it is gone.
    pub(super) fn mark(&mut self, proc: ProcKey, marks: Marks) -> bool {
        let Some(running) = &self.running else {
            return false;
        };
        self.starts.insert(proc.pid, proc.start);
        match running.control.mark(proc.pid, Some(proc.start), marks) {
            Ok(alive) => alive,
            Err(error) => {
                tracing::warn!(pid = proc.pid, %error, "a process could not be marked");
                false
            }
        }
    }

    pub(super) fn attach_payload(&mut self) {
        self.idle_ticks = 0;
        if let Some(running) = &self.running
            && let Err(error) = running.control.attach_payload()
        {
            tracing::error!(%error, "the payload probe cannot be attached: no traffic is seen");
        }
    }

    pub(super) fn share_endpoints(&self) {
        let agents = self
            .endpoints
            .iter()
            .filter(|(_, e)| e.agent.is_some())
            .map(|(pid, _)| *pid);
        *self
            .shared
            .endpoints
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = agents.collect();
    }
}
