//! What outlives the process: records behind the verdict; restrictions, approvals and exceptions as they stand.

use std::collections::BTreeMap;

use kams_policy::{
    Action, Approval, ApprovalQueue, Body, Chain, ExceptionSet, Head, KeptException, Now, Record, RecordKind,
    Request, Restriction, RestrictionSet, State,
};
use kams_store::{DecisionRow, Held, Noted, WriteOp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Gatekeeper, Sink};

/// Numbers of records that were handed out and never stored, as stretches.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Missing(pub Vec<(u64, u64)>);

impl Missing {
    /// How many.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, (first, last)| {
            sum.saturating_add(last.saturating_sub(*first).saturating_add(1))
        })
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first} to {last}")?;
            }
        }
        Ok(())
    }
}

#[derive(Deserialize, Serialize)]
struct StoredRestriction {
    id: u64,
    action: String,
    user: String,
    uid: Option<u32>,
    agent: String,
    server: String,
    tool: Option<String>,
    rule: String,
    since_ms: u64,
    until_ms: Option<u64>,
    ttl_ms: Option<u64>,
}

#[derive(Deserialize, Serialize)]
struct StoredApproval {
    id: u64,
    uid: Option<u32>,
    run: String,
    user: String,
    agent: String,
    server: String,
    tool: String,
    args_digest: String,
    rule: String,
    group: Option<String>,
    reason: Option<String>,
    fields: Vec<(String, Value)>,
    approved_by: Option<String>,
    since_ms: u64,
    until_ms: u64,
}

#[derive(Deserialize, Serialize)]
struct StoredException {
    id: u64,
    text: String,
    added_by: String,
    since_ms: u64,
}

/// Runs whose ends are read at the start: those that an earlier start left open are ended, and those with a request
/// for approval go on by one record.
const RUNS: u32 = 1_024;

/// Whether a record of `batch` counts as a decision. A call that a run-level rule decided on leaves two records of that
/// decision, the checkpoint's and its own admission's; it was decided on once.
fn counts(batch: &[Record], record: &Record) -> bool {
    let body = &record.body;
    match body.kind {
        RecordKind::Checkpoint | RecordKind::Finding => true,
        RecordKind::Admission => !batch.iter().any(|other| {
            let other = &other.body;
            other.kind == RecordKind::Checkpoint
                && (&other.user, &other.run, &other.tool) == (&body.user, &body.run, &body.tool)
                && (&other.rule, &other.decision) == (&body.rule, &body.decision)
        }),
        _ => false,
    }
}

impl Gatekeeper {
    /// Goes on where the last start ended: the chain's numbers, restrictions, approvals.
    pub(super) fn restore(&mut self, now: Now) {
        let Some(store) = self.store.clone() else { return };
        let ends: Vec<Record> = store
            .decision_ends(RUNS)
            .map_err(|error| tracing::error!(%error, "the decision chain could not be read"))
            .unwrap_or_default()
            .iter()
            .filter_map(|row| {
                if let Some(uid) = row.uid {
                    self.uids.insert(row.user.clone(), uid);
                }
                serde_json::from_str(&row.record).ok()
            })
            .collect();
        let stored = ends
            .last()
            .map(|record| Head {
                n: record.n,
                hash: record.hash.clone(),
            })
            .unwrap_or_default();
        let mut missing = store.missing_decisions().unwrap_or_default();
        let noted = store.noted_head().unwrap_or_else(|error| {
            tracing::error!(
                %error,
                "what was noted of the newest decision record is lost: records that a kill kept from the disk cannot be told"
            );
            None
        });
        let head = match noted {
            Some(noted) if noted.n > stored.n => {
                missing.push((stored.n.saturating_add(1), noted.n));
                Head {
                    n: noted.n,
                    hash: noted.hash,
                }
            }
            _ => stored,
        };
        self.missing = Missing(missing);
        if !self.missing.0.is_empty() {
            tracing::error!(
                count = self.missing.count(),
                "decision records {} were made and never reached the disk: Kams was killed or the disk refused them",
                self.missing
            );
        }
        let open: Vec<&Body> = ends
            .iter()
            .map(|record| &record.body)
            .filter(|body| !body.run.is_empty() && body.kind != RecordKind::RunEnd)
            .collect();
        let run_ends = ends
            .iter()
            .filter(|record| !record.body.run.is_empty())
            .map(|record| {
                let head = Head {
                    n: record.run_n,
                    hash: record.hash.clone(),
                };
                (record.body.user.clone(), record.body.run.clone(), head)
            });
        self.gate.resume_chain(Chain::resume(head, run_ends));
        self.restore_restrictions(&store, now);
        self.restore_exceptions(&store, now);
        let denied = self.restore_approvals(&store, now);
        // Runs do not go on: their facts were in memory.
        let mut cut_off: BTreeMap<(&str, &str), &str> = denied
            .iter()
            .map(|one| &one.request)
            .map(|asked| ((asked.user.as_str(), asked.run.as_str()), asked.agent.as_str()))
            .collect();
        for body in open {
            let agent = cut_off.entry((&body.user, &body.run)).or_default();
            if !body.agent.is_empty() {
                *agent = &body.agent;
            }
        }
        let cut_off = cut_off.into_iter().map(|((user, run), agent)| (user, run, agent));
        self.gate.note_lost_runs(cut_off, now);
        self.write_records(now);
    }

    fn restore_exceptions(&mut self, store: &kams_store::Store, now: Now) {
        let stored = read::<StoredException>(store, Held::Exception);
        let kept = stored.into_iter().map(|one| KeptException {
            id: one.id,
            text: one.text,
            added_by: one.added_by,
            since_ms: one.since_ms,
        });
        let (set, over) = ExceptionSet::restore(kept, now);
        self.gate.exceptions = set;
        for id in over {
            tracing::warn!(
                id,
                "an exception has expired, or this version does not understand it"
            );
            self.hold(Held::Exception, id, None);
        }
    }

    fn restore_restrictions(&mut self, store: &kams_store::Store, now: Now) {
        let mut restrictions = Vec::new();
        for one in read::<StoredRestriction>(store, Held::Restriction) {
            if let Some(uid) = one.uid {
                self.uids.insert(one.user.clone(), uid);
            }
            let Some(action) = Action::from_name(&one.action) else {
                continue;
            };
            restrictions.push(Restriction {
                id: one.id,
                action,
                user: one.user,
                agent: one.agent,
                server: one.server,
                tool: one.tool,
                rule: one.rule,
                since_ms: one.since_ms,
                until_ms: one.until_ms,
                ttl_ms: one.ttl_ms,
            });
        }
        let ids: Vec<u64> = restrictions.iter().map(|one| one.id).collect();
        self.gate.restrictions = RestrictionSet::restore(restrictions, now);
        for id in ids {
            if !self.gate.restrictions.list(now).iter().any(|one| one.id == id) {
                self.hold(Held::Restriction, id, None);
            }
        }
    }

    /// Gives the requests that the restart denied.
    fn restore_approvals(&mut self, store: &kams_store::Store, now: Now) -> Vec<Approval> {
        let approvals: Vec<Approval> = read::<StoredApproval>(store, Held::Approval)
            .into_iter()
            .map(|one| {
                if let Some(uid) = one.uid {
                    self.uids.insert(one.user.clone(), uid);
                }
                let request = Request {
                    run: one.run,
                    user: one.user,
                    agent: one.agent,
                    server: one.server,
                    tool: one.tool,
                    args_digest: one.args_digest,
                    rule: one.rule,
                    group: one.group,
                    reason: one.reason,
                    fields: one.fields,
                };
                let state = match one.approved_by {
                    Some(by) => State::Approved { by },
                    None => State::Pending,
                };
                Approval::stored(one.id, request, state, one.since_ms, one.until_ms)
            })
            .collect();
        let valid_for = self.gate.policy().approvals().valid_for_ms;
        let (queue, denied) = ApprovalQueue::restore(approvals, valid_for, now);
        self.gate.approvals = queue;
        self.gate.note_approvals(&denied, now);
        denied
    }

    /// Writes what was decided, and counts it.
    pub(super) fn drain(&mut self, now: Now, sink: &mut dyn Sink) {
        for (decision, rule) in self.write_records(now) {
            sink.decided(decision, &rule);
        }
    }

    fn write_records(&mut self, now: Now) -> Vec<(&'static str, String)> {
        let records = self.gate.take_records();
        let mut counted = Vec::new();
        if records
            .iter()
            .any(|record| record.body.kind == RecordKind::Restriction)
        {
            self.publish_cut_offs(now);
        }
        for record in &records {
            if counts(&records, record)
                && let Some(outcome) = kams_policy::Outcome::from_name(&record.body.decision)
            {
                counted.push((outcome.name(), record.body.rule.clone().unwrap_or_default()));
            }
            self.write_record(record);
            match (record.body.kind, record.body.reference) {
                (RecordKind::Restriction, Some(id)) => self.keep_restriction(id, now),
                (RecordKind::Approval, Some(id)) => self.keep_approval(id),
                (RecordKind::Exception, Some(id)) => self.keep_exception(id),
                _ => {}
            }
        }
        if let (Some(last), Some(store)) = (records.last(), &self.store) {
            let head = Noted {
                n: last.n,
                hash: last.hash.clone(),
            };
            if let Err(error) = store.note_head(&head) {
                tracing::error!(%error, "the newest decision's number could not be noted");
            }
        }
        counted
    }

    fn write_record(&self, record: &Record) {
        let Some(store) = &self.store else { return };
        let row = DecisionRow {
            n: record.n,
            at: kams_export::view::Time::now().unix_nanos(),
            uid: self.uids.get(&record.body.user).copied(),
            user: record.body.user.clone(),
            run: record.body.run.clone(),
            record: record.to_json().to_string(),
        };
        // A full queue is counted by the store, and the number shows as missing at the next start.
        store.write(WriteOp::Decision(Box::new(row)));
    }

    fn keep_restriction(&self, id: u64, now: Now) {
        let stands = self
            .gate
            .restrictions
            .list(now)
            .into_iter()
            .find(|one| one.id == id);
        let body = stands.map(|one| StoredRestriction {
            id,
            action: one.action.name().to_owned(),
            user: one.user.clone(),
            uid: self.uids.get(&one.user).copied(),
            agent: one.agent.clone(),
            server: one.server.clone(),
            tool: one.tool.clone(),
            rule: one.rule.clone(),
            since_ms: one.since_ms,
            until_ms: one.until_ms,
            ttl_ms: one.ttl_ms,
        });
        self.hold(
            Held::Restriction,
            id,
            body.and_then(|body| serde_json::to_string(&body).ok()),
        );
    }

    fn keep_approval(&self, id: u64) {
        let stands = self
            .gate
            .approvals
            .get(id)
            .filter(|one| matches!(one.state, State::Pending | State::Approved { .. }));
        let body = stands.map(|one| StoredApproval {
            id,
            uid: self.uids.get(&one.request.user).copied(),
            run: one.request.run.clone(),
            user: one.request.user.clone(),
            agent: one.request.agent.clone(),
            server: one.request.server.clone(),
            tool: one.request.tool.clone(),
            args_digest: one.request.args_digest.clone(),
            rule: one.request.rule.clone(),
            group: one.request.group.clone(),
            reason: one.request.reason.clone(),
            fields: one.request.fields.clone(),
            approved_by: one.state.by().map(str::to_owned),
            since_ms: one.since_ms,
            until_ms: one.until_ms,
        });
        self.hold(
            Held::Approval,
            id,
            body.and_then(|body| serde_json::to_string(&body).ok()),
        );
    }

    fn keep_exception(&self, id: u64) {
        let stands = self.gate.exceptions.list().find(|(kept, _)| kept.id == id);
        let body = stands.map(|(kept, _)| StoredException {
            id,
            text: kept.text.clone(),
            added_by: kept.added_by.clone(),
            since_ms: kept.since_ms,
        });
        self.hold(
            Held::Exception,
            id,
            body.and_then(|body| serde_json::to_string(&body).ok()),
        );
    }

    fn hold(&self, kind: Held, id: u64, body: Option<String>) {
        if let Some(store) = &self.store {
            store.write(WriteOp::Held { kind, id, body });
        }
    }

    /// Shows what stands: restrictions by action, and the end of the chain.
    pub(super) fn show(&self, now: Now, sink: &mut dyn Sink) {
        let standing = self.gate.restrictions.list(now);
        let counts: Vec<(&'static str, usize)> = Action::ALL
            .iter()
            .filter(|action| action.restricts())
            .map(|action| {
                let count = standing.iter().filter(|one| one.action == *action).count();
                (action.name(), count)
            })
            .collect();
        let head = self.gate.chain().head();
        sink.gate(&counts, (head.n, &head.hash));
    }
}

fn read<T: serde::de::DeserializeOwned>(store: &kams_store::Store, kind: Held) -> Vec<T> {
    let rows = store.held(kind).unwrap_or_else(|error| {
        tracing::error!(%error, "what was held before could not be read");
        Vec::new()
    });
    rows.iter()
        .filter_map(|text| {
            serde_json::from_str(text)
                .map_err(|error| tracing::error!(%error, "a stored restriction, approval or exception is unreadable"))
                .ok()
        })
        .collect()
}
