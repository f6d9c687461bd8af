//! Checkpoints: the run-level documents asked about one run at one moment.

use serde_json::Value as Json;

use crate::action::{Action, Outcome};
use crate::decide::Subject;
use crate::document::{ChainRule, Document, Point, Status};
use crate::file::runs::RunPolicy;
use crate::logic::{Data, LogicError};
use crate::run::context;

/// A rule that held, or could not be evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainMatch {
    /// Policy of the rule.
    pub policy_id: String,
    /// Its version.
    pub version: String,
    /// The rule; `default` for the document's default decision.
    pub rule_id: String,
    /// What it decides.
    pub decision: Outcome,
    /// Text for people.
    pub reason: String,
    /// Machine-readable reasons.
    pub reason_codes: Vec<String>,
    /// Who may approve.
    pub approver_group: Option<String>,
    /// Suspend the agent beyond this run.
    pub suspend_agent: bool,
    /// Evaluated fact paths and their values.
    pub fields: Vec<(String, Json)>,
    /// Why it could not be evaluated; then `decision` stands as if it had held.
    pub error: Option<String>,
    /// The document is a draft: recorded, not carried out.
    pub dry_run: bool,
}

/// The outcome of one checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// The strongest decision of rules that are carried out.
    pub decision: Outcome,
    /// Everything that held or failed, drafts included, in order.
    pub matches: Vec<ChainMatch>,
    /// How many rules could not be evaluated.
    pub errors: u32,
}

impl Checkpoint {
    /// The match behind the decision.
    pub fn decisive(&self) -> Option<&ChainMatch> {
        let mut best: Option<&ChainMatch> = None;
        for hit in self.matches.iter().filter(|m| !m.dry_run) {
            if best.is_none_or(|b| hit.decision > b.decision) {
                best = Some(hit);
            }
        }
        best
    }

    /// The action that carries the decision out.
    pub fn action(&self) -> Option<Action> {
        let hit = self.decisive()?;
        Some(match hit.decision {
            _ if hit.suspend_agent => Action::SuspendAgent,
            Outcome::Block => Action::BlockCall,
            Outcome::RequireApproval => Action::RequireApproval,
            Outcome::Warn => Action::Warn,
            Outcome::Redact | Outcome::Allow => return None,
        })
    }
}

impl RunPolicy {
    /// Whether any document could say something about calls of this subject.
    pub fn concerns(&self, subject: &Subject<'_>) -> bool {
        self.documents
            .iter()
            .any(|d| d.status != Status::Archived && d.scope.covers(subject, &self.labels))
    }

    /// Fact keys that the documents read.
    pub(crate) fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = self
            .documents
            .iter()
            .flat_map(|d| d.keys.iter().map(String::as_str))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Asks every document in scope about `data`.
    pub(crate) fn ask(&self, subject: &Subject<'_>, point: Point, data: &Json) -> Checkpoint {
        let mut out = Checkpoint::default();
        let parsed = Data::new(data);
        for document in &self.documents {
            if document.status == Status::Archived || !document.scope.covers(subject, &self.labels) {
                continue;
            }
            let before = out.matches.len();
            for rule in &document.rules {
                if !asked(rule, point) {
                    continue;
                }
                let verdict = match &parsed {
                    Some(parsed) => rule.expression.holds(parsed),
                    None => Err(LogicError::Evaluate("the facts cannot be read".to_owned())),
                };
                let error = match verdict {
                    Ok(false) => continue,
                    Ok(true) => None,
                    Err(error) => Some(error.to_string()),
                };
                out.errors += u32::from(error.is_some());
                out.matches.push(of_rule(document, rule, data, error));
            }
            let default = point != Point::ToolResult && document.default_decision != Outcome::Allow;
            if out.matches.len() == before && default {
                out.matches.push(of_default(document));
            }
        }
        out.decision = out.decisive().map_or(Outcome::Allow, |hit| hit.decision);
        out
    }

    /// The checkpoint of an engine that cannot answer: every rule in scope that blocks does so (fail closed),
    /// every other is left out.
    pub fn unreachable(&self, subject: &Subject<'_>, point: Point) -> Checkpoint {
        let mut out = Checkpoint::default();
        for document in &self.documents {
            if document.status == Status::Archived || !document.scope.covers(subject, &self.labels) {
                continue;
            }
            for rule in &document.rules {
                if rule.decision == Outcome::Block && asked(rule, point) {
                    let error = Some("the engine does not answer".to_owned());
                    out.matches.push(of_rule(document, rule, &Json::Null, error));
                }
            }
        }
        out.decision = out.decisive().map_or(Outcome::Allow, |hit| hit.decision);
        out
    }
}

/// A rule that names no point is asked before calls and on demand; at results only those that name them are, or
/// each call would be judged twice.
fn asked(rule: &ChainRule, point: Point) -> bool {
    match rule.point {
        None => point != Point::ToolResult,
        Some(own) => own == point || point == Point::OnDemand,
    }
}

fn of_rule(document: &Document, rule: &ChainRule, data: &Json, error: Option<String>) -> ChainMatch {
    ChainMatch {
        policy_id: document.policy_id.clone(),
        version: document.version.clone(),
        rule_id: rule.id.clone(),
        decision: rule.decision,
        reason: rule.reason.clone(),
        reason_codes: rule.reason_codes.clone(),
        approver_group: rule.approver_group.clone(),
        suspend_agent: rule.suspend_agent,
        fields: rule
            .evaluated
            .iter()
            .map(|path| (path.clone(), context::evaluated(data, path)))
            .collect(),
        error,
        dry_run: document.status == Status::Draft,
    }
}

fn of_default(document: &Document) -> ChainMatch {
    ChainMatch {
        policy_id: document.policy_id.clone(),
        version: document.version.clone(),
        rule_id: "default".to_owned(),
        decision: document.default_decision,
        reason: "No rule of this policy allows it.".to_owned(),
        reason_codes: Vec::new(),
        approver_group: None,
        suspend_agent: false,
        fields: Vec::new(),
        error: None,
        dry_run: document.status == Status::Draft,
    }
}
