//! Rows of definitions, names, results and drift.

use serde_json::{Map, Value, json};

use super::{CorpusError, Options, finding_row};
use crate::finding::{Evidence, Finding};
use crate::integrity::{Channel, Definition, deceptive_name, diff, text_finding};

pub(super) fn judge(kind: &str, row: &Value, options: &Options) -> Result<Map<String, Value>, CorpusError> {
    let channel = match kind {
        "tool_name" => {
            let found: Vec<Finding> = deceptive_name(text(row)?).into_iter().collect();
            return Ok(out(None, &found));
        }
        "drift" => return drift(row, options),
        "tool_param" => Channel::Parameter,
        "server_instructions" => Channel::Instructions,
        "tool_result" => Channel::Result,
        _ => Channel::Description,
    };
    let (score, finding) = text_finding(text(row)?, channel, kind, options.thresholds);
    Ok(out(Some(score.value), &finding.into_iter().collect::<Vec<_>>()))
}

fn drift(row: &Value, options: &Options) -> Result<Map<String, Value>, CorpusError> {
    let side = |name: &'static str| match row.get(name) {
        None => Err(CorpusError::Missing("before and after")),
        Some(Value::Null) => Ok(None),
        Some(value) => definition(value, row).map(Some),
    };
    let (before, after) = (side("before")?, side("after")?);
    let findings = diff(
        before.as_ref(),
        after.as_ref(),
        options.pinned,
        options.thresholds,
    );
    let score = findings
        .iter()
        .filter_map(|f| match &f.evidence {
            Evidence::Drift { score, .. } => *score,
            _ => None,
        })
        .fold(0.0, f64::max);
    Ok(out(Some(score), &findings))
}

/// A side of a drift row: a tool object, with `schema` for `inputSchema` and without its name.
fn definition(side: &Value, row: &Value) -> Result<Definition, CorpusError> {
    let mut tool = side
        .as_object()
        .cloned()
        .ok_or(CorpusError::Missing("before and after as objects"))?;
    if let Some(schema) = tool.remove("schema") {
        tool.entry("inputSchema").or_insert(schema);
    }
    if !tool.contains_key("name") {
        let name = row.get("tool").and_then(Value::as_str).unwrap_or("tool");
        tool.insert("name".to_owned(), Value::from(name));
    }
    Definition::tool(&Value::Object(tool)).map_err(|_e| CorpusError::Missing("a tool definition"))
}

fn text(row: &Value) -> Result<&str, CorpusError> {
    row.get("text")
        .or_else(|| row.get("value"))
        .and_then(Value::as_str)
        .ok_or(CorpusError::Missing("text"))
}

fn out(score: Option<f64>, findings: &[Finding]) -> Map<String, Value> {
    let mut row = Map::new();
    if let Some(score) = score {
        row.insert("score".to_owned(), json!(score));
    }
    row.insert("findings".to_owned(), findings.iter().map(finding_row).collect());
    row
}
