//! `embedding_waste`: the same input embedded again in the session. Equal digests leave no doubt: 0.99.

use super::call::LlmCall;
use super::rule::{Firing, Rule};
use super::session::Session;
use super::similarity::as_f64;

/// The digest of what a call embeds. Clients of other vendors put their name before the method (`azure.embeddings.create`).
pub(super) fn input(call: &LlmCall) -> Option<u64> {
    let embeds = call.method.ends_with("embeddings.create") || call.method == "embed";
    embeds.then_some(call.request.embedding_input)?
}

pub(super) fn evaluate(session: &Session) -> Option<Firing> {
    let mut seen: std::collections::HashMap<u64, (usize, u64)> = std::collections::HashMap::new();
    for record in session.records() {
        if let Some(input) = record.embedding {
            seen.entry(input)
                .and_modify(|(count, wasted)| {
                    *count += 1;
                    *wasted = wasted.saturating_add(record.prompt_tokens);
                })
                .or_insert((1, 0));
        }
    }
    // The newest repeated input is the one to report: older ones were reported when they came.
    let repeated = session.records().rev().filter_map(|record| record.embedding);
    let (input, (count, wasted)) = repeated
        .filter_map(|input| Some((input, *seen.get(&input)?)))
        .find(|(_, (count, _))| *count > 1)?;
    Some(Firing {
        rule: Rule::EmbeddingWaste,
        confidence: 0.99,
        suggested_action: "add_embedding_cache",
        tool: None,
        subject: input,
        numbers: vec![
            ("duplicate_count", as_f64(count)),
            (
                "wasted_tokens",
                as_f64(usize::try_from(wasted).unwrap_or(usize::MAX)),
            ),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{calls, fires};
    use super::*;
    use serde_json::{Value, json};

    fn embed(inputs: &[Value]) -> Option<Firing> {
        let calls = calls(inputs.iter().enumerate().map(|(index, input)| {
            json!({"t": index, "method": "embeddings.create", "prompt_tokens": 7, "raw_request": {"input": input}})
        }));
        fires(Rule::EmbeddingWaste, &calls, &json!({}))
    }

    #[test]
    fn only_the_same_input_counts() {
        let fired = embed(&[json!("a"), json!("b"), json!("a"), json!("a")]).unwrap();
        assert_eq!(fired.numbers, [("duplicate_count", 3.0), ("wasted_tokens", 14.0)]);
        assert!(embed(&[json!("a"), json!("b")]).is_none());
        assert!(embed(&[json!("a"), json!(["a"])]).is_none());
        assert!(embed(&[json!(null), json!(null)]).is_none());
    }

    #[test]
    fn the_method_may_carry_a_vendor() {
        for (method, embeds) in [
            ("azure.embeddings.create", true),
            ("embed", true),
            ("embed_x", false),
            ("chat", false),
        ] {
            let calls =
                calls((0..2).map(|t| json!({"t": t, "method": method, "raw_request": {"input": "a"}})));
            assert_eq!(
                fires(Rule::EmbeddingWaste, &calls, &json!({})).is_some(),
                embeds,
                "{method}"
            );
        }
    }
}
