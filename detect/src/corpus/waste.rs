//! `kams detect --corpus` for rows of kind `waste_rule`: the calls of one session in, what the row's rule says of the
//! last one out.

use serde_json::{Map, Value, json};

use super::CorpusError;
use crate::redact::json_error;
use crate::waste::{
    Config, Firing, LlmCall, Media, Request, Rule, Session, ToolCall, Usage, digest, evaluate,
};

/// The result row: `id`, `fires`, and, where it fires, `confidence`, `suggested_action` and `evidence`.
pub fn row(row: &Value) -> Result<Value, CorpusError> {
    let name = row
        .get("label")
        .or_else(|| row.get("rule"))
        .and_then(Value::as_str)
        .unwrap_or_default();
    let rule = Rule::from_name(name).ok_or(CorpusError::Missing("a waste rule's name as label"))?;
    let member = |name: &str| {
        row.get("value")
            .and_then(|value| value.get(name))
            .or_else(|| row.get(name))
    };
    let calls = member("calls")
        .and_then(Value::as_array)
        .ok_or(CorpusError::Missing("calls"))?;
    let empty = Map::new();
    let config = member("config").and_then(Value::as_object).unwrap_or(&empty);
    let fired = last_call(rule, calls, config).map_err(|error| CorpusError::Config(json_error(&error)))?;
    let mut out = json!({ "id": row.get("id"), "fires": fired.is_some() });
    if let Some(fired) = fired {
        let mut evidence: Map<String, Value> = fired
            .numbers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        if let Some(tool) = &fired.tool {
            evidence.insert("tool".to_owned(), json!(tool));
        }
        out["code"] = json!(rule.code());
        out["confidence"] = json!(fired.confidence);
        out["suggested_action"] = json!(fired.suggested_action);
        out["evidence"] = Value::Object(evidence);
    }
    Ok(out)
}

/// What `rule` says when the last of `calls` arrives. An unknown knob in `config` is an error.
pub fn last_call(
    rule: Rule,
    calls: &[Value],
    config: &Map<String, Value>,
) -> Result<Option<Firing>, serde_json::Error> {
    let config = Config::from_flat(config)?;
    let mut session = Session::default();
    let mut last = None;
    for value in calls {
        let call = call(value, &config);
        session.push(&call);
        last = Some(call);
    }
    Ok(last.and_then(|call| evaluate(rule, &session, &call, &config)))
}

/// A call in the rows' shape: only what differs from a default call is written. The ingest API takes nearly the same.
pub fn call(value: &Value, config: &Config) -> LlmCall {
    let text = |name: &str, default: &str| {
        value
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or(default)
            .to_owned()
    };
    let count = |name: &str, default: u64| value.get(name).map_or(default, whole);
    let meta = value
        .get("usage_extra")
        .and_then(|extra| extra.get("model_specific_meta"));
    let seconds = value.get("t").and_then(Value::as_f64).unwrap_or_default();
    LlmCall {
        session: text("session_id", "s"),
        at: nanos(seconds),
        provider: text("provider", "anthropic"),
        model: text("model", "claude-haiku-4-5"),
        method: text("method", "messages.create"),
        route: text("route", ""),
        usage: Usage {
            prompt_tokens: count("prompt_tokens", 1_000),
            cached_tokens: count("cached_tokens", 0),
            completion_tokens: count("completion_tokens", 100),
            image_tokens: image_tokens(value.get("raw_response_meta")),
        },
        request_hash: name_digest(value.get("request_hash")),
        latency_ms: value.get("latency_ms").and_then(Value::as_f64),
        user_facing: value
            .get("user_facing_output")
            .and_then(Value::as_bool)
            .unwrap_or_default(),
        side: false,
        tool_calls: tool_calls(value.get("tool_calls"), config),
        request: value
            .get("raw_request")
            .map(|request| Request::measure(request, config))
            .unwrap_or_default(),
        media: Media {
            dimension: value
                .get("usage_extra")
                .and_then(|extra| extra.get("dimension_value"))
                .and_then(Value::as_f64)
                .unwrap_or_default(),
            channels: meta
                .and_then(|meta| meta.get("channels"))
                .and_then(Value::as_u64)
                .unwrap_or_default(),
            multichannel: meta.and_then(|meta| meta.get("multichannel")) == Some(&Value::Bool(true)),
            voice: meta.and_then(|meta| name_digest(meta.get("voice_id"))),
            text: meta.and_then(|meta| name_digest(meta.get("text_hash"))),
        },
        ..LlmCall::default()
    }
}

fn tool_calls(calls: Option<&Value>, config: &Config) -> Vec<ToolCall> {
    let empty = json!({});
    let calls = calls
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|call| call.is_object());
    calls
        .filter_map(|call| {
            let name = call.get("name").map_or(Some("unknown"), Value::as_str)?;
            Some(ToolCall::measure(
                name,
                call.get("arguments").unwrap_or(&empty),
                config,
            ))
        })
        .collect()
}

/// Digest of a name that is a text and not empty.
fn name_digest(value: Option<&Value>) -> Option<u64> {
    let name = value.and_then(Value::as_str).filter(|name| !name.is_empty())?;
    Some(digest(name.as_bytes()))
}

/// Image tokens of Gemini's `prompt_tokens_details`.
fn image_tokens(meta: Option<&Value>) -> Option<u64> {
    let details = meta?.get("prompt_tokens_details")?.as_array()?;
    let image = |detail: &&Value| {
        let modality = detail.get("modality").and_then(Value::as_str).unwrap_or_default();
        modality.eq_ignore_ascii_case("image") || modality.eq_ignore_ascii_case("images")
    };
    // The library's name, else that of the wire. Amounts below zero are taken off, as the reference does; what is no
    // whole number is none.
    let amount = |detail: &Value| {
        let count = ["token_count", "tokenCount"]
            .iter()
            .find_map(|name| detail.get(*name).filter(|count| !count.is_null()))?;
        count.as_bool().map(i64::from).or_else(|| count.as_i64())
    };
    let sum = details
        .iter()
        .filter(image)
        .filter_map(amount)
        .reduce(i64::saturating_add)?;
    u64::try_from(sum).ok()
}

/// A number of tokens; what is negative or no number counts for nothing.
fn whole(value: &Value) -> u64 {
    match value {
        Value::Bool(flag) => u64::from(*flag),
        _ => value
            .as_u64()
            .unwrap_or_else(|| saturating(value.as_f64().unwrap_or_default())),
    }
}

/// Nanoseconds of a time in seconds, moved so that times before the session's zero keep their order.
fn nanos(seconds: f64) -> u64 {
    const MIDDLE: f64 = 4e18;
    const MICROS: f64 = 1e6;
    saturating(MIDDLE).saturating_add_signed(signed((seconds * MICROS).round()).saturating_mul(1_000))
}

fn saturating(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate"
    )]
    let whole = value as u64;
    whole
}

fn signed(value: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "float casts saturate")]
    let whole = value as i64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn shared_cases() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora/waste.open.jsonl");
        let Ok(text) = std::fs::read_to_string(path) else {
            return;
        };
        let (mut all, mut wrong) = (0, 0);
        for line in text.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let got = row(&case).unwrap();
            let wanted = &case["expect"];
            let confidence = |row: &Value| row["confidence"].as_f64().unwrap_or_default();
            all += 1;
            if got["fires"] != wanted["fires"]
                || got["suggested_action"] != wanted["suggested_action"]
                || (confidence(&got) - confidence(wanted)).abs() > 0.02
            {
                wrong += 1;
                println!("{} {}: wanted {wanted}, got {got}", case["id"], case["case"]);
            }
        }
        println!("waste: {} of {all} rows", all - wrong);
        assert_eq!(wrong, 0);
    }

    #[test]
    fn an_unknown_rule_or_knob_is_refused() {
        let error = row(&json!({"label": "semantic_loop", "value": {"calls": []}})).unwrap_err();
        assert!(error.to_string().contains("rule"), "{error}");
        let odd = json!({"label": "tool_loop", "value": {"calls": [], "config": {"tool_loop.x": 1}}});
        assert!(row(&odd).unwrap_err().to_string().contains('x'));
    }
}
