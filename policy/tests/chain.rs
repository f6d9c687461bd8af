//! Run-level rules: documents, templates, checkpoints, approvals and evidence through the gate.
#![expect(
    clippy::tests_outside_test_module,
    reason = "an integration test is a test module"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use kams_policy::{
    Action, Approver, Chain, Completion, Fault, Gate, Head, Now, Outcome, Policy, Problem, ProposedCall,
    Record, RecordKind, RunError, Subject, ToolChain, args_digest, export_chain, export_run, operation_id,
    verify,
};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

const SEED: &str = include_str!("data/seed-tool-chain.json");
const NOW: Now = Now::at(1_800_000_000_000);

const POLICY: &str = "
version: 1
mode: enforce
runs:
  labels: {environment: prod}
  facts:
    - {tool: secret_read, key: secret_read}
    - {tool: 'send_*', key: external_send}
    - {tool: customer_enumeration}
    - {tool: customer_export, numeric_keys: [record_count]}
    - {tool: pay, key: payment_submit, arg_keys: [beneficiary_id], numeric_keys: [amount]}
  policies: [chains.json]
approvals: {groups: {security_reviewers: secops, payments_reviewers: treasury}}
";

fn load(text: &str, document: &str) -> Result<Policy, Vec<Problem>> {
    let files: BTreeMap<String, String> = [("chains.json".to_owned(), document.to_owned())].into();
    Policy::load("policy.yaml", text, &files)
}

fn published() -> String {
    SEED.replace("\"draft\"", "\"published\"")
}

fn gate(document: &str) -> Gate {
    let policy = load(POLICY, document).unwrap_or_else(|p| {
        panic!(
            "{}",
            p.iter().map(ToString::to_string).collect::<Vec<_>>().join(
                "
"
            )
        )
    });
    assert!(policy.warnings().is_empty(), "{:?}", policy.warnings());
    Gate::new(Arc::new(policy))
}

struct Agent {
    user: &'static str,
    instance: &'static str,
    next: u32,
}

impl Agent {
    const fn new(user: &'static str, instance: &'static str) -> Self {
        Self {
            user,
            instance,
            next: 0,
        }
    }

    fn subject<'a>(&self, tool: &'a str) -> Subject<'a> {
        Subject {
            user: self.user,
            agent: "codex",
            server: "bank",
            tool: Some(tool),
            relayed: true,
        }
    }

    /// Proposes a call; returns its verdict, run and operation.
    fn propose(
        &mut self,
        gate: &mut Gate,
        tool: &str,
        args: &Json,
        now: Now,
    ) -> (kams_policy::CallVerdict, String, String) {
        self.next += 1;
        let id = self.next.to_string();
        self.propose_as(gate, tool, args, &id, now)
    }

    fn propose_as(
        &self,
        gate: &mut Gate,
        tool: &str,
        args: &Json,
        id: &str,
        now: Now,
    ) -> (kams_policy::CallVerdict, String, String) {
        let run = gate.enter_run(self.user, self.instance, "codex", now);
        let digest = args_digest(args);
        let operation = operation_id(self.instance, id, None, tool, &digest);
        let call = ProposedCall {
            subject: self.subject(tool),
            run: &run,
            operation: &operation,
            arguments: args,
            args_digest: &digest,
            target: None,
            baseline: None,
        };
        let verdict = gate.propose(&call, now);
        (verdict, run, operation)
    }

    /// Proposes a call and, if it passes, ends it well.
    fn call(&mut self, gate: &mut Gate, tool: &str, args: &Json, now: Now) -> Outcome {
        let (verdict, run, operation) = self.propose(gate, tool, args, now);
        if verdict.decision.passes() {
            gate.complete(self.user, &run, &operation, Completion::Succeeded, now)
                .expect("the run is living");
        }
        verdict.decision.outcome
    }
}

fn pay(amount: f64) -> Json {
    json!({"beneficiary_id": "bene-2201", "amount": amount, "memo": "for the whole office party, thank you"})
}

#[test]
fn the_templates_are_the_document_of_the_seed() {
    let seed: Json = serde_json::from_str(SEED).unwrap();
    assert_eq!(ToolChain::default().document(), seed);
    let facts = ToolChain::default().facts();
    let policy = format!(
        "version: 1\nruns:\n  labels: {{environment: prod}}\n  facts: {facts}\n  policies: [chains.json]\napprovals: {{groups: {{security_reviewers: a, payments_reviewers: b}}}}\n"
    );
    let policy = load(&policy, &ToolChain::default().document().to_string()).unwrap();
    assert_eq!(policy.runs().documents[0].rules.len(), 3);
    assert!(policy.warnings().is_empty());
}

#[test]
fn a_document_that_reads_what_nobody_provides_is_refused_at_its_place() {
    let stray = SEED.replace("tools.payment_submit.calls", "tools. payment_submit.calls");
    let problems = load(POLICY, &stray).unwrap_err();
    let line = stray.lines().position(|l| l.contains(". payment")).unwrap() + 1;
    let first = &problems[0];
    assert_eq!(
        (first.file.as_str(), first.line as usize),
        ("chains.json", line),
        "{first}"
    );
    assert!(
        first.message.contains("no fact declaration provides")
            && first.suggestion.as_deref() == Some("did you mean `payment_submit`?"),
        "{first}"
    );

    for (from, to, words) in [
        ("\"and\"", "\"adn\"", "unknown operator `adn`"),
        ("\">\"", "\"val\"", "unknown operator `val`"),
        (
            "context.run.tools.secret_read.calls\"}",
            "context.run.secret_read.calls\"}",
            "outside the context",
        ),
        (
            "context.run.tools.secret_read.calls\"}",
            "tools.secret_read.calls\"}",
            "outside the context",
        ),
        ("secret_read.calls\"}", "secret_read.count\"}", "names no fact"),
        (
            "numericSums.amount\"}, 4000",
            "numericSums.beneficiary_id\"}, 4000",
            "declares no `beneficiary_id` among its numeric_keys",
        ),
        (
            "\"approverGroup\": \"payments_reviewers\"",
            "\"approverGroup\": \"nobody\"",
            "maps to no Unix group",
        ),
        (
            "\"decision\": \"block\"",
            "\"decision\": \"blcok\"",
            "`blcok` is not known",
        ),
        (
            "\"mode\": \"deterministic\"",
            "\"mode\": \"model\"",
            "`model` is not known",
        ),
        (
            "\"status\": \"draft\"",
            "\"status\": \"drift\"",
            "`drift` is not known",
        ),
        ("\"policyId\"", "\"policyID\"", "`policyId` is missing"),
        ("}, 0]}", "}]}", "takes 2 arguments, not 1"),
        (
            "{\">\": [{\"var\": \"context.run.tools.external_send.calls\"}, 0]}",
            "{\">\": [1, 0], \"<\": [0, 1]}",
            "has one operator; this has 2",
        ),
        (
            "{\">\": [{\"var\": \"context.run.tools.external_send.calls\"}, 0]}",
            "{\"var\": {\"cat\": [\"context\", \".x\"]}}",
            "is computed",
        ),
        (
            "{\">\": [{\"var\": \"context.run.tools.external_send.calls\"}, 0]}",
            "{\"map\": [[1], {\"var\": \"context.run\"}]}",
            "inside a loop",
        ),
        (
            "{\">\": [{\"var\": \"context.run.tools.external_send.calls\"}, 0]}",
            "{\"reduce\": [[1], {\"cat\": [{\"var\": \"accumulator\"}, {\"var\": \"accumulator\"}]}, \"x\"]}",
            "grow without bound",
        ),
    ] {
        assert!(SEED.contains(from), "{from}");
        let problems = load(POLICY, &SEED.replace(from, to)).unwrap_err();
        assert!(
            problems.iter().any(|p| p.message.contains(words) && p.line > 0),
            "{words}: {problems:?}"
        );
    }
    let missing = load(&POLICY.replace("chains.json", "other.json"), SEED).unwrap_err();
    assert!(missing[0].message.contains("cannot be read"), "{missing:?}");
    let elsewhere = load(&POLICY.replace("environment: prod", "environment: test"), SEED).unwrap();
    assert!(elsewhere.warnings()[0].message.contains("never applies here"));
}

#[test]
fn secret_then_send_stops_the_send_itself() {
    let mut gate = gate(&published());
    let mut agent = Agent::new("ana", "boot-1-100");
    assert_eq!(
        agent.call(&mut gate, "secret_read", &json!({}), NOW),
        Outcome::Allow
    );
    let (verdict, run, _) = agent.propose(&mut gate, "send_mail", &json!({}), NOW);
    assert_eq!(verdict.decision.outcome, Outcome::Block);
    assert_eq!(
        verdict.decision.rule.as_deref(),
        Some("run-tool-chain-secret-then-external")
    );
    assert!(
        verdict
            .decision
            .denial()
            .contains("run-tool-chain-secret-then-external")
    );
    let hit = verdict.checkpoint.as_ref().unwrap().decisive().unwrap();
    assert_eq!(hit.reason_codes, ["run_chain_secret_then_external"]);
    assert!(
        hit.fields
            .contains(&("context.run.tools.secret_read.calls".to_owned(), json!(1)))
    );
    // The send was refused, so it is no fact: reading goes on.
    assert_eq!(
        agent.call(&mut gate, "secret_read", &json!({}), NOW),
        Outcome::Allow
    );
    // On demand only completed facts are seen.
    let checkpoint = gate.checkpoint("ana", &run, NOW).unwrap();
    assert_eq!(checkpoint.decision, Outcome::Allow);
}

#[test]
fn a_draft_and_observe_mode_only_record() {
    let mut gate = gate(SEED);
    let mut agent = Agent::new("ana", "i");
    agent.call(&mut gate, "secret_read", &json!({}), NOW);
    let (verdict, ..) = agent.propose(&mut gate, "send_x", &json!({}), NOW);
    assert_eq!(
        (verdict.decision.outcome, verdict.decision.would),
        (Outcome::Allow, None)
    );
    assert!(verdict.checkpoint.unwrap().matches[0].dry_run);
    let records = gate.take_records();
    assert!(
        records
            .iter()
            .any(|r| r.body.kind == RecordKind::Checkpoint && !r.body.enforced && r.body.decision == "block")
    );

    let observe = load(&POLICY.replace("mode: enforce", "mode: observe"), &published()).unwrap();
    let mut gate = Gate::new(Arc::new(observe));
    let mut agent = Agent::new("ana", "i");
    agent.call(&mut gate, "secret_read", &json!({}), NOW);
    let (verdict, ..) = agent.propose(&mut gate, "send_x", &json!({}), NOW);
    assert_eq!(
        (verdict.decision.outcome, verdict.decision.would),
        (Outcome::Allow, Some(Action::BlockCall))
    );
}

#[test]
fn payments_in_flight_count_ahead_and_roll_back_when_they_fail() {
    let mut gate = gate(&published());
    let mut agent = Agent::new("ana", "i");
    let mut flying = Vec::new();
    let mut held = 0;
    for i in 0..60 {
        let (verdict, run, operation) = agent.propose(&mut gate, "pay", &pay(400.0 + f64::from(i)), NOW);
        match verdict.decision.outcome {
            Outcome::Allow => flying.push((run, operation)),
            Outcome::RequireApproval => held += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(
        (flying.len(), held),
        (9, 51),
        "sixty at once do not slip past together"
    );
    for (run, operation) in &flying {
        gate.complete("ana", run, operation, Completion::Failed, NOW)
            .unwrap();
    }
    assert_eq!(
        agent.call(&mut gate, "pay", &pay(400.0), NOW),
        Outcome::Allow,
        "what failed was taken back"
    );
}

#[test]
fn a_cancelled_call_counts_and_a_repeated_one_counts_once() {
    let mut gate = gate(&published());
    let agent = Agent::new("ana", "i");
    for i in 0..9 {
        let (_, run, operation) = agent.propose_as(&mut gate, "pay", &pay(450.0), &format!("c{i}"), NOW);
        gate.complete("ana", &run, &operation, Completion::Unknown, NOW)
            .unwrap();
        // The same id and arguments again: one operation.
        let (again, ..) = agent.propose_as(&mut gate, "pay", &pay(450.0), &format!("c{i}"), NOW);
        assert_eq!(again.admission, Some(kams_policy::Admission::Repeated));
    }
    // The same id with other arguments is another operation, or one id would hide sixty payments.
    let (verdict, ..) = agent.propose_as(&mut gate, "pay", &pay(451.0), "c0", NOW);
    assert_eq!(verdict.decision.outcome, Outcome::RequireApproval);
}

#[test]
fn an_approval_lets_one_call_pass_and_the_arc_is_in_the_evidence() {
    let mut gate = gate(&published());
    let mut agent = Agent::new("ana", "i");
    for _ in 0..9 {
        assert_eq!(agent.call(&mut gate, "pay", &pay(480.0), NOW), Outcome::Allow);
    }
    let (verdict, run, _) = agent.propose_as(&mut gate, "pay", &pay(300.0), "ten", NOW);
    let id = verdict.approval.unwrap();
    assert_eq!(verdict.decision.outcome, Outcome::RequireApproval);
    let request = gate.approvals.get(id).unwrap().request.clone();
    assert_eq!(request.group.as_deref(), Some("payments_reviewers"));
    assert!(request.fields.contains(&(
        "context.run.tools.payment_submit.numericSums.amount".to_owned(),
        json!(4620)
    )));
    let person = |user, groups| Approver {
        user,
        groups,
        root: false,
        in_agent_tree: false,
    };
    assert!(gate.decide(id, &person("ben", &["secops"]), true, NOW).is_err());
    assert!(gate.decide(id, &person("ana", &["treasury"]), true, NOW).is_err());
    assert!(
        gate.decide(
            id,
            &Approver {
                in_agent_tree: true,
                ..person("ben", &["treasury"])
            },
            true,
            NOW
        )
        .is_err()
    );
    gate.decide(id, &person("ben", &["treasury"]), true, NOW).unwrap();
    // Other arguments are another call.
    let (other, ..) = agent.propose_as(&mut gate, "pay", &pay(301.0), "other", NOW);
    assert_eq!(other.decision.outcome, Outcome::RequireApproval);
    let (passed, run2, operation) = agent.propose_as(&mut gate, "pay", &pay(300.0), "retry", NOW);
    assert_eq!(
        (passed.decision.outcome, passed.approval, run2.as_str()),
        (Outcome::Allow, Some(id), run.as_str())
    );
    gate.complete("ana", &run, &operation, Completion::Succeeded, NOW)
        .unwrap();
    let (again, ..) = agent.propose_as(&mut gate, "pay", &pay(300.0), "again", NOW);
    assert_eq!(
        again.decision.outcome,
        Outcome::RequireApproval,
        "good for one call"
    );
    gate.leave_run("ana", "i", NOW);

    let records = gate.take_records();
    let export = export_run("ana", &run, &records, NOW);
    let verified = verify(&export, None).unwrap();
    assert_eq!(verified.run.as_deref(), Some(run.as_str()));
    for kind in [
        RecordKind::Admission,
        RecordKind::Checkpoint,
        RecordKind::Approval,
        RecordKind::RunEnd,
    ] {
        assert!(records.iter().any(|r| r.body.kind == kind), "{kind:?}");
    }
    assert!(export.contains("\"approver\":\"ben\"") && export.contains("run_chain_repeated_low_value"));
    assert!(!export.contains("office party"), "no raw argument");
    assert!(verify(&export_chain(&records, NOW), Some(gate.chain().head())).is_ok());
}

#[test]
fn a_run_ends_after_idle_time_and_the_window_remembers() {
    let document = published().replace("context.run.tools", "context.user.tools");
    let mut gate = gate(&document);
    let mut agent = Agent::new("ana", "i");
    agent.call(&mut gate, "secret_read", &json!({}), NOW);
    let later = NOW.plus(31 * 60_000);
    let (verdict, run, _) = agent.propose(&mut gate, "send_x", &json!({}), later);
    assert_eq!(run, "i.2", "idle for more than thirty minutes: another run");
    assert_eq!(
        verdict.decision.outcome,
        Outcome::Block,
        "a chain over two runs shows in the user's window"
    );
    let mut other = Agent::new("ben", "i");
    assert_eq!(
        other.call(&mut gate, "send_x", &json!({}), later),
        Outcome::Allow,
        "facts never cross users"
    );
    let much_later = NOW.plus(3 * 3_600_000);
    assert_eq!(
        agent.call(&mut gate, "send_x", &json!({}), much_later),
        Outcome::Allow
    );
    assert_eq!(gate.checkpoint("ben", &run, later), Err(RunError::UnknownRun));
}

#[test]
fn clocks_that_jump_do_not_panic_or_split_runs() {
    let mut gate = gate(&published());
    let mut agent = Agent::new("ana", "i");
    agent.call(&mut gate, "secret_read", &json!({}), NOW);
    let back = Now {
        wall_ms: 0,
        mono_ms: 0,
    };
    let (verdict, run, _) = agent.propose(&mut gate, "send_x", &json!({}), back);
    assert_eq!((verdict.decision.outcome, run.as_str()), (Outcome::Block, "i.1"));
    let far = Now {
        wall_ms: u64::MAX,
        mono_ms: u64::MAX,
    };
    gate.sweep(far);
    assert_eq!(agent.call(&mut gate, "send_x", &json!({}), far), Outcome::Allow);
}

#[test]
fn order_numbers_tell_secret_before_send_from_the_other_way() {
    let ordered = published().replace(
        "{\">\": [{\"var\": \"context.run.tools.external_send.calls\"}, 0]}",
        "{\"<\": [{\"var\": \"context.run.tools.secret_read.firstSeq\"}, {\"var\": \"context.run.tools.external_send.lastSeq\"}]}",
    );
    let mut first = gate(&ordered);
    let mut agent = Agent::new("ana", "i");
    assert_eq!(agent.call(&mut first, "send_x", &json!({}), NOW), Outcome::Allow);
    assert_eq!(
        agent.call(&mut first, "secret_read", &json!({}), NOW),
        Outcome::Allow,
        "sent before it was read"
    );
    assert_eq!(agent.call(&mut first, "send_x", &json!({}), NOW), Outcome::Block);
}

#[test]
fn a_rule_that_cannot_be_evaluated_decides_as_if_it_held() {
    let broken = published().replace(
        "{\">\": [{\"var\": \"context.run.tools.external_send.calls\"}, 0]}",
        "{\">\": [{\"+\": [{\"var\": \"context.action.tool\"}, 1]}, 0]}",
    );
    let mut gate = gate(&broken);
    let mut agent = Agent::new("ana", "i");
    let (verdict, ..) = agent.propose(&mut gate, "secret_read", &json!({}), NOW);
    assert_eq!(
        (verdict.decision.outcome, gate.evaluation_errors),
        (Outcome::Block, 1)
    );
    let hit = verdict.checkpoint.unwrap();
    assert!(hit.errors == 1 && hit.decisive().unwrap().error.is_some());
    assert!(gate.take_records().iter().any(|r| {
        r.body
            .reason
            .as_deref()
            .is_some_and(|r| r.contains("evaluation error"))
    }));
}

#[test]
fn an_engine_that_cannot_count_refuses_where_rules_block() {
    let policy = Arc::new(load(POLICY, &published()).unwrap());
    let mut gate = Gate::new(Arc::clone(&policy));
    let agent = Agent::new("ana", "i");
    let args = json!({});
    let call = ProposedCall {
        subject: agent.subject("send_x"),
        run: "no-such-run",
        operation: "o",
        arguments: &args,
        args_digest: "d",
        target: None,
        baseline: None,
    };
    let verdict = gate.propose(&call, NOW);
    assert_eq!(verdict.decision.outcome, Outcome::Block);
    let drafts = load(POLICY, SEED).unwrap();
    let mut gate = Gate::new(Arc::new(drafts));
    assert_eq!(gate.propose(&call, NOW).decision.outcome, Outcome::Allow);
}

#[test]
fn a_suspended_agent_is_refused_everywhere_until_lifted() {
    let document = published().replace(
        "\"decision\": \"block\",",
        "\"decision\": \"block\", \"containment\": \"suspend_agent\",",
    );
    let mut gate = gate(&document);
    let mut agent = Agent::new("ana", "i");
    agent.call(&mut gate, "secret_read", &json!({}), NOW);
    let (verdict, ..) = agent.propose(&mut gate, "send_x", &json!({}), NOW);
    assert_eq!(verdict.decision.action, Some(Action::SuspendAgent));
    let id = verdict.decision.restriction.unwrap().id;
    let mut next_run = Agent::new("ana", "another-process");
    assert_eq!(
        next_run.call(&mut gate, "harmless", &json!({}), NOW),
        Outcome::Block
    );
    gate.lift(id, "root", NOW).unwrap();
    assert_eq!(
        next_run.call(&mut gate, "harmless", &json!({}), NOW),
        Outcome::Allow
    );
}

#[test]
fn a_result_can_be_held_by_its_own_gate() {
    let document = published().replace(
        "\"ruleId\": \"run-tool-chain-secret-then-external\",",
        "\"ruleId\": \"run-tool-chain-secret-then-external\", \"interceptionPoint\": \"tool_result\",",
    );
    let mut gate = gate(&document);
    let mut agent = Agent::new("ana", "i");
    agent.call(&mut gate, "secret_read", &json!({}), NOW);
    let (verdict, run, operation) = agent.propose(&mut gate, "send_x", &json!({}), NOW);
    assert_eq!(
        verdict.decision.outcome,
        Outcome::Allow,
        "the rule is not asked before the call"
    );
    let args = json!({});
    let digest = args_digest(&args);
    let call = ProposedCall {
        subject: agent.subject("send_x"),
        run: &run,
        operation: &operation,
        arguments: &args,
        args_digest: &digest,
        target: None,
        baseline: None,
    };
    assert_eq!(gate.result(&call, NOW).decision.outcome, Outcome::Block);
}

fn three_records() -> (Vec<Record>, Head) {
    let mut gate = gate(&published());
    let mut agent = Agent::new("ana", "i");
    agent.call(&mut gate, "secret_read", &json!({}), NOW);
    agent.call(&mut gate, "send_x", &json!({}), NOW);
    let records = gate.take_records();
    assert!(records.len() >= 3);
    let head = gate
        .chain()
        .run_head("ana", "i.1")
        .expect("the run has records")
        .clone();
    (records, head)
}

#[test]
fn tampering_and_a_cut_tail_are_found() {
    let (records, head) = three_records();
    let export = export_run("ana", "i.1", &records, NOW);
    assert_eq!(verify(&export, Some(&head)).unwrap().head, head);
    let changed = export.replacen("\"decision\":\"block\"", "\"decision\":\"allow\"", 1);
    assert!(matches!(verify(&changed, None), Err(Fault::Changed { .. })));
    let mut lines: Vec<&str> = export.lines().collect();
    let last = lines.pop().unwrap();
    assert!(matches!(
        verify(&lines.join("\n"), None),
        Err(Fault::CutTail { .. })
    ));
    // The cutter also writes a new header: only the head noted elsewhere shows it.
    let forged = export_run("ana", "i.1", &records[..records.len() - 1], NOW);
    assert!(verify(&forged, None).is_ok());
    assert!(matches!(verify(&forged, Some(&head)), Err(Fault::CutTail { .. })));
    lines.remove(1);
    lines.push(last);
    assert!(matches!(
        verify(&lines.join("\n"), None),
        Err(Fault::Broken { .. })
    ));
    assert_eq!(verify("", None), Err(Fault::NotAnExport));
    assert!(matches!(
        verify(&format!("{}\nnonsense", export.lines().next().unwrap()), None),
        Err(Fault::NotARecord { line: 2 })
    ));
    let mut other = Chain::default();
    let foreign = other.append(
        kams_policy::Body {
            run: "x".into(),
            ..records[0].body.clone()
        },
        NOW,
    );
    let mixed = format!("{export}{}\n", foreign.to_json());
    assert!(matches!(verify(&mixed, None), Err(Fault::Foreign { .. })));
}

#[test]
fn a_chain_goes_on_after_a_restart() {
    let (mut records, head) = three_records();
    let last = records.last().unwrap();
    let chain_head = Head {
        n: last.n,
        hash: last.hash.clone(),
    };
    let mut chain = Chain::resume(chain_head, [("ana".to_owned(), "i.1".to_owned(), head)]);
    records.push(chain.append(records[0].body.clone(), NOW));
    assert!(verify(&export_run("ana", "i.1", &records, NOW), None).is_ok());
    assert!(verify(&export_chain(&records, NOW), Some(chain.head())).is_ok());
}

#[test]
fn every_member_of_the_first_line_is_sealed() {
    let (records, _) = three_records();
    let export = export_run("ana", "i.1", &records, NOW);
    let (first, rest) = export.split_once('\n').unwrap();
    let header: serde_json::Map<String, serde_json::Value> = serde_json::from_str(first).unwrap();
    assert!(header.len() >= 7, "{header:?}");
    let with = |header: &serde_json::Map<String, serde_json::Value>| {
        format!("{}\n{rest}", serde_json::Value::Object(header.clone()))
    };
    assert!(verify(&with(&header), None).is_ok());
    for name in header.keys() {
        let mut less = header.clone();
        less.remove(name);
        assert!(verify(&with(&less), None).is_err(), "without {name}");
        let mut other = header.clone();
        other.insert(name.clone(), json!("2027-01-01T00:00:00.000Z"));
        assert!(verify(&with(&other), None).is_err(), "another {name}");
    }
    let mut more = header;
    more.insert("note".to_owned(), json!("all was allowed"));
    assert_eq!(verify(&with(&more), None), Err(Fault::Unsealed));
}

#[test]
fn a_member_that_is_named_twice_is_found() {
    let (records, _) = three_records();
    let export = export_run("ana", "i.1", &records, NOW);
    // Whoever reads the first of the two reads what the hash does not cover.
    for (at, line) in export.lines().enumerate() {
        let twice = line.replacen('{', "{\"decision\":\"allow\",\"records\":0,", 1);
        let text: Vec<&str> = export
            .lines()
            .enumerate()
            .map(|(n, line)| if n == at { twice.as_str() } else { line })
            .collect();
        assert!(verify(&text.join("\n"), None).is_err(), "line {}", at + 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_changed_byte_of_a_record_is_found(at in 0_usize..4096, byte in 0x20_u8..0x7f) {
        let (records, head) = three_records();
        let export = export_run("ana", "i.1", &records, NOW);
        let body = export.find('\n').unwrap() + 1;
        let at = body + at % (export.len() - body - 1);
        let mut bytes = export.clone().into_bytes();
        if bytes[at] != byte && bytes[at] != b'\n' {
            bytes[at] = byte;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            prop_assert!(verify(&text, Some(&head)).is_err());
        }
    }
}
