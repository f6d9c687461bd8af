//! Playing a test through a gate.

use std::sync::Arc;

use super::{Case, Ending, Expect, Step, Who};
use crate::action::Outcome;
use crate::approval::{Approver, State};
use crate::checkpoint::Checkpoint;
use crate::decide::{Decision, Finding, Start, Subject};
use crate::gate::{Gate, ProposedCall, args_digest, operation_id};
use crate::policy::Policy;
use crate::run::table::Completion;
use crate::time::Now;

/// Tests begin on 2026-01-01.
const BEGIN_MS: u64 = 1_767_225_600_000;

/// What an event led to.
#[derive(Default)]
struct Seen {
    decision: Decision,
    reason_codes: Vec<String>,
    /// An approval was refused to the person who tried.
    refused: Option<String>,
}

pub(super) fn play(case: &Case, policy: Policy) -> Vec<String> {
    let mut gate = Gate::new(Arc::new(policy));
    let mut now = Now::at(BEGIN_MS);
    let mut failures = Vec::new();
    for (number, (step, expect)) in case.steps.iter().enumerate() {
        now = now.plus(1);
        let seen = match step {
            Step::Wait(ms) => {
                now = now.plus(*ms);
                gate.sweep(now);
                Seen::default()
            }
            step => one(&mut gate, step, number, now),
        };
        if let Some(expect) = expect {
            compare(expect, &seen, &mut failures);
        }
    }
    failures
}

fn subject<'a>(who: &'a Who, tool: Option<&'a str>) -> Subject<'a> {
    Subject {
        user: &who.user,
        agent: &who.agent,
        server: &who.server,
        tool,
        relayed: who.relayed,
    }
}

fn one(gate: &mut Gate, step: &Step, number: usize, now: Now) -> Seen {
    match step {
        Step::Wait(_) => Seen::default(),
        Step::Finding(own) => {
            let finding = Finding {
                subject: subject(&own.who, own.tool.as_deref()),
                detector: &own.detector,
                kind: own.kind,
                severity: own.severity,
                classes: own.classes.iter().map(String::as_str).collect(),
                change: own.change.as_deref(),
                baseline: own.baseline,
                fingerprint: &own.fingerprint,
                gap: false,
            };
            Seen {
                decision: gate.finding(&finding, "", now),
                ..Seen::default()
            }
        }
        Step::Start(who) => Seen {
            decision: gate.start(
                &Start {
                    subject: subject(who, None),
                },
                now,
            ),
            ..Seen::default()
        },
        Step::Call {
            who,
            tool,
            arguments,
            id,
            target,
            ending,
        } => {
            let run = gate.enter_run(&who.user, &who.agent, &who.agent, now);
            let digest = args_digest(arguments);
            let id = id.clone().unwrap_or_else(|| format!("event-{number}"));
            let operation = operation_id("test", &id, None, tool, &digest);
            let call = ProposedCall {
                subject: subject(who, Some(tool)),
                run: &run,
                operation: &operation,
                arguments,
                args_digest: &digest,
                target: target.as_deref(),
                baseline: None,
            };
            let mut verdict = gate.propose(&call, now);
            let mut checkpoint = verdict.checkpoint.take();
            if verdict.decision.passes() && *ending == Ending::Ok {
                let result = gate.result(&call, now);
                if result.decision.outcome > verdict.decision.outcome {
                    verdict = result;
                    checkpoint = verdict.checkpoint.take();
                }
            }
            let how = match ending {
                Ending::Ok if verdict.decision.outcome == Outcome::RequireApproval => Some(Completion::Gated),
                Ending::Ok => Some(Completion::Succeeded),
                Ending::Error => Some(Completion::Failed),
                Ending::Unanswered => Some(Completion::Unknown),
                Ending::Pending => None,
            };
            if let Some(how) = how {
                // A call that was held or refused is not in flight; then there is nothing to end.
                let _nothing_in_flight = gate.complete(&who.user, &run, &operation, how, now);
            }
            Seen {
                reason_codes: codes(checkpoint.as_ref()),
                decision: verdict.decision,
                refused: None,
            }
        }
        Step::Checkpoint(who) => {
            let run = gate.enter_run(&who.user, &who.agent, &who.agent, now);
            let checkpoint = gate.checkpoint(&who.user, &run, now).unwrap_or_default();
            let decisive = checkpoint.decisive();
            Seen {
                decision: Decision {
                    outcome: checkpoint.decision,
                    action: checkpoint.action(),
                    rule: decisive.map(|hit| hit.rule_id.clone()),
                    approver_group: decisive.and_then(|hit| hit.approver_group.clone()),
                    ..Decision::default()
                },
                reason_codes: codes(Some(&checkpoint)),
                refused: None,
            }
        }
        Step::Decide {
            by,
            groups,
            in_agent_tree,
            approve,
        } => {
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            let approver = Approver {
                user: by,
                groups: &groups,
                root: by == "root",
                in_agent_tree: *in_agent_tree,
            };
            let newest = gate
                .approvals
                .list()
                .filter(|a| a.state == State::Pending)
                .last()
                .map(|a| a.id);
            let answer = newest.map(|id| gate.decide(id, &approver, *approve, now));
            let (outcome, refused) = match answer {
                None => (Outcome::Block, Some("nothing waits for approval".to_owned())),
                Some(Ok(_)) if *approve => (Outcome::Allow, None),
                Some(Ok(_)) => (Outcome::Block, None),
                Some(Err(refusal)) => (Outcome::Block, Some(refusal.to_string())),
            };
            Seen {
                decision: Decision {
                    outcome,
                    ..Decision::default()
                },
                refused,
                ..Seen::default()
            }
        }
    }
}

fn codes(checkpoint: Option<&Checkpoint>) -> Vec<String> {
    let matches = checkpoint.map(|c| c.matches.as_slice()).unwrap_or_default();
    matches
        .iter()
        .flat_map(|hit| hit.reason_codes.iter().cloned())
        .collect()
}

fn compare(expect: &Expect, seen: &Seen, failures: &mut Vec<String>) {
    let line = expect.place.line;
    let mut check = |what: &str, want: String, got: String| {
        if want != got {
            let why = seen
                .refused
                .as_ref()
                .map_or_else(String::new, |why| format!(" ({why})"));
            failures.push(format!("line {line}: {what}: expected {want}, got {got}{why}"));
        }
    };
    let name =
        |action: Option<crate::action::Action>| action.map_or("none", crate::action::Action::name).to_owned();
    let decision = &seen.decision;
    if let Some(want) = expect.decision {
        check(
            "decision",
            want.name().to_owned(),
            decision.outcome.name().to_owned(),
        );
    }
    if let Some(want) = expect.action {
        check("action", want.to_owned(), name(decision.action));
    }
    if let Some(want) = expect.would {
        check("would", want.to_owned(), name(decision.would));
    }
    if let Some(want) = &expect.rule {
        let got = decision.rule.clone().unwrap_or_else(|| "none".to_owned());
        check("rule", want.clone(), got);
    }
    if let Some(want) = &expect.matched {
        let got: Vec<&str> = decision.hits.iter().map(|hit| hit.rule.as_str()).collect();
        check("matched", want.join(", "), got.join(", "));
    }
    if let Some(want) = &expect.reason_codes {
        check("reason_codes", want.join(", "), seen.reason_codes.join(", "));
    }
    if let Some(want) = &expect.approver_group {
        check(
            "approver_group",
            want.clone(),
            decision.approver_group.clone().unwrap_or_default(),
        );
    }
}
