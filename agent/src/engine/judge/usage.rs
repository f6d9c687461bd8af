//! True token counts against estimates: what entered an agent's context since its last report, and what it cost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kams_detect::cost::{Entered, Point};

use super::{Judge, Owner};
use crate::engine::sink::Sink;

/// Agents whose results are remembered; the longest silent ones are forgotten.
const AGENTS: usize = 1_024;
/// Server instances of one agent; results of further ones are not spread.
const SERVERS: usize = 256;

/// Bytes by server instance.
type Entries = BTreeMap<u64, (Arc<str>, u64)>;

/// Bytes that entered the contexts of agents and were not reported yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    agents: BTreeMap<(u32, u32), Entries>,
    order: VecDeque<(u32, u32)>,
}

impl Pending {
    pub(super) fn entered(&mut self, uid: u32, agent: u32, server_id: u64, server: &Arc<str>, bytes: u64) {
        let key = (uid, agent);
        if !self.agents.contains_key(&key) {
            self.order.push_back(key);
            if self.order.len() > AGENTS
                && let Some(oldest) = self.order.pop_front()
            {
                self.agents.remove(&oldest);
            }
        }
        let servers = self.agents.entry(key).or_default();
        if let Some((_, sum)) = servers.get_mut(&server_id) {
            *sum = sum.saturating_add(bytes);
        } else if servers.len() < SERVERS {
            servers.insert(server_id, (Arc::clone(server), bytes));
        }
    }

    fn take(&mut self, uid: u32, agent: u32, server: Option<&str>) -> Vec<(u64, Arc<str>, u64)> {
        let Some(servers) = self.agents.get_mut(&(uid, agent)) else {
            return Vec::new();
        };
        let mut taken = Vec::new();
        servers.retain(|id, (name, bytes)| {
            let wanted = server.is_none_or(|server| **name == *server || id.to_string() == server);
            if wanted {
                taken.push((*id, Arc::clone(name), *bytes));
            }
            !wanted
        });
        taken
    }

    fn forget(&mut self, uid: u32, agent: u32) {
        self.agents.remove(&(uid, agent));
        self.order.retain(|key| *key != (uid, agent));
    }
}

/// A true count of tokens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Usage {
    /// Whose agent.
    pub uid: u32,
    /// Its process.
    pub agent_pid: u32,
    /// Tokens by which the input of its turn grew.
    pub input_tokens: u64,
    /// Where all of them came from this server: its identity or instance number.
    pub server: Option<String>,
}

impl Judge {
    /// Spreads a true count over what entered the agent's context since the last one; gives the shares by server
    /// instance, none where nothing entered.
    pub fn usage(&mut self, usage: &Usage, sink: &mut dyn Sink) -> Vec<(u64, Point)> {
        let taken = self
            .pending
            .take(usage.uid, usage.agent_pid, usage.server.as_deref());
        let entered: Vec<Entered> = taken
            .iter()
            .map(|(_, server, bytes)| Entered {
                server: cost_key(usage.uid, server),
                bytes: *bytes,
            })
            .collect();
        let points = self.costs.reconcile(&entered, usage.input_tokens);
        let named = taken.into_iter().zip(points).map(|((id, server, _), point)| {
            let server = server.to_string();
            (id, Point { server, ..point })
        });
        named.inspect(|(id, point)| sink.cost(*id, point)).collect()
    }

    /// An agent has ended: nobody will report for it.
    pub fn agent_gone(&mut self, uid: u32, agent_pid: u32) {
        self.pending.forget(uid, agent_pid);
        self.gate.agent_gone(uid, agent_pid);
    }

    /// The estimate of one result, which is also remembered until a true count comes.
    pub(super) fn cost_of(&mut self, owner: &Owner, agent: u32, server_id: u64, bytes: u64) -> Point {
        let key = cost_key(owner.uid, &owner.server);
        self.pending
            .entered(owner.uid, agent, server_id, &owner.server, bytes);
        Point {
            server: owner.server.to_string(),
            ..self.costs.estimate(&key, bytes)
        }
    }
}

/// Calibration is kept per user: what one reports must not move another's estimates.
fn cost_key(uid: u32, server: &str) -> String {
    format!("{uid} {server}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Talk, Told, judge_with};
    use super::*;

    fn result(size: usize) -> serde_json::Value {
        json!({"content": [{"type": "text", "text": "x ".repeat(size / 2)}]})
    }

    fn usage(agent_pid: u32, input_tokens: u64) -> Usage {
        Usage {
            uid: 1000,
            agent_pid,
            input_tokens,
            server: None,
        }
    }

    #[test]
    fn a_true_count_is_spread_over_what_entered_and_calibrates() {
        let mut judge = judge_with(None);
        let mut told = Told::default();
        let call = json!({"name": "add", "arguments": {}});
        let mut a = Talk::new(&mut judge, 1000, 41, 1, "npm:a");
        let mut b = Talk::new(&mut judge, 1000, 41, 2, "npm:b");
        a.ask(&mut judge, &mut told, "tools/call", &call, &result(3_000));
        b.ask(&mut judge, &mut told, "tools/call", &call, &result(1_000));
        b.ask(&mut judge, &mut told, "tools/call", &call, &result(2_000));
        let estimates: Vec<u64> = told.costs.drain(..).map(|p| p.tokens).collect();
        assert_eq!(estimates.len(), 3);
        let shares = judge.usage(&usage(41, 1_000), &mut told);
        let spread: Vec<(u64, &str, u64)> = shares
            .iter()
            .map(|(id, p)| (*id, p.server.as_str(), p.tokens))
            .collect();
        assert_eq!(spread, [(1, "npm:a", 500), (2, "npm:b", 500)]);
        assert!(told.costs.drain(..).all(|p| !p.estimated));
        assert!(
            judge.usage(&usage(41, 1_000), &mut told).is_empty(),
            "nothing entered since"
        );
        // 1,000 true tokens for 6,000 bytes are fewer than estimated: the next estimate is lower.
        a.ask(&mut judge, &mut told, "tools/call", &call, &result(3_000));
        assert!(told.costs.pop().unwrap().tokens < estimates[0]);
        // Another user's estimates stay as they were.
        let mut other = Talk::new(&mut judge, 1001, 43, 3, "npm:a");
        other.ask(&mut judge, &mut told, "tools/call", &call, &result(3_000));
        assert_eq!(told.costs.pop().unwrap().tokens, estimates[0]);
        assert!(
            judge.usage(&usage(43, 10), &mut told).is_empty(),
            "another user's agent"
        );
    }

    #[test]
    fn one_server_can_be_named_and_an_ended_agent_is_forgotten() {
        let mut judge = judge_with(None);
        let mut told = Told::default();
        let call = json!({"name": "add", "arguments": {}});
        let mut a = Talk::new(&mut judge, 1000, 41, 1, "npm:a");
        let mut b = Talk::new(&mut judge, 1000, 41, 2, "npm:b");
        a.ask(&mut judge, &mut told, "tools/call", &call, &result(3_000));
        b.ask(&mut judge, &mut told, "tools/call", &call, &result(1_000));
        let named = Usage {
            server: Some("npm:b".to_owned()),
            ..usage(41, 77)
        };
        let shares = judge.usage(&named, &mut told);
        assert_eq!(
            shares.iter().map(|(id, p)| (*id, p.tokens)).collect::<Vec<_>>(),
            [(2, 77)]
        );
        judge.agent_gone(1000, 41);
        assert!(judge.usage(&usage(41, 5), &mut told).is_empty());
    }

    #[test]
    fn a_flood_of_agents_and_servers_is_bounded() {
        let mut pending = Pending::default();
        let server: Arc<str> = Arc::from("npm:x");
        for n in 0..5_000 {
            pending.entered(1000, n, 1, &server, 10);
            pending.entered(1000, 0, u64::from(n), &server, u64::MAX);
        }
        assert!(pending.agents.len() <= AGENTS && pending.order.len() <= AGENTS);
        assert!(pending.agents.values().all(|servers| servers.len() <= SERVERS));
    }
}
