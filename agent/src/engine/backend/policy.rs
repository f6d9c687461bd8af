//! The policy over the admin API.
//!
//! `GET /v1/query/policy`: `{schema, policy: {name, hash, mode, rules: [..], warnings: [..], exceptions},
//! refused: {file, problems: [..]} | null}`; the file is `refused` where it does not load and an older one is in force.
//!
//! `POST /v1/command/policy` with `{"op": "reload"}`: `{schema, reloaded: bool, changed: bool, policy, problems: [..]}`.
//! A refused file is an answer (`reloaded: false`) with every problem, and the old policy stays.

use kams_export::view::SCHEMA;
use kams_policy::{Policy, Problem};
use serde::Deserialize;
use serde_json::{Value, json};

use super::DaemonBackend;
use crate::admin::{BackendError, Viewer};
use crate::policy_file::PolicyError;
use crate::policy_file::in_force::Refused;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    op: String,
}

impl DaemonBackend {
    pub(super) fn show_policy(&self, parameters: &[(String, String)]) -> Result<Value, BackendError> {
        if let Some((name, _)) = parameters.first() {
            return Err(BackendError::Invalid {
                message: format!("unknown parameter `{name}`"),
                remedy: "this query takes no parameters".to_owned(),
            });
        }
        let refused = self.policy.refused();
        Ok(json!({
            "schema": SCHEMA,
            "policy": view(&self.policy.policy()),
            "refused": refused.map(|refused| json!({"file": refused.file, "problems": problems(&refused)})),
        }))
    }

    pub(super) fn order_policy(&self, by: &Viewer, body: Value) -> Result<Value, BackendError> {
        let order: Result<Order, _> = serde_json::from_value(body);
        match order {
            Ok(Order { op }) if op == "reload" => {}
            _ => {
                return Err(BackendError::Invalid {
                    message: "not an order about the policy".to_owned(),
                    remedy: "send {\"op\": \"reload\"}".to_owned(),
                });
            }
        }
        tracing::warn!(uid = by.uid, pid = by.pid, "policy reload");
        Ok(match self.policy.reload() {
            Ok(reloaded) => json!({
                "schema": SCHEMA,
                "reloaded": true,
                "changed": reloaded.changed,
                "policy": view(&reloaded.policy),
                "problems": reloaded.policy.warnings().iter().map(problem).collect::<Vec<_>>(),
            }),
            Err(refused) => json!({
                "schema": SCHEMA,
                "reloaded": false,
                "changed": false,
                "policy": view(&self.policy.policy()),
                "problems": problems(&refused),
            }),
        })
    }
}

fn view(policy: &Policy) -> Value {
    let rules = policy.rules().iter().map(|rule| {
        json!({
            "name": rule.name,
            "action": rule.action.name(),
            "ttl_seconds": rule.ttl_ms.map(|ms| ms / 1_000),
            "approver_group": rule.approver_group,
            "description": rule.description,
            "line": rule.line,
        })
    });
    json!({
        "name": policy.name(),
        "hash": policy.hash(),
        "mode": policy.mode().name(),
        "rules": rules.collect::<Vec<_>>(),
        "warnings": policy.warnings().iter().map(problem).collect::<Vec<_>>(),
        "exceptions": policy.exceptions().len(),
        "facts": policy.runs().facts.len(),
        "documents": policy.runs().documents.iter().map(|document| json!({
            "policy_id": document.policy_id, "version": document.version, "status": document.status.name(),
            "rules": document.rules.iter().map(|rule| json!({
                "rule_id": rule.id, "decision": rule.decision.name(), "approver_group": rule.approver_group,
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

fn problems(refused: &Refused) -> Vec<Value> {
    match &refused.error {
        PolicyError::Problems(problems) => problems.iter().map(problem).collect(),
        error => vec![
            json!({"file": refused.file, "level": "error", "message": error.to_string(), "text": error.to_string()}),
        ],
    }
}

/// A problem of a policy file on the wire; `text` is the whole of it for people, in several lines.
pub fn problem(problem: &Problem) -> Value {
    json!({
        "file": problem.file,
        "level": match problem.level {
            kams_policy::Level::Error => "error",
            kams_policy::Level::Warning => "warning",
        },
        "line": problem.line,
        "column": problem.column,
        "message": problem.message,
        "suggestion": problem.suggestion,
        "text": problem.to_string(),
    })
}
