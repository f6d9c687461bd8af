//! Label values under a bound.
//!
//! Names come from servers and agents; a series per name is memory that a hostile server could spend. Each
//! label keeps a limited number of distinct values, and what comes after shows as `other`.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use crate::text::visible;

/// The value that stands for all values beyond the limit.
pub const OTHER: &str = "other";

/// Longest label value, in characters.
const MAX_CHARS: usize = 128;

/// The values of one label.
#[derive(Debug)]
pub struct Cap {
    limit: usize,
    per_source: usize,
    inner: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    values: HashSet<String>,
    by_source: HashMap<String, usize>,
}

impl Cap {
    /// At most `limit` distinct values, of which one source may bring at most `per_source`.
    pub fn new(limit: usize, per_source: usize) -> Self {
        Self {
            limit,
            per_source,
            inner: Mutex::new(Seen::default()),
        }
    }

    /// The value to put on the label: `value` itself (made safe to print, cut at 128 characters), or
    /// [`OTHER`]. First come, first served; a value once admitted stays.
    pub fn admit(&self, source: &str, value: &str) -> String {
        let value = clean(value);
        let mut seen = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.values.contains(&value) {
            return value;
        }
        if seen.values.len() >= self.limit {
            return OTHER.to_owned();
        }
        let used = seen.by_source.entry(source.to_owned()).or_default();
        if *used >= self.per_source {
            return OTHER.to_owned();
        }
        *used += 1;
        seen.values.insert(value.clone());
        value
    }
}

fn clean(value: &str) -> String {
    visible(value).chars().take(MAX_CHARS).collect()
}

/// Methods that any revision of MCP from 2024-11-05 to 2026-07-28 names. Others show as [`OTHER`], since both
/// sides may send what they like.
const METHODS: &[&str] = &[
    "completion/complete",
    "elicitation/create",
    "initialize",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/elicitation/complete",
    "notifications/initialized",
    "notifications/message",
    "notifications/progress",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/roots/list_changed",
    "notifications/tasks/status",
    "notifications/tools/list_changed",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "roots/list",
    "sampling/createMessage",
    "server/discover",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// The method as a label value.
pub fn method(name: &str) -> &'static str {
    METHODS
        .binary_search(&name)
        .ok()
        .and_then(|at| METHODS.get(at).copied())
        .unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_is_one_value_and_known_values_stay() {
        let cap = Cap::new(2, 10);
        assert_eq!(cap.admit("s", "a"), "a");
        assert_eq!(cap.admit("s", "b"), "b");
        assert_eq!(cap.admit("s", "c"), OTHER);
        assert_eq!(cap.admit("s", "a"), "a");
    }

    #[test]
    fn one_source_cannot_use_up_the_label() {
        let cap = Cap::new(100, 3);
        for n in 0..1000 {
            cap.admit("noisy", &format!("tool{n}"));
        }
        assert_eq!(cap.admit("quiet", "add"), "add");
        assert_eq!(cap.admit("noisy", "tool1"), "tool1");
        assert_eq!(cap.admit("noisy", "tool500"), OTHER);
    }

    #[test]
    fn values_are_short_and_printable() {
        let cap = Cap::new(10, 10);
        assert_eq!(cap.admit("s", "a\u{1b}[31m"), "a\\u{1b}[31m");
        assert_eq!(cap.admit("s", &"x".repeat(5000)).len(), MAX_CHARS);
    }

    #[test]
    fn the_method_table_is_sorted() {
        assert!(METHODS.is_sorted());
        assert_eq!(method("tools/call"), "tools/call");
        assert_eq!(method("tools/call "), OTHER);
    }
}
