//! `tool_definition_bloat`: definitions that fill the context before any work.
//!
//! Confidence 0.85 when the number or the bytes reach their threshold, 0.95 when both reach one and a half times theirs,
//! 0.5 for blocks beyond `max_total_bytes`.

use super::call::LlmCall;
use super::config::Config;
use super::rule::{Firing, Rule};
use super::similarity::as_f64;

/// Bytes per token, roughly.
const BYTES_PER_TOKEN: f64 = 4.0;

pub(super) fn evaluate(call: &LlmCall, config: &Config) -> Option<Firing> {
    let knobs = &config.tool_definition_bloat;
    let tools = call.request.tools.filter(|tools| tools.count > 0)?;
    let truncated = tools.bytes > knobs.max_total_bytes;
    let many = tools.count >= knobs.tool_count_threshold;
    let long = tools.bytes >= knobs.tool_definition_bytes_threshold;
    if !truncated && !many && !long {
        return None;
    }
    Some(Firing {
        rule: Rule::ToolDefinitionBloat,
        confidence: match (
            truncated,
            far(tools.count, knobs.tool_count_threshold)
                && far(tools.bytes, knobs.tool_definition_bytes_threshold),
        ) {
            (true, _) => 0.5,
            (false, true) => 0.95,
            (false, false) => 0.85,
        },
        suggested_action: "reduce_tool_count_or_use_lazy_tool_loading",
        tool: None,
        subject: 0,
        numbers: vec![
            ("tool_count", as_f64(tools.count)),
            ("definition_bytes", as_f64(tools.bytes)),
            (
                "estimated_tokens",
                (as_f64(tools.bytes) / BYTES_PER_TOKEN).floor(),
            ),
            ("largest_bytes", as_f64(tools.largest)),
            ("truncated", f64::from(u8::from(truncated))),
        ],
    })
}

/// Whether a figure reaches one and a half times its threshold, rounded down.
fn far(figure: usize, threshold: usize) -> bool {
    figure >= threshold.saturating_add(threshold / 2)
}

#[cfg(test)]
mod tests {
    use super::super::testing::near;
    use super::*;
    use crate::waste::request::{Request, ToolDefinitions};

    fn confidence(count: usize, bytes: usize) -> Option<f64> {
        let tools = Some(ToolDefinitions {
            count,
            bytes,
            largest: bytes,
        });
        let call = LlmCall {
            request: Request {
                tools,
                ..Request::default()
            },
            ..LlmCall::default()
        };
        evaluate(&call, &Config::default()).map(|fired| fired.confidence)
    }

    #[test]
    fn definitions_stand_in_one_of_two_places() {
        use super::super::testing::{calls, fires};
        use serde_json::json;

        let tools = vec![json!({"name": "t"}); 30];
        for (request, bloat) in [
            (json!({"tools": tools}), true),
            (json!({"tools": {}, "toolConfig": {"tools": tools}}), true),
            (json!({"tools": [], "toolConfig": {"tools": tools}}), false),
        ] {
            let calls = calls([json!({"raw_request": request})]);
            let fired = fires(Rule::ToolDefinitionBloat, &calls, &json!({}));
            assert_eq!(fired.is_some(), bloat, "{request}");
        }
    }

    #[test]
    fn thresholds_include_their_edges() {
        assert_eq!(confidence(29, 29_999), None);
        near(confidence(30, 100).unwrap(), 0.85);
        near(confidence(1, 30_000).unwrap(), 0.85);
        near(confidence(45, 44_999).unwrap(), 0.85);
        near(confidence(45, 45_000).unwrap(), 0.95);
        near(confidence(60, 5_242_880).unwrap(), 0.95);
        near(confidence(60, 5_242_881).unwrap(), 0.5);
        assert_eq!(confidence(0, 0), None);
    }
}
