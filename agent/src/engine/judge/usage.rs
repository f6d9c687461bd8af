//! True token counts against estimates: what entered an agent's context since its last report, and what it cost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use kams_detect::cost::{Entered, Point};
use kams_export::view::Time;

use super::{Case, Judge, Owner};
use crate::engine::sink::Sink;

/// Agents whose results are remembered; the longest silent ones are forgotten.
const AGENTS: usize = 1_024;
/// Results of one agent that wait; further ones are added to the last of their server, or are not spread.
const WAITING: usize = 1_024;

/// A result that entered a context.
#[derive(Clone, Debug)]
struct Entry {
    at: Time,
    server_id: u64,
    server: Arc<str>,
    bytes: u64,
}

/// Results that entered the contexts of agents and were not reported yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    agents: BTreeMap<(u32, u32), Vec<Entry>>,
    order: VecDeque<(u32, u32)>,
    /// Agents that have ended: a late report may still come, another process of that number must not get them.
    ended: BTreeSet<(u32, u32)>,
}

impl Pending {
    fn entered(&mut self, uid: u32, agent: u32, entry: Entry) {
        let key = (uid, agent);
        if self.ended.remove(&key) {
            self.agents.remove(&key);
            self.order.retain(|known| *known != key);
        }
        if !self.agents.contains_key(&key) {
            self.order.push_back(key);
            if self.order.len() > AGENTS
                && let Some(oldest) = self.order.pop_front()
            {
                self.agents.remove(&oldest);
                self.ended.remove(&oldest);
            }
        }
        let waiting = self.agents.entry(key).or_default();
        if waiting.len() < WAITING {
            waiting.push(entry);
        } else if let Some(last) = waiting
            .iter_mut()
            .rev()
            .find(|last| last.server_id == entry.server_id)
        {
            last.bytes = last.bytes.saturating_add(entry.bytes);
        }
    }

    /// Takes what fits the report, added up by server instance.
    fn take(&mut self, usage: &Usage) -> Vec<(u64, Arc<str>, u64)> {
        let key = (usage.uid, usage.agent_pid);
        let late = self.ended.contains(&key) && usage.before.is_none();
        let Some(waiting) = self.agents.get_mut(&key).filter(|_| !late) else {
            return Vec::new();
        };
        let mut taken: BTreeMap<u64, (Arc<str>, u64)> = BTreeMap::new();
        waiting.retain(|entry| {
            let named = usage
                .server
                .as_deref()
                .is_none_or(|name| *entry.server == *name || entry.server_id.to_string() == name);
            let wanted = named && usage.before.is_none_or(|before| entry.at <= before);
            if wanted {
                let sum = taken
                    .entry(entry.server_id)
                    .or_insert_with(|| (Arc::clone(&entry.server), 0));
                sum.1 = sum.1.saturating_add(entry.bytes);
            }
            !wanted
        });
        taken
            .into_iter()
            .map(|(id, (server, bytes))| (id, server, bytes))
            .collect()
    }

    fn end(&mut self, uid: u32, agent: u32) {
        if self.agents.contains_key(&(uid, agent)) {
            self.ended.insert((uid, agent));
        }
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
    /// Only results that came before this moment are in the turn; none: all that wait.
    pub before: Option<Time>,
}

impl Judge {
    /// Spreads a true count over what entered the agent's context since the last one; gives the shares by server
    /// instance, none where nothing entered.
    pub fn usage(&mut self, usage: &Usage, sink: &mut dyn Sink) -> Vec<(u64, Point)> {
        let taken = self.pending.take(usage);
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

    /// Gives up the results that came before this moment: what their turn cost says nothing of them.
    pub(super) fn pass_over(&mut self, uid: u32, agent_pid: u32, before: Time) {
        self.pending.take(&Usage {
            uid,
            agent_pid,
            input_tokens: 0,
            server: None,
            before: Some(before),
        });
    }

    /// An agent has ended: nobody but its own telemetry will report for it.
    pub fn agent_gone(&mut self, uid: u32, agent_pid: u32) {
        self.pending.end(uid, agent_pid);
        self.run_over(uid, agent_pid);
        self.gate.agent_gone(uid, agent_pid);
    }

    /// The estimate of one result, which is also remembered until a true count comes.
    pub(super) fn cost_of(&mut self, owner: &Owner, case: &Case<'_>, bytes: u64) -> Point {
        let key = cost_key(owner.uid, &owner.server);
        let entry = Entry {
            at: case.time,
            server_id: case.party.server_id,
            server: Arc::clone(&owner.server),
            bytes,
        };
        self.pending.entered(owner.uid, case.party.agent_pid, entry);
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
            before: None,
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
        let entry = |server_id, bytes| Entry {
            at: Time::from_unix_nanos(1),
            server_id,
            server: Arc::clone(&server),
            bytes,
        };
        for n in 0..5_000 {
            pending.entered(1000, n, entry(1, 10));
            pending.entered(1000, 0, entry(u64::from(n), u64::MAX));
            pending.end(1000, n);
        }
        assert!(pending.agents.len() <= AGENTS && pending.order.len() <= AGENTS);
        assert!(pending.ended.len() <= AGENTS);
        assert!(pending.agents.values().all(|waiting| waiting.len() <= WAITING));
    }

    #[test]
    fn telemetry_takes_what_came_before_its_turn_also_after_the_end() {
        let mut pending = Pending::default();
        let server: Arc<str> = Arc::from("npm:x");
        for at in [10, 20, 30] {
            let entry = Entry {
                at: Time::from_unix_nanos(at),
                server_id: 1,
                server: Arc::clone(&server),
                bytes: 100,
            };
            pending.entered(1000, 41, entry);
        }
        let until = |at| Usage {
            before: Some(Time::from_unix_nanos(at)),
            ..usage(41, 5)
        };
        let bytes =
            |taken: Vec<(u64, Arc<str>, u64)>| taken.into_iter().map(|(.., bytes)| bytes).sum::<u64>();
        assert_eq!(bytes(pending.take(&until(20))), 200);
        pending.end(1000, 41);
        assert_eq!(bytes(pending.take(&usage(41, 5))), 0, "the agent is gone");
        assert_eq!(bytes(pending.take(&until(40))), 100);
    }
}
