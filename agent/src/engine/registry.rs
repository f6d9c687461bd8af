//! What the admin API shows of agents, servers and tools. The engine writes, requests read; the lock is held briefly.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kams_relay::holder::Held;

use kams_export::view::{AgentView, EventKind, EventView, Outcome, ServerState, ServerView, Time, ToolView};

/// Ended servers and agents that are remembered, host-wide.
const GONE: usize = 512;
/// Tools remembered per server; a server that lists more shows the first ones.
const TOOLS: usize = 2_048;
/// Latest latencies per tool, from which the median comes.
const LATENCIES: usize = 32;

/// The shared tables.
#[derive(Debug, Default)]
pub struct Registry {
    inner: Mutex<Inner>,
}

/// The tables under the lock.
#[derive(Debug, Default)]
pub struct Inner {
    agents: BTreeMap<u64, AgentView>,
    servers: BTreeMap<u64, Entry>,
    remote: Vec<ServerView>,
    gone_agents: VecDeque<u64>,
    gone_servers: VecDeque<u64>,
    calls: u64,
    calls_of: HashMap<u32, u64>,
}

#[derive(Debug, Default)]
struct Entry {
    view: ServerView,
    tools: BTreeMap<String, Tool>,
}

#[derive(Debug, Default)]
struct Tool {
    view: ToolView,
    latencies: VecDeque<u64>,
}

impl Registry {
    /// The tables, for reading or for a change that no event tells.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Enters an agent.
    pub fn add_agent(&mut self, agent: AgentView) {
        self.agents.insert(agent.id, agent);
    }

    /// Enters a server.
    pub fn add_server(&mut self, server: ServerView) {
        self.servers.insert(
            server.id,
            Entry {
                view: server,
                tools: BTreeMap::new(),
            },
        );
    }

    /// An agent.
    pub fn agent_mut(&mut self, id: u64) -> Option<&mut AgentView> {
        self.agents.get_mut(&id)
    }

    /// A server.
    pub fn server_mut(&mut self, id: u64) -> Option<&mut ServerView> {
        self.servers.get_mut(&id).map(|entry| &mut entry.view)
    }

    /// A tool of a server, made where it is new and there is room.
    pub fn tool_mut(&mut self, server: u64, tool: &str, seen: Time) -> Option<&mut ToolView> {
        self.servers
            .get_mut(&server)?
            .tool(tool, seen)
            .map(|tool| &mut tool.view)
    }

    /// Whether a server has said something of itself.
    pub fn introduced(&self, id: u64) -> bool {
        self.servers
            .get(&id)
            .is_some_and(|entry| entry.view.name.is_some() || entry.view.tools.is_some())
    }

    /// Enters what the filters of servers were asked; also of those whose filters an earlier daemon put on.
    pub fn show_held(&mut self, held: &[Held]) {
        let live = |view: &&mut ServerView| view.state != ServerState::Gone;
        for view in self
            .servers
            .values_mut()
            .map(|entry| &mut entry.view)
            .filter(live)
        {
            let mut of_server = held.iter().filter(|one| one.server == view.pid).peekable();
            if of_server.peek().is_none() {
                continue;
            }
            let seccomp = view.seccomp.get_or_insert_default();
            (seccomp.asked, seccomp.refused) = (0, 0);
            let mut allow = true;
            for one in of_server {
                seccomp.asked += one.asked;
                seccomp.refused += one.refused;
                allow &= one.allow;
            }
            if seccomp.setting.is_empty() {
                if allow { "allowing" } else { "refusing" }.clone_into(&mut seccomp.state);
            }
        }
    }

    /// Live servers whose filter is in this state.
    pub fn filtered(&self, state: &str) -> usize {
        self.live_servers()
            .filter(|view| {
                view.seccomp
                    .as_ref()
                    .is_some_and(|seccomp| seccomp.state == state)
            })
            .count()
    }

    /// Servers that configurations name and that are reached over HTTP.
    pub fn set_remote(&mut self, remote: Vec<ServerView>) {
        self.remote = remote;
    }

    /// Forgets a server that never was one.
    pub fn remove_server(&mut self, id: u64) {
        self.servers.remove(&id);
    }

    /// Marks a server as ended; the oldest ended ones are forgotten.
    pub fn end_server(&mut self, id: u64, at: Time) {
        let Some(entry) = self.servers.get_mut(&id) else {
            return;
        };
        entry.view.state = ServerState::Gone;
        entry.view.ended = Some(at);
        self.gone_servers.push_back(id);
        if self.gone_servers.len() > GONE
            && let Some(oldest) = self.gone_servers.pop_front()
        {
            self.servers.remove(&oldest);
        }
    }

    /// Marks an agent as ended; the oldest ended ones are forgotten.
    pub fn end_agent(&mut self, id: u64) {
        let Some(agent) = self.agents.get_mut(&id) else {
            return;
        };
        agent.live = false;
        self.gone_agents.push_back(id);
        if self.gone_agents.len() > GONE
            && let Some(oldest) = self.gone_agents.pop_front()
        {
            self.agents.remove(&oldest);
        }
    }

    /// Everything is gone: the sensor was switched off.
    pub fn end_all(&mut self, at: Time) {
        let servers: Vec<u64> = self.live_servers().map(|s| s.id).collect();
        for id in servers {
            self.end_server(id, at);
        }
        let agents: Vec<u64> = self.agents.values().filter(|a| a.live).map(|a| a.id).collect();
        for id in agents {
            self.end_agent(id);
        }
    }

    /// Counts what an event says about its server.
    pub fn apply(&mut self, event: &EventView) {
        let Some(entry) = event.server_id.and_then(|id| self.servers.get_mut(&id)) else {
            return;
        };
        let view = &mut entry.view;
        let bytes = event.bytes.unwrap_or(0);
        match event.direction {
            Some(kams_export::view::Direction::ToServer) => view.bytes_to_server += bytes,
            Some(kams_export::view::Direction::ToAgent) => view.bytes_to_agent += bytes,
            _ => {}
        }
        match event.event {
            EventKind::Gap => view.gaps += 1,
            EventKind::ToolsListed => view.tools = event.count.and_then(|n| u32::try_from(n).ok()),
            EventKind::ToolCall => {
                view.last_message = Some(event.time);
                view.calls += 1;
                let (agent_pid, uid) = (view.agent_pid, view.uid);
                if let Some(tool) = event
                    .tool
                    .as_deref()
                    .and_then(|name| entry.tool(name, event.time))
                {
                    tool.view.calls += 1;
                }
                self.calls += 1;
                *self.calls_of.entry(uid).or_default() += 1;
                let live = self.agents.values_mut().find(|a| a.live && a.pid == agent_pid);
                if let Some(agent) = live {
                    agent.calls += 1;
                }
            }
            EventKind::ToolResult => {
                view.last_message = Some(event.time);
                let failed = matches!(event.outcome, Some(Outcome::ToolError | Outcome::Error));
                view.errors += u64::from(failed);
                if let Some(tool) = event
                    .tool
                    .as_deref()
                    .and_then(|name| entry.tool(name, event.time))
                {
                    tool.view.errors += u64::from(failed);
                    tool.answered(event.latency_us);
                }
            }
            EventKind::Request | EventKind::Response | EventKind::Notification => {
                view.last_message = Some(event.time);
            }
            _ => {}
        }
    }

    /// All agents, oldest first.
    pub fn agents(&self) -> impl Iterator<Item = &AgentView> {
        self.agents.values()
    }

    /// All servers, oldest first.
    pub fn servers(&self) -> impl Iterator<Item = &ServerView> {
        self.servers.values().map(|entry| &entry.view).chain(&self.remote)
    }

    /// Servers on this host that have not ended.
    pub fn live_servers(&self) -> impl Iterator<Item = &ServerView> {
        let local = self.servers.values().map(|entry| &entry.view);
        local.filter(|s| s.state != ServerState::Gone)
    }

    /// All tools with their servers.
    pub fn tools(&self) -> impl Iterator<Item = (&ServerView, &ToolView)> {
        self.servers
            .values()
            .flat_map(|e| e.tools.values().map(move |t| (&e.view, &t.view)))
    }

    /// Tool calls since the start, of one user or all.
    pub fn calls(&self, uid: Option<u32>) -> u64 {
        uid.map_or(self.calls, |uid| self.calls_of.get(&uid).copied().unwrap_or(0))
    }
}

impl Entry {
    fn tool(&mut self, name: &str, seen: Time) -> Option<&mut Tool> {
        if !self.tools.contains_key(name) {
            if self.tools.len() >= TOOLS {
                return None;
            }
            let ServerView {
                uid,
                user,
                identity,
                id,
                ..
            } = &self.view;
            let view = ToolView {
                uid: *uid,
                user: user.clone(),
                server: identity.clone(),
                server_id: *id,
                tool: name.to_owned(),
                first_seen: Some(seen),
                ..ToolView::default()
            };
            self.tools.insert(
                name.to_owned(),
                Tool {
                    view,
                    latencies: VecDeque::new(),
                },
            );
        }
        let tool = self.tools.get_mut(name)?;
        tool.view.last_seen = Some(seen);
        Some(tool)
    }
}

impl Tool {
    fn answered(&mut self, latency_us: Option<u64>) {
        let Some(latency) = latency_us else { return };
        if self.latencies.len() == LATENCIES {
            self.latencies.pop_front();
        }
        self.latencies.push_back(latency);
        let mut sorted: Vec<u64> = self.latencies.iter().copied().collect();
        sorted.sort_unstable();
        self.view.median_us = sorted.get(sorted.len() / 2).copied();
    }
}
