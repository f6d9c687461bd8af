//! Corpus rows in, result rows out: what `kams detect --corpus` prints (DESIGN section 9).
//!
//! Each detector family has a module with the kinds it knows; a row's kind picks the module.

pub mod behaviour;
pub mod egress;
mod integrity;
pub mod waste;

use serde_json::{Map, Value, json};

use crate::egress::Salt;
use crate::finding::{Evidence, Finding};
use crate::integrity::Thresholds;
use crate::redact::shown;

/// How rows are to be judged.
#[derive(Clone, Debug)]
pub struct Options {
    /// Salt of the digests.
    pub salt: Salt,
    /// Drift rows are compared with a pinned baseline rather than a provisional one.
    pub pinned: bool,
    /// Thresholds of the text detectors.
    pub thresholds: Thresholds,
}

impl Default for Options {
    fn default() -> Self {
        // Rows are tried offline and compared between hosts: their digests must not depend on one.
        Self {
            salt: Salt::new(b"kams corpus"),
            pinned: false,
            thresholds: Thresholds::default(),
        }
    }
}

/// A row could not be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// No `kind`, or one that no detector here knows.
    #[error("unknown kind {0:?}")]
    UnknownKind(String),
    /// A member that the kind needs is missing or has another type.
    #[error("a row of this kind needs {0}")]
    Missing(&'static str),
    /// A setting of the row that is none.
    #[error("the row's config: {0}")]
    Config(String),
}

/// Judges one row: an object with the row's `id`, and what its kind asks for.
pub fn judge(row: &Value, options: &Options) -> Result<Value, CorpusError> {
    let kind = row.get("kind").and_then(Value::as_str).unwrap_or_default();
    let mut out = match kind {
        "tool_description" | "tool_param" | "server_instructions" | "tool_name" | "tool_result" | "drift" => {
            integrity::judge(kind, row, options)?
        }
        "secret" | "args" => return Ok(egress::row(row, &options.salt)),
        "behaviour" => return Ok(behaviour::row(row)),
        "waste_rule" => return waste::row(row),
        other => return Err(CorpusError::UnknownKind(shown(other).into_owned())),
    };
    out.insert("id".to_owned(), row.get("id").cloned().unwrap_or(Value::Null));
    Ok(Value::Object(out))
}

/// A finding as a result row shows it.
fn finding_row(finding: &Finding) -> Value {
    let mut row = Map::new();
    row.insert("detector".to_owned(), json!(finding.detector));
    row.insert("kind".to_owned(), json!(finding.kind.name()));
    row.insert("severity".to_owned(), json!(finding.severity.name()));
    row.insert("confidence".to_owned(), json!(finding.confidence));
    match &finding.evidence {
        Evidence::Drift { change, score, .. } => {
            row.insert("change".to_owned(), json!(change));
            row.insert("score".to_owned(), json!(score));
        }
        Evidence::Text { score, signals, .. } => {
            row.insert("score".to_owned(), json!(score));
            row.insert("signals".to_owned(), signals.iter().map(|s| s.signal).collect());
        }
        Evidence::Name { reason, imitates, .. } => {
            row.insert("reason".to_owned(), json!(reason));
            row.insert("imitates".to_owned(), json!(imitates));
        }
        _ => {}
    }
    Value::Object(row)
}
