//! A finding on the wire: what the detector saw plus whom it concerns.

use kams_detect::finding::{Evidence, Finding, Sensitive, SignalHit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{SCHEMA, Time};

/// What the engine adds to a detector's finding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FindingContext {
    /// When the message that caused it was complete.
    pub time: Time,
    /// Whose process.
    pub uid: u32,
    /// Login name, or the uid in digits.
    pub user: String,
    /// Name of the agent.
    pub agent: String,
    /// Process id of the agent.
    pub agent_pid: Option<u32>,
    /// Identity of the server.
    pub server: String,
    /// Number of the server instance.
    pub server_id: Option<u64>,
    /// Id of the request as JSON text.
    pub request_id: Option<String>,
    /// Whether the call could have been refused.
    pub enforced: bool,
    /// Bytes of the message were lost.
    pub gap: bool,
    /// What was done: a policy action, `alert` where nothing but this record was made.
    pub action: String,
    /// The rule that chose the action.
    pub rule: Option<String>,
    /// What enforce mode would have done.
    pub would: Option<String>,
    /// Hex digest that is equal for equal causes.
    pub fingerprint: String,
}

/// A finding as it is stored, served and printed (SPEC section 1). Quotes nothing that the detector did not.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct FindingRecord {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Number in the daemon's stream; 0 until published.
    pub seq: u64,
    /// When the message that caused it was complete.
    pub time: Time,
    /// `KAMS-<AREA>-<NNN>`.
    pub code: String,
    /// Detector name.
    pub detector: String,
    /// Family: `INTEGRITY_DRIFT`, ...
    pub kind: String,
    /// `LOW`, `MEDIUM`, `HIGH` or `CRITICAL`.
    pub severity: String,
    /// 0.0 to 1.0.
    pub confidence: f64,
    /// Whose process.
    pub uid: u32,
    /// Login name, or the uid in digits.
    pub user: String,
    /// Name of the agent.
    pub agent: String,
    /// Process id of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_pid: Option<u32>,
    /// Identity of the server.
    pub server: String,
    /// Number of the server instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_id: Option<u64>,
    /// Tool, prompt or resource concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Id of the request as JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Whether the call could have been refused.
    pub enforced: bool,
    /// Bytes of the message were lost.
    pub gap: bool,
    /// What was done.
    pub action: String,
    /// The rule that chose the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What enforce mode would have done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would: Option<String>,
    /// Equal for equal causes.
    pub fingerprint: String,
    /// What a person needs in order to judge it; the shape depends on `detector`.
    pub evidence: Value,
}

impl FindingRecord {
    /// Joins what was seen with whom it concerns.
    pub fn new(finding: &Finding, context: FindingContext) -> Self {
        let FindingContext {
            time,
            uid,
            user,
            agent,
            agent_pid,
            server,
            server_id,
            request_id,
            enforced,
            gap,
            action,
            rule,
            would,
            fingerprint,
        } = context;
        Self {
            schema: SCHEMA,
            seq: 0,
            time,
            code: finding.code.to_owned(),
            detector: finding.detector.to_owned(),
            kind: finding.kind.name().to_owned(),
            severity: finding.severity.name().to_owned(),
            confidence: finding.confidence,
            uid,
            user,
            agent,
            agent_pid,
            server,
            server_id,
            tool: finding.tool.clone(),
            request_id,
            enforced,
            gap,
            action,
            rule,
            would,
            fingerprint,
            evidence: evidence(&finding.evidence),
        }
    }
}

/// The wire form of evidence: one flat object per family, field names as in the seeds.
pub fn evidence(evidence: &Evidence) -> Value {
    match evidence {
        Evidence::Drift {
            change,
            pinned,
            score,
            signals,
            description_before,
            description_after,
            paths,
        } => json!({
            "change": change,
            "baseline": if *pinned { "pinned" } else { "provisional" },
            "score": score,
            "signals": signal_list(signals),
            "description_before": description_before,
            "description_after": description_after,
            "paths": paths,
        }),
        Evidence::Text {
            score,
            signals,
            place,
            quote,
        } => {
            json!({"score": score, "signals": signal_list(signals), "place": place, "quote": quote})
        }
        Evidence::Name {
            reason,
            imitates,
            codepoints,
        } => json!({"reason": reason, "imitates": imitates, "codepoints": codepoints}),
        Evidence::Egress(items) => json!({"sensitive": items.iter().map(sensitive).collect::<Vec<_>>()}),
        Evidence::Cost {
            tokens,
            bytes,
            estimated,
        } => json!({"tokens": tokens, "bytes": bytes, "estimated": estimated}),
        Evidence::Behaviour {
            count,
            seconds,
            ratio,
        } => {
            json!({"count": count, "seconds": seconds, "ratio": ratio})
        }
        Evidence::Chain {
            rule,
            reason_codes,
            facts,
        } => json!({
            "rule": rule,
            "reason_codes": reason_codes,
            "facts": facts.iter().map(|(path, value)| json!({"path": path, "value": value})).collect::<Vec<_>>(),
        }),
        Evidence::Waste {
            rule,
            numbers,
            suggested_action,
        } => json!({
            "rule": rule,
            "numbers": numbers.iter().map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect::<serde_json::Map<_, _>>(),
            "suggested_action": suggested_action,
        }),
        // A family that detect gained and this crate does not know yet: better named than quoted by accident.
        _ => json!({"unsupported": true}),
    }
}

fn signal_list(signals: &[SignalHit]) -> Vec<Value> {
    let one = |s: &SignalHit| {
        json!({
            "signal": s.signal,
            "contribution": s.contribution,
            "quote": s.quote,
            "place": s.place,
        })
    };
    signals.iter().map(one).collect()
}

fn sensitive(item: &Sensitive) -> Value {
    json!({
        "class": item.class,
        "path": item.path,
        "count": item.count,
        "length": item.length,
        "digest": item.digest,
        "documented_example": item.documented_example,
    })
}
