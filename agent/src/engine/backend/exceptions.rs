//! Exceptions over the admin API.
//!
//! `GET /v1/query/exceptions`: `{schema, exceptions: [{id, from, fingerprint, match, text, owner, reason, expires_ms, added_by,
//! since_ms, line}]}`; those of the policy file have a `line`, and no `id`, `match` or `text`. They are part of the policy, which anyone
//! may read. `POST /v1/command/exceptions {"op": "add", "exception": {..}}` with the keys of the policy file, or
//! `{"op": "remove", "id": 3}`.

use kams_export::view::SCHEMA;
use kams_policy::ExceptionError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::DaemonBackend;
use super::policy::problem;
use super::runs::name_of;
use crate::admin::{BackendError, Viewer};
use crate::engine::gate::here;

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Order {
    Add { exception: Value },
    Remove { id: u64 },
}

impl DaemonBackend {
    pub(super) fn show_exceptions(&self, parameters: &[(String, String)]) -> Result<Value, BackendError> {
        if let Some((name, _)) = parameters.first() {
            return Err(BackendError::Invalid {
                message: format!("unknown parameter `{name}`"),
                remedy: "this query takes no parameters".to_owned(),
            });
        }
        let kept = self.gate(|gate, _| {
            let rows = gate.gate().exceptions.list().map(|(kept, exception)| {
                let keys: Value = serde_json::from_str(&kept.text).unwrap_or_default();
                json!({
                    "id": kept.id, "from": "command", "fingerprint": exception.fingerprint, "match": keys.get("match"),
                    "text": kept.text,
                    "owner": exception.owner, "reason": exception.reason, "expires_ms": exception.expires_ms,
                    "added_by": kept.added_by, "since_ms": kept.since_ms,
                })
            });
            rows.collect::<Vec<_>>()
        })?;
        let policy = self.policy.policy();
        let of_file = policy.exceptions().iter().map(|exception| {
            json!({
                "id": null, "from": "file", "fingerprint": exception.fingerprint, "owner": exception.owner,
                "reason": exception.reason, "expires_ms": exception.expires_ms, "line": exception.line,
            })
        });
        let all: Vec<Value> = of_file.chain(kept).collect();
        Ok(json!({"schema": SCHEMA, "exceptions": all}))
    }

    pub(super) fn order_exceptions(&self, by: &Viewer, body: Value) -> Result<Value, BackendError> {
        let order: Order = serde_json::from_value(body).map_err(|error| BackendError::Invalid {
            message: format!("not an order about exceptions: {error}"),
            remedy: "send {\"op\": \"add\", \"exception\": {..}} or {\"op\": \"remove\", \"id\": 1}"
                .to_owned(),
        })?;
        let name = name_of(by.uid);
        match order {
            Order::Add { exception } => {
                tracing::warn!(uid = by.uid, pid = by.pid, "exception added");
                let text = exception.to_string();
                let added = self.gate(move |gate, sink| {
                    let now = here();
                    gate.order(now, sink, |gate| gate.add_exception(&text, &name, now))
                })?;
                match added {
                    Ok(kept) => Ok(json!({"schema": SCHEMA, "id": kept.id})),
                    Err(ExceptionError::Problems(problems)) => Err(BackendError::Invalid {
                        message: problems
                            .iter()
                            .map(|one| one.message.clone())
                            .collect::<Vec<_>>()
                            .join("; "),
                        remedy: problems
                            .iter()
                            .find_map(|one| problem(one)["suggestion"].as_str().map(str::to_owned))
                            .unwrap_or_else(|| {
                                "docs/policy.md describes the keys of an exception".to_owned()
                            }),
                    }),
                    Err(error) => Err(BackendError::Refused {
                        message: error.to_string(),
                        remedy: "see `kams exceptions list`".to_owned(),
                    }),
                }
            }
            Order::Remove { id } => {
                tracing::warn!(uid = by.uid, pid = by.pid, id, "exception removed");
                let removed = self.gate(move |gate, sink| {
                    let now = here();
                    gate.order(now, sink, |gate| gate.remove_exception(id, &name, now))
                })?;
                let removed = removed.ok_or_else(|| BackendError::NotFound {
                    what: format!("exception outside the policy file: {id}"),
                })?;
                Ok(json!({"schema": SCHEMA, "removed": removed.id}))
            }
        }
    }
}
