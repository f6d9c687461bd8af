//! What run-level rules saw, as findings: `KAMS-RUN-001` a rule holds, `KAMS-RUN-002` it could not be evaluated,
//! `KAMS-RUN-003` a rule of a draft holds.

use std::collections::HashSet;

use kams_detect::{Evidence, Finding, Kind, Severity};
use kams_policy::{Action, CallVerdict, ChainMatch, Decision, Outcome};

use super::Gatekeeper;

/// What was told is remembered up to here; then it is forgotten, and said again.
const MOST: usize = 8_192;

/// Rules that were reported, by run and tool: once a rule holds it mostly holds for the rest of its run, and each
/// further call has its record in the chain.
pub(super) type Told = HashSet<(String, String, String)>;

impl Gatekeeper {
    /// Findings of a checkpoint that are new to the run, with what policy makes of each.
    pub(super) fn found(&mut self, verdict: &CallVerdict, run: &str, tool: &str) -> Vec<(Finding, Decision)> {
        let mut found = Vec::new();
        for hit in verdict
            .checkpoint
            .iter()
            .flat_map(|checkpoint| &checkpoint.matches)
        {
            if hit.decision == Outcome::Allow && hit.error.is_none() {
                continue;
            }
            if self.told.len() >= MOST {
                self.told.clear();
            }
            let rule = format!("{}@{}/{}", hit.policy_id, hit.version, hit.rule_id);
            if self.told.insert((run.to_owned(), rule.clone(), tool.to_owned())) {
                found.push((finding(hit, &rule, run, tool), decision(hit, &verdict.decision)));
            }
        }
        found
    }
}

fn finding(hit: &ChainMatch, rule: &str, run: &str, tool: &str) -> Finding {
    let code = match hit {
        ChainMatch { error: Some(_), .. } => "KAMS-RUN-002",
        ChainMatch { dry_run: true, .. } => "KAMS-RUN-003",
        _ => "KAMS-RUN-001",
    };
    let severity = match hit.decision {
        _ if hit.suspend_agent => Severity::Critical,
        Outcome::Block => Severity::High,
        Outcome::RequireApproval => Severity::Medium,
        _ => Severity::Low,
    };
    Finding {
        code,
        detector: "run.chain",
        kind: Kind::RunChain,
        severity: if hit.dry_run { severity.lowered() } else { severity },
        confidence: 1.0,
        tool: Some(tool.to_owned()),
        cause: format!("{rule} {run}"),
        evidence: Evidence::Chain {
            rule: hit.rule_id.clone(),
            reason_codes: hit.reason_codes.clone(),
            facts: hit
                .fields
                .iter()
                .map(|(path, value)| (path.clone(), value.to_string()))
                .collect(),
        },
    }
}

/// The rule's own decision about the call.
fn decision(hit: &ChainMatch, made: &Decision) -> Decision {
    let action = match hit.decision {
        _ if hit.suspend_agent => Action::SuspendAgent,
        Outcome::Block => Action::BlockCall,
        Outcome::RequireApproval => Action::RequireApproval,
        Outcome::Warn => Action::Warn,
        _ => Action::Alert,
    };
    // Carried out where the whole decision is: in enforce mode, on a stream with a relay.
    let enforces = action.enforces() && made.would.is_some();
    Decision {
        action: Some(if enforces || hit.dry_run {
            Action::Alert
        } else {
            action
        }),
        would: (enforces && !hit.dry_run).then_some(action),
        rule: Some(hit.rule_id.clone()),
        mode: made.mode,
        ..Decision::default()
    }
}
