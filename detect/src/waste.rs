//! Tokens spent for nothing: the fifteen classes of seed 003, over LLM calls and over MCP traffic.
//!
//! A source (ingest API, telemetry, capture, MCP) turns what it has into an [`LlmCall`]: text is measured and hashed at
//! the door and dropped, so no rule, state or finding can hold a prompt or an argument. [`Monitor`] keeps the last calls
//! of each session and asks every rule about each new one. The reference is token-sentinel 1.0.3; thousands of random
//! cases at the edges give the same answers.
//!
//! What is decided otherwise than there, and why:
//! - An empty request hash is no hash: calls of sources that have none must not count as retries of each other.
//! - A malformed tool call (no object, no textual name) is left out; there it silences the rule for the window.
//! - Raw arguments and tool names are never quoted; `include_raw_args`, `redact_names` have no effect (SPEC section 1).
//! - Images are compared by exact digest only. The perceptual hash is optional there as well, and off by default.
//! - Of several images sent again and again, the one in the longest row is told; there, any of them.
//! - Side calls (titles, summaries), known from telemetry, are no turns of `context_bloat`.
//! - Where a source does not tell what the person sees, pauses and typed prompts stand for it in `zombie`.
//! - A reported cause stays quiet for `repeat_seconds`; there, for 5 s.
//! - An unknown similarity metric is refused; there it means Jaccard.
//! - Tokens below zero count as none; there they are taken off.
//!
//! The seed's deferred patterns (semantic loop, hallucinated retry, verbose reasoning, premature compaction) need a judge
//! and are no rules.
//!
//! Memory: [`MAX_SESSIONS`] sessions of at most [`MAX_RECORDS`] calls and [`MAX_ARGUMENT_BYTES`] of argument pieces, and
//! [`MAX_BYTES`] over all. Whose sessions are most loses one first, the least recently used: nobody's flood pushes out
//! what is another's. Work per call is linear in what the session keeps.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use lru::LruCache;

use crate::finding::Finding;

mod advice;
mod audio_multichannel_doubling;
mod call;
mod config;
mod context_bloat;
mod embedding_waste;
mod keywords;
mod mcp;
mod model_misroute;
mod repair_loop;
mod repetition;
mod request;
mod rerank_thrash;
mod retrieval_thrash;
mod retry_storm;
mod rule;
mod session;
mod similarity;
mod spelling;
mod stake;
pub mod telemetry;
#[cfg(test)]
mod testing;
mod tool_definition_bloat;
mod tool_loop;
mod vision_cost_concentration;
mod vision_high_detail_misroute;
mod vision_re_upload;
mod voice_switching_loop;
mod zombie;

pub use advice::advice;
pub use call::{
    Arguments, Compared, Field, LlmCall, MAX_TOOL_CALLS, Media, ToolCall, Usage, call_key, digest,
};
pub use config::{Config, KNOBS, Knob};
pub use mcp::{MCP_RULES, McpCall, failed, listed};
pub use request::{MAX_TURNS, Request, ToolDefinitions, Turn};
pub use rule::{Firing, Rule};
pub use session::{MAX_ARGUMENT_BYTES, MAX_RECORDS, Record, Session};
pub use similarity::{Metric, Pieces};

/// Sessions that are kept.
pub const MAX_SESSIONS: usize = 1_000;
/// Bytes that all sessions together may hold.
pub const MAX_BYTES: usize = 64 << 20;
/// Reported causes of one session that are remembered.
const MAX_REPORTED: usize = 256;

/// What one rule says of the session's last call, which must have been pushed already; none below `min_confidence`.
pub fn evaluate(rule: Rule, session: &Session, call: &LlmCall, config: &Config) -> Option<Firing> {
    evaluate_new(rule, session, call, config, &|_| false)
}

/// The same, passing over the subjects that are `told` already where a rule looks at several: one must not hide another.
fn evaluate_new(
    rule: Rule,
    session: &Session,
    call: &LlmCall,
    config: &Config,
    told: &dyn Fn(u64) -> bool,
) -> Option<Firing> {
    let firing = match rule {
        Rule::ToolLoop => tool_loop::evaluate(session, config, told),
        Rule::ContextBloat => context_bloat::evaluate(session, config),
        Rule::EmbeddingWaste => embedding_waste::evaluate(session),
        Rule::Zombie => zombie::evaluate(session, &call.session, config),
        Rule::ModelMisroute => model_misroute::evaluate(call, config),
        Rule::RetryStorm => retry_storm::evaluate(session, config, told),
        Rule::ToolDefinitionBloat => tool_definition_bloat::evaluate(call, config),
        Rule::RetrievalThrash => retrieval_thrash::evaluate(session, config, told),
        Rule::VisionReUpload => vision_re_upload::evaluate(session, config),
        Rule::VisionHighDetailMisroute => vision_high_detail_misroute::evaluate(call, config),
        Rule::VisionCostConcentration => vision_cost_concentration::evaluate(call, config),
        Rule::AudioMultichannelDoubling => audio_multichannel_doubling::evaluate(call),
        Rule::VoiceSwitchingLoop => voice_switching_loop::evaluate(session, config),
        Rule::RerankThrash => rerank_thrash::evaluate(session, config, told),
        Rule::RepairLoop => repair_loop::evaluate(call, config),
    };
    firing.filter(|firing| firing.confidence >= config.min_confidence)
}

/// The sessions of all agents.
pub struct Monitor {
    config: Config,
    sessions: LruCache<String, Watched>,
    /// Sessions and bytes by owner.
    owners: HashMap<String, (usize, usize)>,
    bytes: usize,
    evicted: u64,
}

struct Watched {
    session: Session,
    cost: usize,
    reported: LruCache<(Rule, u64), u64>,
}

impl Monitor {
    /// A monitor without sessions.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            sessions: LruCache::unbounded(),
            owners: HashMap::new(),
            bytes: 0,
            evicted: 0,
        }
    }

    /// Takes in a call of the session `key` and reports what it makes true. Keys are unique over users: what stands before
    /// their first space is whose session it is.
    pub fn observe(&mut self, key: &str, call: &LlmCall) -> Vec<Finding> {
        self.observe_rules(key, call, &Rule::ALL)
    }

    /// The same, asking these rules only.
    pub fn observe_rules(&mut self, key: &str, call: &LlmCall, rules: &[Rule]) -> Vec<Finding> {
        if !self.sessions.contains(key) {
            let reported = LruCache::new(NonZeroUsize::new(MAX_REPORTED).unwrap_or(NonZeroUsize::MIN));
            self.sessions.put(
                key.to_owned(),
                Watched {
                    session: Session::default(),
                    cost: 0,
                    reported,
                },
            );
            self.owners.entry(owner(key).to_owned()).or_default().0 += 1;
        }
        let Some(watched) = self.sessions.get_mut(key) else {
            return Vec::new();
        };
        watched.session.push(call);
        let cost = watched.session.cost() + key.len();
        let before = std::mem::replace(&mut watched.cost, cost);
        self.bytes = (self.bytes + cost).saturating_sub(before);
        if let Some((_, bytes)) = self.owners.get_mut(owner(key)) {
            *bytes = (*bytes + cost).saturating_sub(before);
        }
        let mut findings = Vec::new();
        for rule in rules.iter().copied().filter(|rule| self.config.enabled(*rule)) {
            let told = |subject: u64| {
                let at = watched.reported.peek(&(rule, subject));
                at.is_some_and(|at| session::elapsed(call.at, *at).abs() < self.config.repeat_seconds)
            };
            let firing = evaluate_new(rule, &watched.session, call, &self.config, &told);
            let Some(mut firing) = firing.filter(|firing| !told(firing.subject)) else {
                continue;
            };
            stake::add(&mut firing, &watched.session, call, &self.config);
            watched.reported.put((rule, firing.subject), call.at);
            findings.push(firing.into_finding());
        }
        self.shrink();
        findings
    }

    /// A tool called in the session `key` answered with `bytes` of context.
    pub fn answered(&mut self, key: &str, tool: &str, bytes: u64) {
        if let Some(watched) = self.sessions.get_mut(key) {
            watched.session.answered(tool, bytes);
        }
    }

    fn shrink(&mut self) {
        loop {
            let many = self.sessions.len() > MAX_SESSIONS;
            if self.sessions.len() <= 1 || !(many || self.bytes > MAX_BYTES) {
                return;
            }
            let most = self
                .owners
                .iter()
                .max_by_key(|(_, (sessions, bytes))| if many { *sessions } else { *bytes });
            let oldest = most.and_then(|(most, _)| {
                let mut keys = self.sessions.iter().rev().map(|(key, _)| key);
                keys.find(|key| owner(key) == most).cloned()
            });
            let Some(oldest) = oldest else { return };
            self.forget(&oldest);
            self.evicted += 1;
        }
    }

    /// Drops a session.
    pub fn forget(&mut self, key: &str) {
        let Some(gone) = self.sessions.pop(key) else {
            return;
        };
        self.bytes = self.bytes.saturating_sub(gone.cost);
        if let Some((sessions, bytes)) = self.owners.get_mut(owner(key)) {
            *sessions = sessions.saturating_sub(1);
            *bytes = bytes.saturating_sub(gone.cost);
            if *sessions == 0 {
                self.owners.remove(owner(key));
            }
        }
    }

    /// The knobs in force; a source measures with them.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes new knobs. What is kept was measured with the old ones until it has passed out of the windows.
    pub fn reconfigure(&mut self, config: Config) {
        self.config = config;
    }

    /// Sessions held now: the figure behind `kams_map_entries{map="waste"}`.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether no session is held.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Bytes held over all sessions, as an estimate from above.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sessions that went before their time because a limit was reached.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }
}

/// Whose session a key names.
fn owner(key: &str) -> &str {
    key.split_once(' ').map_or(key, |(owner, _)| owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_sessions_pushes_out_its_own() {
        let mut monitor = Monitor::new(Config::default());
        let turn = |at: u64| LlmCall {
            at: at * 1_000_000_000,
            usage: Usage {
                prompt_tokens: 3_000 * at,
                ..Usage::default()
            },
            ..LlmCall::default()
        };
        let mut told = Vec::new();
        for at in 0..6 {
            told.extend(monitor.observe("1000 long", &turn(at)));
            for session in 0..MAX_SESSIONS {
                monitor.observe(&format!("2000 {at} {session}"), &turn(0));
            }
        }
        assert_eq!(monitor.len(), MAX_SESSIONS);
        assert_eq!(
            told.iter().map(|found| found.detector).collect::<Vec<_>>(),
            ["waste.context_bloat"]
        );
        let held: usize = monitor.owners.values().map(|(_, bytes)| bytes).sum();
        assert_eq!(held, monitor.bytes());
    }
}
