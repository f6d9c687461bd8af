//! Whether an interaction is healthy (seed 000, SPEC section 5): four detectors over the history of one run with one
//! server.
//!
//! | detector | fires when | key |
//! | --- | --- | --- |
//! | `behavioural.thrash` | same tool, arguments and result 4 times in 120 s; another result for the same call restarts the count | tool and arguments |
//! | `behavioural.retry_storm` | 4 failures in a row on one tool | tool |
//! | `behavioural.error_rate` | at least half of at least 6 calls in 120 s failed | server |
//! | `behavioural.latency_degradation` | at least 4 times the tool's own median of earlier successes, at least 1 s, at least 5 samples | tool |
//!
//! A condition that holds gives one finding, and the next one when 120 s have passed. Identical calls that fail satisfy
//! both thrash and retry_storm and give both. What a server answers with `input_required` (2026-07-28) is no completed
//! call: the caller leaves it out, and counts the retry that completes it once.
//!
//! Memory is bounded: [`MAX_SCOPES`] pairs of run and server, [`MAX_TOOLS`] tools each, [`MAX_CALLS`] different calls
//! each, least recently used first to go. 1,000 servers with 100 tools each, every table full, take 30 MB at most (a
//! test holds this); a server with five tools in use takes about 3 KB.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroUsize;

use lru::LruCache;

use crate::finding::Finding;

mod canonical;
mod history;

pub use canonical::canonical_digest;
use history::History;

/// Pairs of run and server whose history is kept.
pub const MAX_SCOPES: usize = 1_024;
/// Tools of one server whose history is kept.
pub const MAX_TOOLS: usize = 128;
/// Different calls (tool and arguments) of one server that are compared.
pub const MAX_CALLS: usize = 64;

/// The window of thrash and error rate, and how long a reported condition stays quiet: 120 s, in nanoseconds.
pub const WINDOW: u64 = 120_000_000_000;

/// One run with one server.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Scope {
    run: u64,
    server: u64,
}

impl Scope {
    /// The scope of a run (its id) and a server (its identity with its user).
    pub fn new(run: &str, server: &str) -> Self {
        Self {
            run: digest(run.as_bytes()),
            server: digest(server.as_bytes()),
        }
    }
}

/// One completed call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// When it was made, in nanoseconds of any clock; may go back or jump.
    pub at: u64,
    /// Tool name.
    pub tool: &'a str,
    /// [`canonical_digest`] of the arguments.
    pub arguments: u64,
    /// [`digest`] of what the model sees of the result.
    pub result: u64,
    /// A JSON-RPC error, or a result with `isError`.
    pub failed: bool,
    /// From request to answer, in nanoseconds.
    pub duration: u64,
}

/// The histories of all runs and servers.
pub struct Monitor {
    scopes: LruCache<Scope, History>,
    evicted_scopes: u64,
    evicted_entries: u64,
}

impl Default for Monitor {
    fn default() -> Self {
        Self {
            scopes: LruCache::new(NonZeroUsize::new(MAX_SCOPES).unwrap_or(NonZeroUsize::MIN)),
            evicted_scopes: 0,
            evicted_entries: 0,
        }
    }
}

impl Monitor {
    /// Takes in a completed call and reports what it makes true.
    pub fn observe(&mut self, scope: Scope, call: &Call<'_>) -> Vec<Finding> {
        if self.scopes.len() >= MAX_SCOPES && !self.scopes.contains(&scope) {
            self.evicted_scopes += 1;
        }
        let history = self.scopes.get_or_insert_mut(scope, History::default);
        let (findings, evicted) = history.observe(call);
        self.evicted_entries += evicted;
        findings
    }

    /// Drops a run's history with a server.
    pub fn forget(&mut self, scope: Scope) {
        self.scopes.pop(&scope);
    }

    /// Pairs of run and server held now: the figure behind `kams_map_entries{map="behaviour"}`.
    pub fn len(&self) -> usize {
        self.scopes.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.scopes.is_empty()
    }

    /// Histories dropped because [`MAX_SCOPES`] was reached.
    pub fn evicted_scopes(&self) -> u64 {
        self.evicted_scopes
    }

    /// Tools and calls dropped because [`MAX_TOOLS`] or [`MAX_CALLS`] was reached.
    pub fn evicted_entries(&self) -> u64 {
        self.evicted_entries
    }

    /// Bytes held now, allocations counted by capacity.
    pub fn size_estimate(&self) -> usize {
        // A node of the LRU list holds key, value and two links, and the table a hash and a pointer.
        let node = size_of::<Scope>() + size_of::<History>() + 5 * size_of::<usize>();
        size_of::<Self>()
            + self
                .scopes
                .iter()
                .map(|(_, history)| node + history.heap_size())
                .sum::<usize>()
    }
}

/// A digest of a result's text, equal for equal bytes. Not cryptographic: a server that made two results collide would
/// only be reported as repeating itself.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn call(at: u64, tool: &str, result: &str, failed: bool) -> Call<'static> {
        Call {
            at,
            tool: Box::leak(tool.to_owned().into_boxed_str()),
            arguments: canonical_digest(br#"{"q":1}"#),
            result: digest(result.as_bytes()),
            failed,
            duration: SECOND / 10,
        }
    }

    fn detectors(monitor: &mut Monitor, scope: Scope, calls: &[Call<'_>]) -> Vec<(usize, &'static str)> {
        calls
            .iter()
            .enumerate()
            .flat_map(|(i, c)| {
                monitor
                    .observe(scope, c)
                    .into_iter()
                    .map(move |f| (i + 1, f.detector))
            })
            .collect()
    }

    #[test]
    fn a_loop_is_reported_once_a_window() {
        let calls: Vec<_> = (0..40)
            .map(|i| call(i * 5 * SECOND, "search", "same", false))
            .collect();
        let found = detectors(&mut Monitor::default(), Scope::new("r", "s"), &calls);
        // At 15 s, then when 120 s have passed: 135 s is call 28.
        assert_eq!(found, [(4, "behavioural.thrash"), (28, "behavioural.thrash")]);
    }

    #[test]
    fn runs_and_servers_do_not_mix() {
        let mut monitor = Monitor::default();
        let mut found = Vec::new();
        for (i, server) in ["a", "b", "a", "b", "a", "b"].iter().enumerate() {
            let at = i as u64 * SECOND;
            found.extend(monitor.observe(Scope::new("r", server), &call(at, "t", "x", true)));
        }
        assert!(found.is_empty());
        assert_eq!(monitor.len(), 2);
    }

    #[test]
    fn clocks_may_jump() {
        let mut monitor = Monitor::default();
        let scope = Scope::new("r", "s");
        let times = [
            u64::MAX,
            0,
            5 * SECOND,
            u64::MAX - SECOND,
            3 * SECOND,
            1,
            2,
            SECOND,
        ];
        let calls: Vec<_> = times.iter().map(|t| call(*t, "t", "same", false)).collect();
        // The last four lie within one window again.
        assert_eq!(
            detectors(&mut monitor, scope, &calls),
            [(8, "behavioural.thrash")]
        );
    }

    #[test]
    fn memory_is_bounded() {
        // Ten servers with every table full stand for a thousand: each has the same share.
        let mut monitor = Monitor::default();
        for server in 0..10 {
            let scope = Scope::new("run", &server.to_string());
            for tool in 0..100 {
                let name = format!("tool{tool}");
                for n in 0..20_u64 {
                    let call = Call {
                        at: n * SECOND + tool,
                        tool: &name,
                        arguments: n,
                        result: n,
                        failed: false,
                        duration: SECOND,
                    };
                    monitor.observe(scope, &call);
                }
            }
        }
        let size = monitor.size_estimate() * 100;
        assert!(size < 30_000_000, "{size}");
        assert!(size > 5_000_000, "{size}");
        assert!(monitor.evicted_entries() > 0);
    }

    #[test]
    fn old_histories_go_first() {
        let mut monitor = Monitor::default();
        for server in 0..2_000 {
            monitor.observe(Scope::new("run", &server.to_string()), &call(0, "t", "r", false));
        }
        assert_eq!(monitor.len(), MAX_SCOPES);
        assert_eq!(monitor.evicted_scopes(), 2_000 - MAX_SCOPES as u64);
    }

    proptest! {
        #[test]
        fn any_history_is_safe(calls in proptest::collection::vec(
            (any::<u64>(), 0_u8..4, 0_u64..3, 0_u64..3, any::<bool>(), any::<u64>()), 0..200)) {
            let mut monitor = Monitor::default();
            let scope = Scope::new("r", "s");
            let mut fired = 0;
            for (at, tool, arguments, result, failed, duration) in calls {
                let tool = tool.to_string();
                fired += monitor
                    .observe(scope, &Call { at, tool: &tool, arguments, result, failed, duration })
                    .len();
            }
            prop_assert!(fired <= 800);
        }
    }
}
