//! Model calls told by whoever made them: `POST /v1/llm-calls` (docs/telemetry.md has the fields and an example).
//!
//! The user is the caller's, by peer credentials. A call is measured here and its texts are dropped.

use std::sync::Arc;
use std::time::Instant;

use kams_detect::corpus::waste::call;
use kams_detect::waste::{Config, LlmCall};
use kams_export::view::{SCHEMA, Time};
use serde_json::{Map, Value, json};

use super::DaemonBackend;
use crate::admin::{BackendError, Viewer};
use crate::engine::waste::Input;
use crate::engine::waste::lanes::LANE_BYTES;
use crate::engine::waste::worker::Handle;
use crate::telemetry::quota::Quota;
use crate::telemetry::sender::Senders;

/// Calls of one request.
const MOST: usize = 1_000;
/// Characters of a name.
const NAME: usize = 128;

/// The form of a field.
#[derive(Clone, Copy)]
enum Form {
    /// A short text.
    Name,
    /// A whole number, zero or more.
    Count,
    Number,
    Flag,
    Object,
    List,
    /// RFC 3339.
    Time,
}

/// The fields of a call.
const FIELDS: [(&str, Form); 16] = [
    ("session_id", Form::Name),
    ("time", Form::Time),
    ("provider", Form::Name),
    ("model", Form::Name),
    ("method", Form::Name),
    ("route", Form::Name),
    ("prompt_tokens", Form::Count),
    ("cached_tokens", Form::Count),
    ("completion_tokens", Form::Count),
    ("request_hash", Form::Name),
    ("latency_ms", Form::Number),
    ("user_facing_output", Form::Flag),
    ("tool_calls", Form::List),
    ("raw_request", Form::Object),
    ("raw_response_meta", Form::Object),
    ("usage_extra", Form::Object),
];

/// Where reports go.
#[derive(Clone, Debug)]
pub struct Ingest {
    /// The way to the waste rules.
    pub desk: Handle,
    /// What a user may report.
    pub quota: Arc<Quota>,
    /// Whose processes they are.
    pub senders: Arc<Senders>,
    /// Where telemetry is received.
    pub listen: Option<std::net::SocketAddr>,
}

impl DaemonBackend {
    /// Takes reports of model calls from now on.
    #[must_use]
    pub fn with_ingest(self, ingest: Ingest) -> Self {
        Self {
            ingest: Some(ingest),
            ..self
        }
    }

    pub(super) fn admit_calls(&self, viewer: &Viewer) -> Result<(), BackendError> {
        let Some(ingest) = &self.ingest else { return Ok(()) };
        if ingest.quota.admits(viewer.uid, Instant::now()) {
            return Ok(());
        }
        self.live.metrics.telemetry_request("llm-calls", "flood");
        Err(BackendError::TooMany {
            message: format!("user {} reports more than its share", viewer.uid),
            remedy: "send several calls in one request, and wait a second".to_owned(),
        })
    }

    pub(super) fn spend_calls(&self, viewer: &Viewer, bytes: usize) {
        if let Some(ingest) = &self.ingest {
            ingest.quota.spend(viewer.uid, bytes, Instant::now());
        }
    }

    pub(super) fn take_calls(&self, viewer: &Viewer, body: Value) -> Result<Value, BackendError> {
        let Some(ingest) = &self.ingest else {
            return Err(BackendError::Unsupported {
                name: "llm-calls".to_owned(),
            });
        };
        let result = entered(ingest, viewer, body);
        let word = match &result {
            Ok(_) => "ok",
            Err(BackendError::Unavailable { .. }) => "busy",
            Err(_) => "malformed",
        };
        self.live.metrics.telemetry_request("llm-calls", word);
        let accepted = result?;
        self.live.metrics.llm_calls("api", accepted as u64);
        Ok(json!({ "schema": SCHEMA, "accepted": accepted }))
    }
}

fn invalid(message: String) -> BackendError {
    BackendError::Invalid {
        message,
        remedy: "docs/telemetry.md lists the fields; send {\"calls\": [{\"session_id\": \"s-1\", \"model\": \"m\", \
                 \"prompt_tokens\": 900}]}"
            .to_owned(),
    }
}

fn entered(ingest: &Ingest, viewer: &Viewer, body: Value) -> Result<usize, BackendError> {
    let Value::Object(mut body) = body else {
        return Err(invalid("the body is no JSON object".to_owned()));
    };
    let calls = match body.remove("calls") {
        Some(Value::Array(calls)) if !calls.is_empty() && calls.len() <= MOST => calls,
        _ => return Err(invalid(format!("`calls` is a list of 1 to {MOST} calls"))),
    };
    let agent_pid = match body.remove("agent_pid") {
        None => None,
        Some(pid) => Some(
            pid.as_u64()
                .and_then(|pid| u32::try_from(pid).ok())
                .ok_or_else(|| invalid("`agent_pid` is a process number".to_owned()))?,
        ),
    };
    if let Some((key, _)) = body.iter().next() {
        return Err(invalid(format!("unknown field `{}`", short(key))));
    }
    let config = ingest.desk.config();
    let calls: Vec<LlmCall> = calls
        .into_iter()
        .enumerate()
        .map(|(index, value)| one(value, &config).map_err(|why| invalid(format!("call {index}: {why}"))))
        .collect::<Result<_, _>>()?;
    let sender = match agent_pid {
        None => ingest.senders.of_process(viewer.uid, viewer.pid),
        // Another user's agent is as unknown as one that is not there.
        Some(pid) => ingest
            .senders
            .agent(viewer.uid, pid)
            .ok_or_else(|| BackendError::NotFound {
                what: format!("agent: process {pid}"),
            })?,
    };
    let accepted = calls.len();
    let input = Input::Calls { sender, calls };
    if input.cost() > LANE_BYTES {
        return Err(invalid(
            "the arguments of these calls are too much to compare at once: send fewer calls in a request"
                .to_owned(),
        ));
    }
    if ingest.desk.put(input, "api") {
        Ok(accepted)
    } else {
        Err(BackendError::Unavailable {
            message: "there is no room for more reports just now".to_owned(),
            remedy: "wait a few seconds".to_owned(),
        })
    }
}

/// A call, or what is wrong with it.
fn one(value: Value, config: &Config) -> Result<LlmCall, String> {
    let Value::Object(mut fields) = value else {
        return Err("no JSON object".to_owned());
    };
    for (key, value) in &fields {
        let Some((name, form)) = FIELDS.iter().find(|(name, _)| name == key) else {
            return Err(format!("unknown field `{}`", short(key)));
        };
        check(name, *form, value)?;
    }
    if !fields.contains_key("session_id") {
        return Err("`session_id` is missing".to_owned());
    }
    let time = match fields.remove("time") {
        Some(Value::String(text)) => Time::parse(&text).map_err(|error| format!("`time`: {error}"))?,
        _ => Time::now(),
    };
    // The rows' defaults are made for tests; here what is not said is not known.
    for name in ["provider", "model", "method"] {
        fields.entry(name).or_insert_with(|| "".into());
    }
    for name in ["prompt_tokens", "completion_tokens"] {
        fields.entry(name).or_insert_with(|| 0.into());
    }
    Ok(LlmCall {
        at: u64::try_from(time.unix_nanos()).unwrap_or_default(),
        ..call(&Value::Object(fields), config)
    })
}

fn check(name: &str, form: Form, value: &Value) -> Result<(), String> {
    let (fits, wanted) = match form {
        Form::Name => (
            value
                .as_str()
                .is_some_and(|text| !text.is_empty() && text.chars().count() <= NAME),
            "a text of 1 to 128 characters",
        ),
        Form::Count => (value.is_u64(), "a whole number, zero or more"),
        Form::Number => (
            value.as_f64().is_some_and(|number| number >= 0.0),
            "a number, zero or more",
        ),
        Form::Flag => (value.is_boolean(), "true or false"),
        Form::Object => (value.is_object(), "an object"),
        Form::List => (
            value
                .as_array()
                .is_some_and(|calls| calls.iter().all(is_tool_call)),
            "a list of {\"name\", \"arguments\"}",
        ),
        Form::Time => (value.is_string(), "a time such as 2026-11-30T08:15:00Z"),
    };
    if fits {
        Ok(())
    } else {
        Err(format!("`{name}` is not {wanted}"))
    }
}

fn is_tool_call(value: &Value) -> bool {
    let known = |members: &Map<String, Value>| members.keys().all(|key| key == "name" || key == "arguments");
    value.as_object().is_some_and(known) && value.get("name").is_some_and(Value::is_string)
}

/// A field's name as it may be repeated.
fn short(name: &str) -> String {
    let shown: String = name.chars().take(40).collect();
    kams_export::text::visible(&kams_detect::redact::shown(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<LlmCall, String> {
        one(value, &Config::default())
    }

    #[test]
    fn what_is_not_said_is_not_known() {
        let call = read(json!({"session_id": "s", "time": "2026-11-30T08:15:00Z"})).unwrap();
        assert_eq!((call.session.as_str(), call.model.as_str()), ("s", ""));
        assert_eq!(call.usage.prompt_tokens, 0);
        assert_eq!(call.at, 1_796_026_500_000_000_000);
    }

    #[test]
    fn texts_are_measured_and_dropped() {
        let call = read(
            json!({"session_id": "s", "tool_calls": [{"name": "f", "arguments": {"q": "tango-7"}}],
            "raw_request": {"messages": [{"role": "user", "content": "classify tango-7"}]}}),
        )
        .unwrap();
        assert_eq!(call.tool_calls.len(), 1);
        assert_eq!(call.request.classification, ["classify"]);
        assert!(!format!("{call:?}").contains("tango"));
    }

    #[test]
    fn every_wrong_field_is_named() {
        for (value, word) in [
            (json!([]), "object"),
            (json!({}), "session_id"),
            (json!({"session_id": ""}), "session_id"),
            (json!({"session_id": "s", "modle": "m"}), "modle"),
            (json!({"session_id": "s", "prompt_tokens": -1}), "prompt_tokens"),
            (json!({"session_id": "s", "latency_ms": -5}), "latency_ms"),
            (json!({"session_id": "s", "time": "soon"}), "time"),
            (
                json!({"session_id": "s", "tool_calls": [{"nme": "f"}]}),
                "tool_calls",
            ),
            (json!({"session_id": "s", "raw_request": "x"}), "raw_request"),
        ] {
            let error = read(value.clone()).unwrap_err();
            assert!(error.contains(word), "{value}: {error}");
        }
    }
}
