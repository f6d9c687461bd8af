//! `context_bloat`: prompts that grow turn by turn, by the slope of a least-squares line through the last turns.
//!
//! Side calls (titles, summaries) are no turns. Confidence rises from 0.55 at the threshold by 0.25 for each multiple of
//! it, to 0.95.

use super::config::Config;
use super::rule::{Firing, Rule};
use super::session::Session;
use super::similarity::as_f64;

pub(super) fn evaluate(session: &Session, config: &Config) -> Option<Firing> {
    let knobs = &config.context_bloat;
    let look = if knobs.lookback_turns == 0 {
        usize::MAX
    } else {
        knobs.lookback_turns
    };
    let all = session.records().filter(|record| !record.side).count();
    let mut turns: Vec<f64> = session
        .records()
        .rev()
        .filter(|record| !record.side)
        .take(look)
        .map(|record| as_f64(usize::try_from(record.prompt_tokens).unwrap_or(usize::MAX)))
        .collect();
    turns.reverse();
    if all < knobs.min_turns || turns.len() < 2 {
        return None;
    }
    let slope = slope(&turns);
    if slope < knobs.slope_threshold {
        return None;
    }
    // A threshold of nothing has no multiple; there each token counts.
    let above = slope - knobs.slope_threshold;
    let unit = if knobs.slope_threshold > 0.0 {
        4.0 * knobs.slope_threshold
    } else {
        1.0
    };
    Some(Firing {
        rule: Rule::ContextBloat,
        confidence: (0.55 + above / unit).min(0.95),
        suggested_action: "truncate_or_summarize_history",
        tool: None,
        subject: 0,
        numbers: vec![
            ("tokens_per_turn_slope", slope),
            ("first_turn_tokens", turns.first().copied().unwrap_or_default()),
            ("last_turn_tokens", turns.last().copied().unwrap_or_default()),
            ("turns_evaluated", as_f64(turns.len())),
        ],
    })
}

/// Slope of the least-squares line through (0, y0), (1, y1), ...; at least two points.
fn slope(values: &[f64]) -> f64 {
    let count = as_f64(values.len());
    let middle = (count - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / count;
    let (mut over, mut under) = (0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let x = as_f64(index) - middle;
        over += x * (value - mean);
        under += x * x;
    }
    over / under
}

#[cfg(test)]
mod tests {
    use super::super::testing::{calls, fires, near};
    use super::*;
    use serde_json::{Value, json};

    fn prompts(tokens: &[u64]) -> Value {
        calls(
            tokens
                .iter()
                .enumerate()
                .map(|(turn, tokens)| json!({"t": turn * 20, "prompt_tokens": tokens})),
        )
    }

    #[test]
    fn the_slope_decides_its_edge_included() {
        let line = |step: u64| (0..8).map(|turn| 3_000 + step * turn).collect::<Vec<_>>();
        assert!(fires(Rule::ContextBloat, &prompts(&line(1_499)), &json!({})).is_none());
        near(
            fires(Rule::ContextBloat, &prompts(&line(1_500)), &json!({}))
                .unwrap()
                .confidence,
            0.55,
        );
        near(
            fires(Rule::ContextBloat, &prompts(&line(3_000)), &json!({}))
                .unwrap()
                .confidence,
            0.80,
        );
        near(
            fires(Rule::ContextBloat, &prompts(&line(60_000)), &json!({}))
                .unwrap()
                .confidence,
            0.95,
        );
    }

    #[test]
    fn without_a_threshold_each_token_counts() {
        let none = json!({"context_bloat.slope_threshold": 0});
        let level = fires(Rule::ContextBloat, &prompts(&[700; 5]), &none).unwrap();
        near(level.confidence, 0.55);
        let rising = fires(Rule::ContextBloat, &prompts(&[700, 701, 702, 703, 704]), &none).unwrap();
        near(rising.confidence, 0.95);
    }

    #[test]
    fn small_sessions_and_compaction_are_quiet() {
        assert!(
            fires(
                Rule::ContextBloat,
                &prompts(&[0, 5_000, 10_000, 15_000]),
                &json!({})
            )
            .is_none()
        );
        let saw = [4, 8, 12, 16, 4, 8, 12, 16, 4, 8].map(|k| k * 1_000);
        assert!(fires(Rule::ContextBloat, &prompts(&saw), &json!({})).is_none());
    }
}
