//! `retry_storm`: the same request again and again with no pause. Confidence 0.9.

use super::config::Config;
use super::rule::{Firing, Rule};
use super::session::{Record, Session, elapsed};
use super::similarity::as_f64;

pub(super) fn evaluate(session: &Session, config: &Config, told: &dyn Fn(u64) -> bool) -> Option<Firing> {
    let knobs = &config.retry_storm;
    let (hash, count, _) = repeated(
        session.window(knobs.window_seconds),
        knobs.min_retries,
        |record| record.request_hash.filter(|hash| !told(*hash)),
    )?;
    Some(Firing {
        rule: Rule::RetryStorm,
        confidence: 0.9,
        suggested_action: "add_backoff_or_check_upstream_health",
        tool: None,
        subject: hash,
        numbers: vec![
            ("retry_count", as_f64(count)),
            ("window_seconds", knobs.window_seconds),
        ],
    })
}

/// The first key that stands in at least `min` records: the key, how often, and over how many seconds.
pub(super) fn repeated<'a>(
    records: impl Iterator<Item = &'a Record>,
    min: usize,
    key: impl Fn(&'a Record) -> Option<u64>,
) -> Option<(u64, usize, f64)> {
    let mut order: Vec<u64> = Vec::new();
    let mut seen: std::collections::HashMap<u64, (usize, u64, u64)> = std::collections::HashMap::new();
    for record in records {
        if let Some(key) = key(record) {
            let entry = seen.entry(key).or_insert_with(|| {
                order.push(key);
                (0, record.at, record.at)
            });
            entry.0 += 1;
            entry.1 = entry.1.min(record.at);
            entry.2 = entry.2.max(record.at);
        }
    }
    let (key, (count, first, last)) = order
        .into_iter()
        .filter_map(|key| Some((key, *seen.get(&key)?)))
        .find(|(_, (count, ..))| *count >= min)?;
    Some((key, count, elapsed(last, first)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{calls, fires};
    use super::*;
    use serde_json::json;

    fn storm(times: &[f64]) -> bool {
        let calls = calls(times.iter().map(|t| json!({"t": t, "request_hash": "h"})));
        fires(Rule::RetryStorm, &calls, &json!({})).is_some()
    }

    #[test]
    fn five_in_thirty_seconds() {
        assert!(storm(&[0.0, 2.0, 4.0, 6.0, 30.0]));
        assert!(!storm(&[0.0, 2.0, 4.0, 6.0, 30.001]));
        assert!(!storm(&[0.0, 2.0, 4.0, 6.0]));
        assert!(!storm(&[0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0]), "backing off");
    }
}
