//! OTLP telemetry of agents as LLM calls: pure functions from the bytes of an export.
//!
//! Each agent says the same in its own words; what is read of which is in the module of the signal. Texts are measured and
//! hashed here and dropped. Cached tokens are made one thing: Claude Code leaves them out of its input count, the others
//! count them in. One call is read from one place only (Claude Code, Codex and Gemini CLI: logs; the others: spans), so
//! that a call told twice counts once.

use serde_json::Value;

use super::call::LlmCall;
use super::config::Config;

mod attributes;
mod json;
mod logs;
mod spans;
mod wire;

use attributes::Attributes;

/// Records of one export that are read; the rest are dropped.
pub const MAX_EXPORTED: usize = 10_000;

/// Bytes of tools' arguments that are compared of one export; calls beyond are dropped.
pub const MAX_EXPORTED_ARGUMENTS: usize = 2 << 20;
/// Values of one export that are kept while it is read. An export of 8 MiB can hold millions of empty records: their
/// bytes are few, what they decode to is not. With [`OBJECT`] this bounds what is kept to about 30 MB and the texts.
pub const MAX_VALUES: usize = 300_000;
/// The same for calls that are told by themselves, whose requests hold many small objects.
const MAX_TOLD: usize = 2 * MAX_VALUES;
/// What an object with members counts beside them: its first member takes as much memory as so many values.
const OBJECT: usize = 6;
/// Attributes of one record that are kept.
const MAX_ATTRIBUTES: usize = 1_024;
/// Deepest nesting that is read.
const MAX_DEPTH: usize = 64;
/// Characters of a service's name that are kept.
const MAX_SERVICE: usize = 64;

/// What an export carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    /// `ExportLogsServiceRequest`.
    Logs,
    /// `ExportTraceServiceRequest`.
    Traces,
    /// `ExportMetricsServiceRequest`. Checked for its form only: what metrics say stands in logs and spans too.
    Metrics,
}

impl Signal {
    /// The signal's path word: `logs`, `traces`, `metrics`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Logs => "logs",
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }

    const fn resources(self) -> &'static str {
        match self {
            Self::Logs => "resourceLogs",
            Self::Traces => "resourceSpans",
            Self::Metrics => "resourceMetrics",
        }
    }
}

/// Why an export is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Malformed {
    /// No JSON.
    #[error("the body is no JSON")]
    Json,
    /// JSON of another shape.
    #[error("the body is not an OTLP export of this signal")]
    Shape,
    /// No protobuf message of this kind.
    #[error("the body is no OTLP protobuf message of this signal")]
    Protobuf,
    /// Too much for its size.
    #[error(
        "the body holds too many values (an object counts {OBJECT} more), or nests deeper than {MAX_DEPTH}"
    )]
    TooMuch,
}

/// Reads an export in JSON; members that nothing here reads are left out.
pub fn from_json(signal: Signal, body: &[u8]) -> Result<Value, Malformed> {
    let export = json::read(body, MAX_VALUES, Some(&json::OF_OTLP))?;
    let members = export.as_object().ok_or(Malformed::Shape)?;
    match members.get(signal.resources()) {
        Some(Value::Array(resources)) if resources.iter().all(Value::is_object) => Ok(export),
        // An empty export is one.
        None | Some(Value::Null) if members.is_empty() => Ok(export),
        _ => Err(Malformed::Shape),
    }
}

/// Reads any JSON within a budget of the same kind.
pub fn read_json(body: &[u8]) -> Result<Value, Malformed> {
    json::read(body, MAX_TOLD, None)
}

/// Reads an export in protobuf, into the shape that it has in JSON.
pub fn from_protobuf(signal: Signal, body: &[u8]) -> Result<Value, Malformed> {
    wire::read(signal, body)
}

/// The calls in one export as [`from_json`] and [`from_protobuf`] give it. What has another shape gives none.
pub fn calls(export: &Value, config: &Config) -> Vec<LlmCall> {
    fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
        value
            .get(name)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }
    let mut calls: Vec<LlmCall> = Vec::new();
    let (mut budget, mut arguments) = (MAX_EXPORTED, 0);
    for (resources, scopes, records) in [
        ("resourceLogs", "scopeLogs", "logRecords"),
        ("resourceSpans", "scopeSpans", "spans"),
    ] {
        for resource in list(export, resources) {
            let about = Attributes::of(resource.get("resource"));
            let service = about.text("service.name").unwrap_or_default();
            let pid = about.count("process.pid").and_then(|pid| u32::try_from(pid).ok());
            for scope in list(resource, scopes) {
                for record in list(scope, records) {
                    if budget == 0 {
                        return calls;
                    }
                    budget -= 1;
                    let attributes = Attributes::of(Some(record));
                    let call = if resources == "resourceLogs" {
                        logs::call(service, record, &attributes, config)
                    } else {
                        spans::call(service, record, &attributes, config)
                    };
                    let call = call.filter(|call| {
                        let bytes: usize = call
                            .tool_calls
                            .iter()
                            .map(|tool| tool.arguments.looped.bytes)
                            .sum();
                        arguments += bytes;
                        bytes == 0 || arguments <= MAX_EXPORTED_ARGUMENTS
                    });
                    calls.extend(call.map(|call| LlmCall {
                        service: crate::finding::cut(service, MAX_SERVICE).to_owned(),
                        pid,
                        ..call
                    }));
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

    /// The exports of a sample with their signals.
    fn exports(name: &str) -> Option<Vec<(Signal, Value)>> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../shared/telemetry-samples")
            .join(name);
        let text = std::fs::read_to_string(path).ok()?;
        let sample: Value = serde_json::from_str(&text).unwrap();
        let signals = [Signal::Logs, Signal::Traces, Signal::Metrics];
        let exports = sample["exports"].as_array().unwrap().iter().map(|export| {
            let body = ["body", "payload", "data", "json"]
                .iter()
                .find_map(|name| export.get(*name));
            let body = body.unwrap_or(export).clone();
            let signal = signals
                .into_iter()
                .find(|signal| body.get(signal.resources()).is_some());
            (signal.unwrap(), body)
        });
        Some(exports.collect())
    }

    fn sample(name: &str) -> Option<Vec<LlmCall>> {
        let mut all = Vec::new();
        for (signal, body) in exports(name)? {
            let read = from_json(signal, body.to_string().as_bytes()).unwrap();
            all.extend(calls(&read, &Config::default()));
        }
        Some(all)
    }

    /// Exports in both forms; the protobuf is written by the Python package opentelemetry-proto 1.x.
    const OTLP: &str = include_str!("../../tests/data/otlp.json");

    #[test]
    fn protobuf_says_what_json_says() {
        let config = Config::default();
        let both: Value = serde_json::from_str(OTLP).unwrap();
        for (signal, expected) in [(Signal::Logs, 2), (Signal::Traces, 1), (Signal::Metrics, 0)] {
            let export = &both[signal.name()];
            let plain = from_json(signal, export["json"].to_string().as_bytes()).unwrap();
            let plain = calls(&plain, &config);
            assert_eq!(plain.len(), expected, "{signal:?}");
            let bytes = hex::decode(export["protobuf"].as_str().unwrap()).unwrap();
            let read = from_protobuf(signal, &bytes).unwrap();
            assert_eq!(calls(&read, &config), plain, "{signal:?}");
            for end in 1..bytes.len() {
                // Cut between two fields of the outermost message it would be whole; here there is one field.
                assert_eq!(
                    from_protobuf(signal, bytes.get(..end).unwrap()),
                    Err(Malformed::Protobuf),
                    "{signal:?} cut at {end}"
                );
            }
        }
    }

    #[test]
    fn a_bomb_of_empty_records_is_refused() {
        // One resource with one scope of two million empty log records.
        let records = [0x12, 0x00].repeat(2_000_000);
        let wrap = |tag: u8, inner: &[u8]| {
            let mut out = vec![tag];
            let mut length = inner.len();
            while length >= 0x80 {
                out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
                length >>= 7;
            }
            out.push(u8::try_from(length).unwrap());
            out.extend_from_slice(inner);
            out
        };
        let bomb = wrap(0x0a, &wrap(0x12, &records));
        assert_eq!(from_protobuf(Signal::Logs, &bomb), Err(Malformed::TooMuch));
        let list = format!(r#"{{"resourceLogs": [{}{{}}]}}"#, "{},".repeat(MAX_VALUES));
        assert_eq!(from_json(Signal::Logs, list.as_bytes()), Err(Malformed::TooMuch));
        let deep = format!(r#"{{"resource": {}1{}}}"#, "[".repeat(100), "]".repeat(100));
        assert_eq!(from_json(Signal::Logs, deep.as_bytes()), Err(Malformed::TooMuch));
    }

    #[test]
    fn other_bodies_are_refused() {
        for body in [
            "",
            "{",
            "null",
            "[]",
            "7",
            r#"{"resourceSpans": []}"#,
            r#"{"resourceLogs": 5}"#,
        ] {
            assert!(from_json(Signal::Logs, body.as_bytes()).is_err(), "{body}");
        }
        assert!(from_json(Signal::Logs, b"{}").is_ok());
        for body in [b"\x0b".as_slice(), b"\x0a\x05", b"\x08\x01", b"hello", b"\xff"] {
            assert_eq!(
                from_protobuf(Signal::Logs, body),
                Err(Malformed::Protobuf),
                "{body:?}"
            );
        }
        assert!(from_protobuf(Signal::Logs, b"").is_ok());
    }

    #[test]
    fn who_types_has_heard_and_tools_without_arguments_are_left_out() {
        for (name, prompts, tools) in [
            ("claude-code.json", 2, 1),
            ("codex.json", 1, 1),
            ("gemini-cli.json", 1, 0),
        ] {
            let Some(found) = sample(name) else { return };
            assert_eq!(
                found.iter().filter(|call| call.user_facing).count(),
                prompts,
                "{name}"
            );
            // By the ids of calls a session is tied to the agent's MCP requests.
            let ids = found.iter().filter(|call| call.call_key.is_some()).count();
            assert_eq!(ids, usize::from(name != "gemini-cli.json"), "{name}");
            let tools_seen: usize = found.iter().map(|call| call.tool_calls.len()).sum();
            assert_eq!(tools_seen, tools, "{name}");
            assert!(
                found
                    .iter()
                    .filter(|call| !call.tool_calls.is_empty())
                    .all(|call| call.over_mcp)
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
            for signal in [Signal::Logs, Signal::Traces, Signal::Metrics] {
                if let Ok(export) = from_protobuf(signal, &bytes) {
                    calls(&export, &Config::default());
                }
                if let Ok(export) = from_json(signal, &bytes) {
                    calls(&export, &Config::default());
                }
            }
        }
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
    fn what_a_program_says_it_said_is_measured() {
        let chat = |attributes: &[(&str, &str)]| {
            let attributes: Vec<Value> = attributes
                .iter()
                .map(|(key, text)| serde_json::json!({"key": key, "value": {"stringValue": text}}))
                .collect();
            let export = serde_json::json!({"resourceSpans": [{"scopeSpans": [{"spans": [
                {"name": "x", "traceId": "t", "startTimeUnixNano": "5", "attributes": attributes}]}]}]});
            let read = from_json(Signal::Traces, export.to_string().as_bytes()).unwrap();
            calls(&read, &Config::default()).pop().unwrap()
        };
        let parts =
            r#"[{"role": "user", "parts": [{"type": "text", "content": "yes or no: is it zulu-7?"}]}]"#;
        let conventions = chat(&[
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.input.messages", parts),
            ("gen_ai.response.model", "gpt-5"),
            ("gen_ai.usage.prompt_tokens", "40"),
        ]);
        assert_eq!(
            (conventions.model.as_str(), conventions.usage.prompt_tokens),
            ("gpt-5", 40)
        );
        let said = r#"[{"role": "user", "content": [{"type": "text", "text": "Yes or no: is it zulu-7?"}]}]"#;
        let vercel = chat(&[
            ("ai.operationId", "ai.generateText.doGenerate"),
            ("ai.prompt.messages", said),
        ]);
        for call in [
            &conventions,
            &vercel,
            &chat(&[("llm.request.type", "chat"), ("gen_ai.input.messages", parts)]),
        ] {
            assert_eq!(call.request.classification, ["yes or no"], "{call:?}");
            assert_eq!(call.request.turns.len(), 1);
            assert!(!format!("{call:?}").contains("zulu"));
        }
    }

    #[test]
    fn attributes_are_read_by_their_kind() {
        let text = r#"{"resourceLogs": [{"resource": null, "scopeLogs": [{"logRecords": [{"attributes": [
            {"key": "a", "value": {"stringValue": "7"}}, {"key": "b", "value": {"intValue": "8"}},
            {"key": "c", "value": {"intValue": 9}}, {"key": "d", "value": {"doubleValue": 10.0}},
            {"key": "e", "value": {"arrayValue": {"values": [{"stringValue": "x"}, {"kvlistValue": {"values": []}}, {}]}}},
            {"key": "f", "value": {"boolValue": true}}, {"key": "g"}, {"value": {"stringValue": "h"}}, {},
            {"key": "i", "value": null}, {"key": "j", "value": {"doubleValue": "NaN"}},
            {"key": "k", "value": {"arrayValue": {}}}]}, {"attributes": null}, {"attributes": []}]}]}]}"#;
        let read = from_json(Signal::Logs, text.as_bytes()).unwrap();
        let records = &read["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
        let about = Attributes::of(records.get(0));
        let counts = ["a", "b", "c", "d", "e", "f"].map(|name| about.count(name));
        assert_eq!(counts, [Some(7), Some(8), Some(9), Some(10), None, None]);
        assert_eq!((about.text("a"), about.text("c")), (Some("7"), None));
        assert_eq!(about.texts("e"), ["x"]);
        for name in ["f", "g", "i", "j"] {
            assert_eq!((about.text(name), about.count(name)), (None, None), "{name}");
        }
        assert!(Attributes::of(records.get(1)).text("a").is_none());
        for wrong in [
            r#"{"resourceLogs": [{"resource": {"attributes": 5}}]}"#,
            r#"{"resourceLogs": [{"resource": {"attributes": {"key": "a"}}}]}"#,
            r#"{"resourceLogs": [{"resource": {"attributes": [5]}}]}"#,
            r#"{"resourceLogs": [{"resource": {"attributes": [{"key": 5, "value": {}}]}}]}"#,
        ] {
            assert_eq!(
                from_json(Signal::Logs, wrong.as_bytes()),
                Err(Malformed::Json),
                "{wrong}"
            );
        }
    }

    /// Bytes that a JSON tree keeps on the heap, counted from below.
    fn kept(value: &Value) -> usize {
        match value {
            // A node of a map has room for eleven members.
            Value::Object(map) => {
                let nodes = map.len().div_ceil(11);
                let member = size_of::<String>() + size_of::<Value>();
                nodes * 11 * member
                    + map
                        .iter()
                        .map(|(name, value)| name.len() + kept(value))
                        .sum::<usize>()
            }
            Value::Array(list) => list.capacity() * size_of::<Value>() + list.iter().map(kept).sum::<usize>(),
            Value::String(text) => text.len(),
            _ => 0,
        }
    }

    #[test]
    fn no_export_of_the_largest_size_takes_more_than_its_bound() {
        const BODY: usize = 16 << 20;
        let many = |open: &str, one: &str, close: &str| {
            let times = (BODY - open.len() - close.len()) / (one.len() + 1);
            let mut text = String::with_capacity(BODY);
            text.push_str(open);
            for _ in 1..times {
                text.push_str(one);
                text.push(',');
            }
            text.push_str(one);
            text.push_str(close);
            text
        };
        for (open, one, close) in [
            (r#"{"resourceLogs":["#, "{}", "]}"),
            (r#"{"resourceLogs":["#, r#"{"name":0}"#, "]}"),
            (
                r#"{"resourceLogs":["#,
                r#"{"resource":{"attributes":[{}]}}"#,
                "]}",
            ),
            (
                r#"{"resourceLogs":["#,
                r#"{"resource":{"attributes":[{"key":"","value":{"intValue":1}}]}}"#,
                "]}",
            ),
            (
                r#"{"resourceLogs":[{"resource":{"attributes":["#,
                r#"{"key":"","value":{"arrayValue":{"values":[{"intValue":1}]}}}"#,
                "]}}]}",
            ),
        ] {
            // What fits is cut down until it does, as a sender would.
            let mut text = many(open, one, close);
            let read = loop {
                match from_json(Signal::Logs, text.as_bytes()) {
                    Ok(read) => break read,
                    Err(Malformed::TooMuch) => {
                        let keep = (text.len() - open.len() - close.len()) * 9 / 10 / (one.len() + 1);
                        text = format!(
                            "{open}{}{one}{close}",
                            format!("{one},").repeat(keep.saturating_sub(1))
                        );
                    }
                    Err(other) => panic!("{one}: {other}"),
                }
            };
            assert!(kept(&read) < 40 << 20, "{one}: {} bytes", kept(&read));
        }
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
