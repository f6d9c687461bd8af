//! OTLP telemetry of agents as LLM calls: pure functions from parsed OTLP JSON.
//!
//! Each agent says the same in its own words; what is read of which is in the module of the signal. Texts are measured and
//! hashed here and dropped. Cached tokens are made one thing: Claude Code leaves them out of its input count, the others
//! count them in. One call is read from one place only (Claude Code, Codex and Gemini CLI: logs; the others: spans), so
//! that a call told twice counts once.

use serde_json::Value;

use super::call::LlmCall;
use super::config::Config;

mod attributes;
mod logs;
mod spans;

use attributes::Attributes;

/// Records of one export that are read; the rest are dropped.
pub const MAX_EXPORTED: usize = 10_000;

/// The calls in one export: an object with `resourceLogs` or `resourceSpans`. What has another shape gives none.
pub fn calls(export: &Value, config: &Config) -> Vec<LlmCall> {
    let list = |value: &Value, name: &str| -> Vec<Value> {
        value
            .get(name)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let mut calls = Vec::new();
    let mut budget = MAX_EXPORTED;
    for (resources, scopes, records) in [
        ("resourceLogs", "scopeLogs", "logRecords"),
        ("resourceSpans", "scopeSpans", "spans"),
    ] {
        for resource in list(export, resources) {
            let about = Attributes::of(resource.get("resource"));
            let service = about.text("service.name").unwrap_or_default().to_owned();
            for scope in list(&resource, scopes) {
                for record in scope.get(records).and_then(Value::as_array).into_iter().flatten() {
                    if budget == 0 {
                        return calls;
                    }
                    budget -= 1;
                    let attributes = Attributes::of(Some(record));
                    let call = if resources == "resourceLogs" {
                        logs::call(&service, record, &attributes, config)
                    } else {
                        spans::call(&service, record, &attributes, config)
                    };
                    calls.extend(call);
                }
            }
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn sample(name: &str) -> Option<Vec<LlmCall>> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../shared/telemetry-samples")
            .join(name);
        let text = std::fs::read_to_string(path).ok()?;
        let sample: Value = serde_json::from_str(&text).unwrap();
        let mut all = Vec::new();
        for export in sample["exports"].as_array().unwrap() {
            let body = ["body", "payload", "data", "json"]
                .iter()
                .find_map(|name| export.get(*name));
            all.extend(calls(body.unwrap_or(export), &Config::default()));
        }
        Some(all)
    }

    /// Model calls (with tokens) of a sample.
    fn model_calls(name: &str) -> Option<Vec<LlmCall>> {
        Some(
            sample(name)?
                .into_iter()
                .filter(|call| call.usage.prompt_tokens > 0)
                .collect(),
        )
    }

    #[test]
    fn every_agent_gives_its_prompt_with_cached_parts_counted_once() {
        for (name, calls, prompt) in [
            ("claude-code.json", 2, 1_111 + 333 + 222),
            ("codex.json", 2, 1_111),
            ("gemini-cli.json", 2, 1_111),
            ("copilot-cli-content.json", 2, 1_111),
            ("opencode.json", 1, 1_111),
        ] {
            let Some(found) = model_calls(name) else { return };
            assert_eq!(found.len(), calls, "{name}: {found:?}");
            for call in found {
                assert_eq!(call.usage.prompt_tokens, prompt, "{name}");
                assert_eq!(call.usage.cached_tokens, 333, "{name}");
                assert_eq!(call.usage.completion_tokens, 44, "{name}");
                assert!(
                    !call.session.is_empty() && call.at > 0 && !call.model.is_empty(),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn an_instrumented_program_gives_hashes_instead_of_texts() {
        let Some(found) = sample("openinference-python-app.json") else {
            return;
        };
        assert!(
            found
                .iter()
                .any(|call| call.method == "embeddings.create" && call.request.embedding_input.is_some())
        );
        assert!(
            found
                .iter()
                .any(|call| call.method == "rerank" && call.request_hash.is_some())
        );
        assert!(
            found
                .iter()
                .any(|call| call.request.images.len() == 1 && call.request.high_detail_images == 1)
        );
        assert!(!format!("{found:?}").contains("top movies"));
    }

    #[test]
    fn other_shapes_give_nothing() {
        for text in [
            "null",
            "[]",
            r#"{"resourceLogs": 5}"#,
            r#"{"resourceSpans": [{"scopeSpans": [{"spans": [5]}]}]}"#,
        ] {
            assert!(calls(&serde_json::from_str(text).unwrap(), &Config::default()).is_empty());
        }
    }
}
