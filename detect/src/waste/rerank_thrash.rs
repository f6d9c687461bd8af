//! `rerank_thrash`: the same rerank request again; it scores the same. Cohere only. Confidence 0.75 at the threshold and
//! 0.05 more for each further call, to 0.9.

use super::call::LlmCall;
use super::config::Config;
use super::retry_storm::repeated;
use super::rule::{Firing, Rule};
use super::session::Session;
use super::similarity::as_f64;

/// Whether a call reranks.
pub(super) fn is_rerank(call: &LlmCall) -> bool {
    call.provider == "cohere" && call.method == "rerank"
}

pub(super) fn evaluate(session: &Session, config: &Config, told: &dyn Fn(u64) -> bool) -> Option<Firing> {
    let knobs = &config.rerank_thrash;
    let (hash, count, span) = repeated(session.window(knobs.window_seconds), knobs.min_calls, |record| {
        record.request_hash.filter(|hash| record.rerank && !told(*hash))
    })?;
    Some(Firing {
        rule: Rule::RerankThrash,
        confidence: (0.75 + 0.05 * as_f64(count.saturating_sub(knobs.min_calls))).min(0.9),
        suggested_action: "cache_rerank_results_by_query_hash",
        tool: None,
        subject: hash,
        numbers: vec![("call_count", as_f64(count)), ("time_span_seconds", span)],
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{calls, fires, near};
    use super::*;
    use serde_json::json;

    fn reranked(times: &[f64], method: &str) -> Option<Firing> {
        let calls = calls(
            times
                .iter()
                .map(|t| json!({"t": t, "provider": "cohere", "method": method, "request_hash": "r"})),
        );
        fires(Rule::RerankThrash, &calls, &json!({}))
    }

    #[test]
    fn the_second_is_waste() {
        near(reranked(&[0.0, 30.0], "rerank").unwrap().confidence, 0.75);
        near(
            reranked(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "rerank")
                .unwrap()
                .confidence,
            0.9,
        );
        assert!(reranked(&[0.0, 30.01], "rerank").is_none());
        assert!(reranked(&[0.0], "rerank").is_none());
        assert!(reranked(&[0.0, 1.0], "chat").is_none());
    }
}
