//! Runs, restrictions and approvals over the admin API, put to the engine's gate.
//!
//! `GET /v1/query/restrictions`, `/v1/query/approvals`, `/v1/query/runs`; `/v1/query/runs?run=ID` gives the records of
//! one run and its `export` as JSON lines. `POST /v1/command/restrictions {"op": "lift", "id": 3}`,
//! `/v1/command/runs {"op": "checkpoint", "run": ID}`, `/v1/command/approvals {"op": "approve" | "deny", "id": 7}`.
//! Approvals are decided by members of the policy's group, whoever they are; everything else by administrators.

use kams_export::view::{SCHEMA, Time};
use kams_policy::{
    ADMIN_GROUP, Approval, Approver, Checkpoint, Head, Record, RecordKind, Refusal, export_run,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{DaemonBackend, stopped};
use crate::admin::{BackendError, Scope, Viewer};
use crate::engine::Command;
use crate::engine::gate::{Gatekeeper, here};
use crate::engine::sink::Sink;

/// Records of one run that are given out.
const MOST: u32 = 100_000;
/// Ended runs that are listed, the newest ones.
const PAST: u32 = 200;

type Work = Box<dyn FnOnce(&mut Gatekeeper, &mut dyn Sink) + Send>;

/// Work for the gate, done by the engine's thread between two messages.
pub struct Ask(Work);

impl Ask {
    /// Runs it.
    pub fn answer(self, gate: &mut Gatekeeper, sink: &mut dyn Sink) {
        (self.0)(gate, sink);
    }
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ask")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    op: String,
    #[serde(default)]
    id: u64,
    #[serde(default)]
    run: String,
}

impl DaemonBackend {
    pub(super) fn gate<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Gatekeeper, &mut dyn Sink) -> T + Send + 'static,
    ) -> Result<T, BackendError> {
        let (done, answer) = oneshot::channel();
        let work: Work = Box::new(move |gate, sink| drop(done.send(work(gate, sink))));
        self.commands
            .blocking_send(Command::Gate(Ask(work)))
            .map_err(|_stopped| stopped())?;
        answer.blocking_recv().map_err(|_stopped| stopped())
    }

    pub(super) fn show_restrictions(&self, scope: Scope) -> Result<Value, BackendError> {
        self.gate(move |gate, _| {
            let standing = gate.gate().restrictions.list(here());
            let rows = standing
                .into_iter()
                .filter(|one| admits(scope, gate.uid(&one.user)))
                .map(|one| {
                    json!({
                        "id": one.id, "action": one.action.name(), "user": one.user, "agent": one.agent,
                        "server": one.server, "tool": one.tool, "rule": one.rule, "since_ms": one.since_ms,
                        "until_ms": one.until_ms,
                    })
                });
            json!({"schema": SCHEMA, "restrictions": rows.collect::<Vec<_>>()})
        })
    }

    pub(super) fn order_restrictions(&self, by: &Viewer, body: Value) -> Result<Value, BackendError> {
        let order = order(body, &["lift"])?;
        let name = name_of(by.uid);
        let lifted = self.gate(move |gate, sink| {
            let now = here();
            gate.order(now, sink, |gate| gate.lift(order.id, &name, now))
        })?;
        let lifted = lifted.ok_or_else(|| BackendError::NotFound {
            what: format!("restriction: {}", order.id),
        })?;
        tracing::warn!(uid = by.uid, pid = by.pid, id = order.id, "restriction lifted");
        Ok(json!({"schema": SCHEMA, "lifted": lifted.id, "action": lifted.action.name()}))
    }

    pub(super) fn show_runs(
        &self,
        scope: Scope,
        parameters: &[(String, String)],
    ) -> Result<Value, BackendError> {
        match parameters {
            [] => self.list_runs(scope),
            [(name, run)] if name == "run" => self.show_run(scope, run),
            _ => Err(BackendError::Invalid {
                message: "unknown parameters".to_owned(),
                remedy: "this query takes `run`".to_owned(),
            }),
        }
    }

    /// Runs that live, after those that are on record and have ended.
    fn list_runs(&self, scope: Scope) -> Result<Value, BackendError> {
        let on_record = self.store.decision_ends(PAST).map_err(|error| failed(&error))?;
        let on_record: Vec<(Record, Option<i64>)> = on_record
            .iter()
            .filter(|row| admits(scope, row.uid))
            .filter_map(|row| Some((row, serde_json::from_str::<Record>(&row.record).ok()?)))
            .map(|(row, last)| {
                let began = self.began(row.uid, &last);
                (last, began)
            })
            .collect();
        self.gate(move |gate, _| {
            let (chain, runs) = (gate.gate().chain(), &gate.gate().runs);
            let past = on_record
                .iter()
                .filter(|(last, _)| {
                    !last.body.run.is_empty() && runs.get(&last.body.user, &last.body.run).is_none()
                })
                .map(|(last, began)| {
                    let head = Head {
                        n: last.run_n,
                        hash: last.hash.clone(),
                    };
                    json!({
                        "run": last.body.run, "user": last.body.user, "agent": last.body.agent,
                        "state": if last.body.kind == RecordKind::RunEnd { &last.body.decision } else { "ended" },
                        "started_ms": began, "last": last.time, "in_flight": 0, "records": last.run_n, "head": head,
                    })
                });
            let living = runs.list().filter(|(user, _)| admits(scope, gate.uid(user)));
            let living = living.map(|(user, run)| {
                let head = chain.run_head(user, &run.id);
                json!({
                    "run": run.id, "user": user, "agent": run.agent, "state": "live", "started_ms": run.started_ms,
                    "in_flight": run.in_flight(), "records": head.map_or(0, |head| head.n), "head": head,
                })
            });
            json!({
                "schema": SCHEMA, "runs": past.chain(living).collect::<Vec<_>>(), "head": chain.head(),
                "missing": gate.missing().0,
            })
        })
    }

    /// When the first record of a run was made, in milliseconds; none where it is deleted by now.
    fn began(&self, uid: Option<u32>, last: &Record) -> Option<i64> {
        let first = self.store.decisions_of(uid, &last.body.run, 1).ok()?;
        let first: Record = serde_json::from_str(&first.first()?.record).ok()?;
        let time = Time::parse(&first.time).ok()?;
        (first.run_n == 1 && first.body.user == last.body.user).then(|| time.unix_nanos() / 1_000_000)
    }

    fn show_run(&self, scope: Scope, run: &str) -> Result<Value, BackendError> {
        self.store
            .flush(std::time::Duration::from_secs(2))
            .map_err(|error| failed(&error))?;
        let uid = match scope {
            Scope::All => None,
            Scope::User(uid) => Some(uid),
        };
        let rows = self
            .store
            .decisions_of(uid, run, MOST)
            .map_err(|error| failed(&error))?;
        let records: Vec<Record> = rows
            .iter()
            .filter_map(|row| serde_json::from_str(&row.record).ok())
            .collect();
        let Some(first) = records.first() else {
            return Err(BackendError::NotFound {
                what: format!("run on record: {run}"),
            });
        };
        let user = first.body.user.clone();
        Ok(json!({
            "schema": SCHEMA, "run": run, "user": user, "export": export_run(&user, run, &records, here()),
            "records": records,
        }))
    }

    pub(super) fn order_runs(&self, by: &Viewer, body: Value) -> Result<Value, BackendError> {
        let order = order(body, &["checkpoint"])?;
        tracing::info!(
            uid = by.uid,
            pid = by.pid,
            run = order.run,
            "checkpoint on demand"
        );
        let run = order.run.clone();
        let asked = self.gate(move |gate, sink| {
            let user = gate.gate().runs.list().find(|(_, one)| one.id == order.run);
            let user = user.map(|(user, _)| user.to_owned())?;
            let now = here();
            gate.order(now, sink, |gate| gate.checkpoint(&user, &order.run, now))
                .ok()
        })?;
        let checkpoint = asked.ok_or_else(|| BackendError::NotFound {
            what: format!("living run: {run}"),
        })?;
        Ok(json!({"schema": SCHEMA, "run": run, "checkpoint": shown(&checkpoint)}))
    }

    pub(super) fn show_approvals(&self, scope: Scope, viewer: &Viewer) -> Result<Value, BackendError> {
        let groups = groups_of(viewer);
        self.gate(move |gate, _| {
            let policy = gate.policy().approvals();
            let may_see = |one: &Approval| {
                let group = one.request.group.as_ref();
                let unix = group.map_or(Some(ADMIN_GROUP), |g| policy.groups.get(g).map(String::as_str));
                admits(scope, gate.uid(&one.request.user))
                    || unix.is_some_and(|unix| groups.iter().any(|own| own == unix))
            };
            let rows = gate.gate().approvals.list().filter(|one| may_see(one)).map(|one| {
                let request = &one.request;
                json!({
                    "id": one.id, "state": one.state.name(), "by": one.state.by(), "user": request.user,
                    "agent": request.agent, "server": request.server, "tool": request.tool, "run": request.run,
                    "rule": request.rule, "group": request.group, "reason": request.reason,
                    "facts": request.fields.iter().map(|(path, value)| json!({"path": path, "value": value}))
                        .collect::<Vec<_>>(),
                    "since_ms": one.since_ms, "until_ms": one.until_ms,
                })
            });
            json!({"schema": SCHEMA, "approvals": rows.collect::<Vec<_>>()})
        })
    }

    /// The admin API has refused processes of agents and of other namespaces by now; who may, says the policy.
    pub(super) fn order_approvals(&self, by: &Viewer, body: Value) -> Result<Value, BackendError> {
        let order = order(body, &["approve", "deny"])?;
        let (user, groups, root) = (name_of(by.uid), groups_of(by), by.uid == 0);
        let in_agent_tree = self.shared.is_in_tree(by.pid);
        let (id, approve, uid) = (order.id, order.op == "approve", by.uid);
        let decided = self.gate(move |gate, sink| {
            // Whose run it is, the kernel has told as a number; a name may have been known under another spelling.
            let theirs = gate.gate().approvals.get(id).map(|one| one.request.user.clone());
            let user = theirs.filter(|name| gate.uid(name) == Some(uid)).unwrap_or(user);
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            let approver = Approver {
                user: &user,
                groups: &groups,
                root,
                in_agent_tree,
            };
            let now = here();
            gate.order(now, sink, |gate| gate.decide(id, &approver, approve, now))
        })?;
        let result = match &decided {
            Ok(_) => "done".to_owned(),
            Err(refusal) => refusal.to_string(),
        };
        let op = if approve { "approve" } else { "deny" };
        tracing::warn!(uid, pid = by.pid, id, op, result, "decision on an approval");
        match decided {
            Ok(approval) => Ok(json!({"schema": SCHEMA, "id": approval.id, "state": approval.state.name()})),
            Err(Refusal::Unknown) => Err(BackendError::NotFound {
                what: format!("request for approval: {id}"),
            }),
            Err(refusal) => Err(BackendError::Refused {
                message: refusal.to_string(),
                remedy: "`kams approvals list` shows who may decide".to_owned(),
            }),
        }
    }
}

fn failed(error: &kams_store::StoreError) -> BackendError {
    BackendError::Unavailable {
        message: error.to_string(),
        remedy: "see the daemon's log".to_owned(),
    }
}

fn admits(scope: Scope, uid: Option<u32>) -> bool {
    scope == Scope::All || uid.is_some_and(|uid| scope.admits(uid))
}

fn order(body: Value, ops: &[&str]) -> Result<Order, BackendError> {
    serde_json::from_value::<Order>(body)
        .ok()
        .filter(|order| ops.contains(&order.op.as_str()))
        .ok_or_else(|| BackendError::Invalid {
            message: "not an order that is known here".to_owned(),
            remedy: format!("`op` is one of: {}", ops.join(", ")),
        })
}

fn shown(checkpoint: &Checkpoint) -> Value {
    let matches = checkpoint.matches.iter().map(|hit| {
        json!({
            "policy": hit.policy_id, "version": hit.version, "rule": hit.rule_id, "decision": hit.decision.name(),
            "reason": hit.reason, "reason_codes": hit.reason_codes, "draft": hit.dry_run, "error": hit.error,
        })
    });
    json!({"decision": checkpoint.decision.name(), "matches": matches.collect::<Vec<_>>()})
}

/// Login name, or the uid in digits.
pub(super) fn name_of(uid: u32) -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
    user.ok()
        .flatten()
        .map_or_else(|| uid.to_string(), |user| user.name)
}

/// Names of the groups that the kernel showed for the peer.
fn groups_of(viewer: &Viewer) -> Vec<String> {
    let own = std::iter::once(viewer.gid).chain(viewer.groups.iter().copied());
    own.filter_map(|gid| {
        let group = nix::unistd::Group::from_gid(nix::unistd::Gid::from_raw(gid));
        group.ok().flatten().map(|group| group.name)
    })
    .collect()
}

#[cfg(test)]
mod tests;
