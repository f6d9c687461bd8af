//! What results and definitions cost in the model's context (seed 000, SPEC section 4).
//!
//! Every figure says whether it is an estimate. A result is estimated from its bytes (3.6 bytes a token, times the
//! server's factor); [`Costs::reconcile`] spreads the true count of a turn over the results that entered it and moves
//! the factors. Definitions are counted with a real tokenizer, never on the path of a verdict.

use std::num::NonZeroUsize;

use lru::LruCache;

use crate::finding::{Evidence, Finding, Kind, Severity};

mod bytes;

pub use bytes::{ContextBytes, context_bytes};

/// Bytes a token before any calibration.
pub const BYTES_PER_TOKEN: f64 = 3.6;
/// Weight of a new observation in a server's factor.
pub const EMA_WEIGHT: f64 = 0.3;
/// Range of a factor; an observation outside it means that the wrong turn was matched, and counts as its limit.
pub const FACTOR_RANGE: (f64, f64) = (0.25, 4.0);
/// Tokens of one result that give a finding.
pub const SPIKE_MEDIUM: u64 = 20_000;
/// Tokens of one result that give a HIGH finding.
pub const SPIKE_HIGH: u64 = 40_000;

/// Servers whose factor is kept.
const MAX_SERVERS: usize = 1_024;
/// Definitions whose count is kept.
const MAX_DEFINITIONS: usize = 8_192;
/// Bytes of one definition that are counted exactly; what lies beyond is estimated.
const MAX_DEFINITION: usize = 262_144;

/// One point of a cost metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Server identity.
    pub server: String,
    /// Tokens that entered the context.
    pub tokens: u64,
    /// False where `tokens` is a share of a true count.
    pub estimated: bool,
}

/// One result that entered a turn, for [`Costs::reconcile`].
#[derive(Clone, Debug)]
pub struct Entered {
    /// Server identity.
    pub server: String,
    /// Bytes that entered the context.
    pub bytes: u64,
}

/// Calibration of each server.
pub struct Costs {
    factors: LruCache<String, f64>,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            factors: LruCache::new(NonZeroUsize::new(MAX_SERVERS).unwrap_or(NonZeroUsize::MIN)),
        }
    }
}

impl Costs {
    /// The server's factor: 1.0 until it was calibrated.
    pub fn factor(&self, server: &str) -> f64 {
        self.factors.peek(server).copied().unwrap_or(1.0)
    }

    /// Estimated tokens of `bytes` from `server`.
    pub fn estimate(&self, server: &str, bytes: u64) -> Point {
        Point {
            server: server.to_owned(),
            tokens: whole(raw(bytes) * self.factor(server)),
            estimated: true,
        }
    }

    /// Spreads `actual` tokens, the true growth of a turn's input, over the results that entered it, in proportion to
    /// their estimates, and moves each server's factor towards what was seen. The points add up to `actual`; none
    /// where nothing entered.
    pub fn reconcile(&mut self, entered: &[Entered], actual: u64) -> Vec<Point> {
        let estimates: Vec<f64> = entered
            .iter()
            .map(|e| raw(e.bytes) * self.factor(&e.server))
            .collect();
        let total: f64 = estimates.iter().sum();
        if total <= 0.0 {
            return Vec::new();
        }
        let mut points = Vec::with_capacity(entered.len());
        let mut before = 0;
        let mut running = 0.0;
        for (item, estimate) in entered.iter().zip(&estimates) {
            // Differences of a running share, so that rounding loses nothing.
            running += estimate;
            let until = whole(float(actual) * (running / total)).min(actual);
            points.push(Point {
                server: item.server.clone(),
                tokens: until.saturating_sub(before),
                estimated: false,
            });
            before = until.max(before);
        }
        self.calibrate(entered, &estimates, float(actual) / total);
        points
    }

    /// Each server moves once a turn, by the share of all its results.
    fn calibrate(&mut self, entered: &[Entered], estimates: &[f64], ratio: f64) {
        let mut servers: Vec<(&str, f64, f64)> = Vec::new();
        for (item, estimate) in entered.iter().zip(estimates) {
            match servers.iter_mut().find(|(server, _, _)| *server == item.server) {
                Some((_, raw_sum, sum)) => {
                    *raw_sum += raw(item.bytes);
                    *sum += estimate;
                }
                None => servers.push((&item.server, raw(item.bytes), *estimate)),
            }
        }
        let (low, high) = FACTOR_RANGE;
        for (server, raw_sum, sum) in servers {
            if raw_sum > 0.0 {
                let seen = (sum * ratio / raw_sum).clamp(low, high);
                let factor = self.factor(server) * (1.0 - EMA_WEIGHT) + seen * EMA_WEIGHT;
                self.factors.put(server.to_owned(), factor.clamp(low, high));
            }
        }
    }
}

/// The finding for one expensive result, if it is one.
pub fn spike(tool: &str, point: &Point, bytes: u64) -> Option<Finding> {
    let severity = match point.tokens {
        SPIKE_HIGH.. => Severity::High,
        SPIKE_MEDIUM.. => Severity::Medium,
        _ => return None,
    };
    Some(Finding {
        code: "KAMS-CST-001",
        detector: "cost.spike",
        kind: Kind::CostSpike,
        severity,
        confidence: if point.estimated { 0.8 } else { 1.0 },
        tool: Some(tool.to_owned()),
        cause: format!("cost {tool}"),
        evidence: Evidence::Cost {
            tokens: point.tokens,
            bytes,
            estimated: point.estimated,
        },
    })
}

/// Token counts of definitions, each counted once. The tokenizer (o200k) is that of one model family: an estimate for
/// the others. The first use loads its tables (tens of milliseconds), and counting takes microseconds a kilobyte, so
/// this is for background work.
pub struct Definitions {
    counted: LruCache<u64, u64>,
}

impl Default for Definitions {
    fn default() -> Self {
        Self {
            counted: LruCache::new(NonZeroUsize::new(MAX_DEFINITIONS).unwrap_or(NonZeroUsize::MIN)),
        }
    }
}

impl Definitions {
    /// Tokens of one definition, as the JSON text that a model is shown.
    pub fn tokens(&mut self, definition: &str) -> u64 {
        self.tokens_by(definition, |text| Some(definition_tokens(text)))
    }

    /// The same with a tokenizer that is elsewhere; where it gives no count a rough one stands in, and is not kept.
    pub fn tokens_by(&mut self, definition: &str, count: impl FnOnce(&str) -> Option<u64>) -> u64 {
        let key = crate::behaviour::digest(definition.as_bytes());
        let count = || count(definition).ok_or(());
        match self.counted.try_get_or_insert(key, count) {
            Ok(tokens) => *tokens,
            Err(()) => rough_tokens(definition),
        }
    }

    /// The standing cost of a server: its definitions together. An estimate.
    pub fn standing(&mut self, server: &str, definitions: &[&str]) -> Point {
        let tokens = definitions.iter().map(|d| self.tokens(d)).sum();
        Point {
            server: server.to_owned(),
            tokens,
            estimated: true,
        }
    }
}

/// Tokens of one text by a rule of thumb, for when there is no tokenizer.
fn rough_tokens(text: &str) -> u64 {
    whole(raw(u64::try_from(text.len()).unwrap_or(u64::MAX)))
}

/// Tokens of one definition (o200k); what is beyond 256 KiB is counted roughly.
pub fn definition_tokens(text: &str) -> u64 {
    let end = (0..=MAX_DEFINITION.min(text.len()))
        .rev()
        .find(|i| text.is_char_boundary(*i))
        .unwrap_or(0);
    let (head, rest) = text.split_at(end);
    let exact = u64::try_from(bpe_openai::o200k_base().count(head)).unwrap_or(u64::MAX);
    exact.saturating_add(rough_tokens(rest))
}

/// Tokens before calibration.
fn raw(bytes: u64) -> f64 {
    float(bytes) / BYTES_PER_TOKEN
}

fn float(value: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    let value = value as f64;
    value
}

fn whole(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate"
    )]
    let value = value.round() as u64;
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entered(server: &str, bytes: u64) -> Entered {
        Entered {
            server: server.to_owned(),
            bytes,
        }
    }

    #[test]
    fn estimates_follow_bytes_and_say_so() {
        let point = Costs::default().estimate("s", 3_600);
        assert_eq!((point.tokens, point.estimated), (1_000, true));
    }

    #[test]
    fn a_rough_count_is_not_kept() {
        let mut definitions = Definitions::default();
        let text = "x".repeat(36);
        assert_eq!(definitions.tokens_by(&text, |_| None), 10);
        assert_eq!(definitions.tokens_by(&text, |_| Some(7)), 7);
        assert_eq!(definitions.tokens_by(&text, |_| None), 7, "counted once");
    }

    #[test]
    fn a_turn_is_spread_by_estimate() {
        let mut costs = Costs::default();
        let points = costs.reconcile(&[entered("a", 3_600), entered("b", 7_200)], 4_500);
        let tokens: Vec<_> = points
            .iter()
            .map(|p| (p.server.as_str(), p.tokens, p.estimated))
            .collect();
        assert_eq!(tokens, [("a", 1_500, false), ("b", 3_000, false)]);
        // Seen 1.5 times the estimate: 0.7 * 1 + 0.3 * 1.5.
        assert!((costs.factor("a") - 1.15).abs() < 1e-9);
        assert_eq!(costs.estimate("a", 3_600).tokens, 1_150);
        assert!((costs.factor("other") - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_wrong_turn_moves_a_factor_by_its_limit_only() {
        let mut costs = Costs::default();
        costs.reconcile(&[entered("a", 36)], 1_000_000);
        assert!((costs.factor("a") - 1.9).abs() < 1e-9);
        for _ in 0..50 {
            costs.reconcile(&[entered("a", 3_600)], 0);
        }
        assert!((costs.factor("a") - 0.25).abs() < 1e-3);
        assert!(costs.reconcile(&[], 100).is_empty());
    }

    #[test]
    fn spikes_by_size() {
        let point = |tokens| Point {
            server: "s".into(),
            tokens,
            estimated: true,
        };
        assert!(spike("t", &point(19_999), 1).is_none());
        assert_eq!(spike("t", &point(20_000), 1).unwrap().severity, Severity::Medium);
        assert_eq!(spike("t", &point(40_000), 1).unwrap().severity, Severity::High);
    }

    #[test]
    fn definitions_are_counted_once() {
        let mut definitions = Definitions::default();
        let tool = r#"{"name":"search","description":"Searches the index.","inputSchema":{"type":"object"}}"#;
        let one = definitions.tokens(tool);
        assert!((15..40).contains(&one), "{one}");
        let point = definitions.standing("s", &[tool, tool]);
        assert_eq!((point.tokens, point.estimated), (2 * one, true));
        assert_eq!(definitions.counted.len(), 1);
    }

    proptest! {
        #[test]
        fn shares_add_up(bytes in proptest::collection::vec(0_u64..1_000_000, 1..20), actual in 0_u64..10_000_000) {
            let mut costs = Costs::default();
            let items: Vec<_> = bytes.iter().enumerate().map(|(i, b)| entered(&(i % 3).to_string(), *b)).collect();
            let points = costs.reconcile(&items, actual);
            if bytes.iter().sum::<u64>() > 0 {
                prop_assert_eq!(points.iter().map(|p| p.tokens).sum::<u64>(), actual);
            }
            for server in ["0", "1", "2"] {
                prop_assert!((0.25..=4.0).contains(&costs.factor(server)));
            }
        }
    }
}
