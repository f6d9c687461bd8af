//! `tool_loop`: one tool, called again and again with nearly the same arguments.
//!
//! Quiet for polling tools and where a number among the arguments grows from call to call (paging). Confidence rises
//! from 0.6 at the threshold by 0.4 for each 0.1 of similarity, to 0.99.

use super::call::{Field, digest};
use super::config::Config;
use super::repetition::{Group, by_tool, numbers, similarity};
use super::rule::{Firing, Rule};
use super::session::Session;

pub(super) fn evaluate(session: &Session, config: &Config, told: &dyn Fn(u64) -> bool) -> Option<Firing> {
    let knobs = &config.tool_loop;
    for group in by_tool(session, knobs.window_seconds) {
        let polling = || {
            let name = group.tool.to_lowercase();
            knobs.polling_tools.iter().any(|tool| tool.to_lowercase() == name)
        };
        let subject = digest(group.tool.as_bytes());
        if group.calls.len() < knobs.min_calls || told(subject) || polling() || pages(&group) {
            continue;
        }
        let mean = similarity(
            &group,
            knobs.similarity_metric,
            knobs.max_total_corpus_bytes,
            |call| &call.arguments.looped,
        );
        if mean >= knobs.threshold() {
            return Some(Firing {
                rule: Rule::ToolLoop,
                confidence: (0.6 + 4.0 * (mean - knobs.threshold())).clamp(0.6, 0.99),
                suggested_action: "pause_for_human_review",
                tool: Some(group.tool.to_string()),
                subject,
                numbers: numbers(&group, knobs.window_seconds, mean),
            });
        }
    }
    None
}

/// Whether one member of the arguments differs between the calls, is a number, and grows from each call to the next as
/// they came in: paging.
fn pages(group: &Group<'_>) -> bool {
    let mut growing = None;
    group.calls.windows(2).all(|pair| {
        let [before, after] = pair else { return false };
        let (before, after) = (&before.arguments.fields, &after.arguments.fields);
        let mut changed = before.iter().zip(after).filter(|(a, b)| a != b);
        let grows = match (changed.next(), changed.next()) {
            (Some(((a_key, Field::Number(a)), (b_key, Field::Number(b)))), None) => {
                let same = *growing.get_or_insert(*a_key);
                a_key == b_key && same == *a_key && b > a
            }
            _ => false,
        };
        grows && before.len() == after.len()
    }) && growing.is_some()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{fires, near, tool_calls};
    use super::*;
    use serde_json::json;

    fn looping(arguments: &[serde_json::Value]) -> Option<Firing> {
        fires(
            Rule::ToolLoop,
            &tool_calls("fetch_part", arguments, 5.0),
            &json!({}),
        )
    }

    #[test]
    fn near_identical_arguments_are_a_loop() {
        let fired = looping(&[
            json!({"q": "hydraulic valve 12"}),
            json!({"q": "Hydraulic Valve 12"}),
            json!({"q": "hydraulic valve 12 "}),
        ])
        .unwrap();
        assert!(fired.confidence > 0.9);
        assert_eq!(fired.suggested_action, "pause_for_human_review");
        assert_eq!(fired.tool.as_deref(), Some("fetch_part"));
    }

    #[test]
    fn paging_is_no_loop_until_a_page_comes_again() {
        let page = |page: u32| json!({"table": "orders of last year", "page": page});
        assert!(looping(&[page(1), page(2), page(3), page(4)]).is_none());
        assert!(looping(&[page(1), page(2), page(2), page(3)]).is_some());
        assert!(looping(&[page(3), page(2), page(1)]).is_some());
    }

    #[test]
    fn the_window_includes_its_edge() {
        let same = vec![json!({"q": "x"}); 3];
        assert!(fires(Rule::ToolLoop, &tool_calls("f", &same, 30.0), &json!({})).is_some());
        assert!(fires(Rule::ToolLoop, &tool_calls("f", &same, 30.001), &json!({})).is_none());
    }

    #[test]
    fn polling_tools_may_be_called_again() {
        let same = vec![json!({"job": 9}); 6];
        assert!(
            fires(
                Rule::ToolLoop,
                &tool_calls("Check_Status", &same, 5.0),
                &json!({})
            )
            .is_none()
        );
        let own = json!({"tool_loop.polling_tools": ["get_build"]});
        assert!(fires(Rule::ToolLoop, &tool_calls("get_build", &same, 5.0), &own).is_none());
        assert!(fires(Rule::ToolLoop, &tool_calls("check_status", &same, 5.0), &own).is_some());
    }

    #[test]
    fn confidence_at_the_threshold() {
        let arguments = [
            json!({"q": "pump seal a"}),
            json!({"q": "pump seal b"}),
            json!({"q": "pump seal c"}),
        ];
        let calls = tool_calls("f", &arguments, 5.0);
        let any = fires(
            Rule::ToolLoop,
            &calls,
            &json!({"tool_loop.cosine_threshold": 0.1}),
        )
        .unwrap();
        let mean = any
            .numbers
            .iter()
            .find(|(name, _)| *name == "mean_similarity")
            .unwrap()
            .1;
        let at = fires(
            Rule::ToolLoop,
            &calls,
            &json!({"tool_loop.cosine_threshold": mean}),
        )
        .unwrap();
        near(at.confidence, 0.6);
        let above = json!({"tool_loop.cosine_threshold": mean + 1e-6});
        assert!(fires(Rule::ToolLoop, &calls, &above).is_none());
    }
}
