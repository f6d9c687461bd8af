//! `kams detect --corpus` for run-level rows: `json_logic`, `run_policy` and `run_facts`.

use serde_json::{Map, Value as Json, json};

use crate::file::runs::FactDecl;
use crate::glob::Glob;
use crate::logic;
use crate::run::fact::{Contribution, project};
use crate::run::table::{Completion, RunTable};
use crate::time::Now;

/// A window that never closes: one row is one run.
const WINDOW_MS: u64 = u64::MAX;

/// The answer to one row, `id` included: `result` for `json_logic` and `run_policy`, `facts` for `run_facts`, or
/// `error` where the row cannot be answered. None for rows of other kinds.
pub fn corpus_row(row: &Json) -> Option<Json> {
    let kind = row.get("kind").and_then(Json::as_str)?;
    let value = row.get("value").unwrap_or(&Json::Null);
    let null = Json::Null;
    let (name, answer) = match kind {
        "json_logic" | "run_policy" => {
            let rule = value.get("rule").unwrap_or(&null);
            let data = value.get("data").unwrap_or(&null);
            match logic::apply(rule, data) {
                Ok(result) => ("result", result),
                Err(error) => ("error", error.to_string().into()),
            }
        }
        "run_facts" => ("facts", facts(value)),
        _ => return None,
    };
    let mut out = Map::new();
    if let Some(id) = row.get("id") {
        out.insert("id".to_owned(), id.clone());
    }
    out.insert(name.to_owned(), answer);
    Some(Json::Object(out))
}

/// Plays the operations of a row through a run and returns the four facts of each key.
fn facts(value: &Json) -> Json {
    let text = |json: &Json, key: &str| json.get(key).and_then(Json::as_str).map(str::to_owned);
    let truth = |json: &Json, key: &str| json.get(key).and_then(Json::as_bool);
    let decls = declarations(value.get("declared"));
    let own_run = text(value, "run").unwrap_or_default();
    let own_user = text(value, "tenant")
        .or_else(|| text(value, "user"))
        .unwrap_or_default();
    let mut table = RunTable::default();
    let now = Now::at(0);
    let (run, _) = table.enter(&own_user, &own_run, "", WINDOW_MS, now);
    let operations = value
        .get("ops")
        .and_then(Json::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (number, operation) in operations.iter().enumerate() {
        // Another run's or tenant's observation is refused before anything is counted.
        let foreign = text(operation, "run").is_some_and(|r| r != own_run)
            || text(operation, "tenant")
                .or_else(|| text(operation, "user"))
                .is_some_and(|u| u != own_user);
        let refused = ["blocked", "refused", "denied"]
            .iter()
            .any(|key| truth(operation, key) == Some(true));
        if foreign || refused {
            continue;
        }
        let tool = text(operation, "tool").unwrap_or_default();
        let identity = match operation.get("op") {
            Some(Json::String(op)) => op.clone(),
            Some(other) => other.to_string(),
            None => format!("#{number}"),
        };
        let contributions = contributions(&decls, &tool, operation);
        if table
            .admit(&own_user, &run, &identity, contributions, now)
            .is_err()
        {
            continue;
        }
        let failed = ["error", "isError", "failed"]
            .iter()
            .any(|key| truth(operation, key) == Some(true))
            || truth(operation, "ok") == Some(false);
        let gated = truth(operation, "gated") == Some(true) && truth(operation, "approved") != Some(true)
            || truth(operation, "approved") == Some(false);
        let how = match (failed, gated) {
            (true, _) => Completion::Failed,
            (false, true) => Completion::Gated,
            (false, false) => Completion::Succeeded,
        };
        // The run was entered above under this user, so it is there.
        let _known = table.complete(&own_user, &run, &identity, how, WINDOW_MS, now);
    }
    table
        .get(&own_user, &run)
        .map_or_else(|| json!({}), |run| run.completed().to_json_without_order())
}

/// `declared` names a tool's fields, argument and numeric ones together.
fn declarations(declared: Option<&Json>) -> Vec<FactDecl> {
    let Some(Json::Object(map)) = declared else {
        return Vec::new();
    };
    map.iter()
        .map(|(tool, fields)| {
            let fields: Vec<String> = fields
                .as_array()
                .map(|list| list.iter().filter_map(Json::as_str).map(str::to_owned).collect())
                .unwrap_or_default();
            FactDecl {
                tool: Glob::new(&tool.chars().flat_map(|c| ['\\', c]).collect::<String>()),
                server: None,
                key: None,
                arg_keys: fields.clone(),
                numeric_keys: fields,
            }
        })
        .collect()
}

/// A row keeps identifiers under `arg` and numbers under `num`; each is projected as what it stands for.
fn contributions(decls: &[FactDecl], tool: &str, operation: &Json) -> Vec<Contribution> {
    let part = |key: &str| operation.get(key).cloned().unwrap_or(Json::Null);
    let mut out = project(decls, "", tool, &part("arg"));
    let numbers = project(decls, "", tool, &part("num"));
    for (contribution, numeric) in out.iter_mut().zip(numbers) {
        contribution.numbers = numeric.numbers;
    }
    out
}
