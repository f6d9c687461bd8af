//! `kams detect --corpus` for rows of kind `behaviour`: the calls of one run in, findings with the call at which each
//! fired out.

use serde_json::{Value, json};

use crate::behaviour::{Call, Monitor, Scope, canonical_digest, digest};
use crate::finding::Evidence;

/// The result row of one `behaviour` row: `id` and `findings`; `at_call` counts from 1, `count` is the number of
/// findings of that detector at that call.
pub fn row(row: &Value) -> Value {
    let calls = row
        .get("calls")
        .or_else(|| row.get("value")?.get("calls").or_else(|| row.get("value")));
    let mut monitor = Monitor::default();
    let scope = Scope::new("run", "server");
    let mut findings = Vec::new();
    for (index, call) in calls.and_then(Value::as_array).into_iter().flatten().enumerate() {
        // An `input_required` answer completes no call.
        if call.get("input_required").and_then(Value::as_bool) == Some(true) {
            continue;
        }
        let text = |name: &str| call.get(name).map(Value::to_string).unwrap_or_default();
        let nanos =
            |name: &str, unit: f64| scaled(call.get(name).and_then(Value::as_f64).unwrap_or(0.0) * unit);
        let observed = monitor.observe(
            scope,
            &Call {
                at: nanos("t", 1e9),
                tool: call.get("tool").and_then(Value::as_str).unwrap_or_default(),
                arguments: canonical_digest(text("args").as_bytes()),
                result: digest(text("result").as_bytes()),
                failed: call.get("ok").and_then(Value::as_bool) == Some(false),
                duration: nanos("ms", 1e6),
            },
        );
        for finding in observed {
            let Evidence::Behaviour {
                count: calls,
                seconds,
                ratio,
            } = finding.evidence
            else {
                continue;
            };
            findings.push(json!({
                "code": finding.code,
                "detector": finding.detector,
                "kind": finding.kind.name(),
                "severity": finding.severity.name(),
                "confidence": finding.confidence,
                "at_call": index + 1,
                "count": 1,
                "tool": finding.tool,
                "calls": calls,
                "seconds": seconds,
                "ratio": ratio,
            }));
        }
    }
    json!({ "id": row.get("id"), "findings": findings })
}

/// A number of nanoseconds; what is negative or no number counts as zero.
fn scaled(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate"
    )]
    let nanos = value.round() as u64;
    nanos
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn shared_cases() {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora/behaviour.open.jsonl");
        let Ok(text) = std::fs::read_to_string(path) else {
            return;
        };
        let mut wrong = 0;
        let mut all = 0;
        for line in text.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            if case["note"].as_str().is_some_and(|n| n.contains("open question")) {
                continue;
            }
            all += 1;
            let mut expected: Vec<(u64, String)> = case["expect"]
                .as_array()
                .unwrap()
                .iter()
                .map(|e| {
                    (
                        e["at_call"].as_u64().unwrap(),
                        e["detector"].as_str().unwrap().to_owned(),
                    )
                })
                .collect();
            let result = row(&case);
            let mut found: Vec<(u64, String)> = result["findings"]
                .as_array()
                .unwrap()
                .iter()
                .map(|f| {
                    (
                        f["at_call"].as_u64().unwrap(),
                        f["detector"].as_str().unwrap().to_owned(),
                    )
                })
                .collect();
            expected.sort();
            found.sort();
            if expected != found {
                wrong += 1;
                println!(
                    "{} {} expected {expected:?} found {found:?}",
                    case["id"], case["case"]
                );
            }
        }
        println!("behaviour: {} of {all} rows", all - wrong);
        assert_eq!(wrong, 0);
    }
}
