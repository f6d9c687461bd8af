//! Whole conversations under run-level rules: what is found, what is on record, what a kill leaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kams_detect::egress::Salt;
use kams_export::view::{FindingRecord, Record as Told};
use kams_policy::{Policy, Record, ToolChain, export_run, verify};
use kams_store::{DecisionRow, Noted, Retention, Store, WriteOp};
use serde_json::{Value, json};

use super::super::Judge;
use super::super::tests::{Talk, Told as Sunk};
use crate::engine::gate::here;
use crate::engine::replay::replay;

const RULES: &str = "
version: 1
mode: observe
runs:
  labels: {environment: prod}
  facts:
    - {tool: secret_read}
    - {tool: 'send_*', key: external_send}
    - {tool: customer_enumeration}
    - {tool: customer_export, numeric_keys: [record_count]}
    - {tool: pay, key: payment_submit, arg_keys: [beneficiary_id], numeric_keys: [amount]}
  policies: [chains.json]
approvals: {groups: {security_reviewers: secops, payments_reviewers: treasury}}
";

/// The three templates, published.
fn policy() -> Arc<Policy> {
    let mut document = ToolChain::default().document();
    document["status"] = json!("published");
    let files: BTreeMap<String, String> = [("chains.json".to_owned(), document.to_string())].into();
    let loaded = Policy::load("policy.yaml", RULES, &files);
    Arc::new(loaded.unwrap_or_else(|problems| panic!("{problems:?}")))
}

fn line(at: u64, to_server: bool, message: &Value) -> String {
    let dir = if to_server { "c>s" } else { "s>c" };
    format!("{}\n", json!({"dir": dir, "ms": at, "raw": message.to_string()}))
}

fn call(id: u64, tool: &str, arguments: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

fn answer(id: u64, failed: bool) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "done"}], "isError": failed}})
}

/// Run-level findings of a recorded session.
fn chains(session: &str) -> Vec<FindingRecord> {
    let mut found = Vec::new();
    replay("test", policy(), &mut session.as_bytes(), &mut |record| {
        if let Told::Finding(finding) = record
            && finding.kind == "RUN_CHAIN"
        {
            found.push(finding);
        }
        Ok(())
    })
    .unwrap();
    found
}

fn rule(finding: &FindingRecord) -> &str {
    finding.evidence["rule"].as_str().unwrap()
}

#[test]
fn a_secret_read_and_then_sent_is_found_at_the_send() {
    let session = |failed| {
        [
            line(0, true, &call(1, "secret_read", &json!({}))),
            line(1, false, &answer(1, failed)),
            line(2, true, &call(2, "send_mail", &json!({"to": "x"}))),
            line(3, false, &answer(2, false)),
        ]
        .concat()
    };
    let found = chains(&session(false));
    assert_eq!(found.len(), 1, "{found:?}");
    let one = &found[0];
    assert_eq!(one.code, "KAMS-RUN-001");
    assert_eq!(one.tool.as_deref(), Some("send_mail"));
    assert_eq!(
        (one.action.as_str(), one.would.as_deref()),
        ("alert", Some("block_call"))
    );
    assert_eq!(one.rule.as_deref(), Some(rule(one)));
    assert!(!one.enforced);
    assert!(
        chains(&session(true)).is_empty(),
        "a read that failed gave no secret away"
    );
}

#[test]
fn payments_in_flight_count_ahead_and_are_rolled_back_when_they_fail() {
    let pay = |id| {
        call(
            id,
            "pay",
            &json!({"beneficiary_id": "b-1", "amount": 450, "memo": "thanks a lot"}),
        )
    };
    let pipelined: String = (1..=60).map(|id| line(id, true, &pay(id))).collect();
    let found = chains(&pipelined);
    assert_eq!(found.len(), 1, "told once for the run and tool: {found:?}");
    assert_eq!(found[0].would.as_deref(), Some("require_approval"));
    assert!(!format!("{found:?}").contains("thanks a lot"));
    let failing: String = (1..=60)
        .map(|id| line(2 * id, true, &pay(id)) + &line(2 * id + 1, false, &answer(id, true)))
        .collect();
    assert!(chains(&failing).is_empty());
    let refused: String = (1..=60)
        .map(|id| {
            let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": "no"}});
            line(2 * id, true, &pay(id)) + &line(2 * id + 1, false, &error)
        })
        .collect();
    assert!(chains(&refused).is_empty());
    let cancelled: String = (1..=60)
        .map(|id| {
            let gone =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
            line(2 * id, true, &pay(id)) + &line(2 * id + 1, true, &gone)
        })
        .collect();
    assert_eq!(
        chains(&cancelled).len(),
        1,
        "a cancelled payment may have been made"
    );
}

#[test]
fn an_enumeration_and_a_large_export_are_found_and_a_small_one_is_not() {
    let session = |count| {
        [
            line(0, true, &call(1, "customer_enumeration", &json!({}))),
            line(1, false, &answer(1, false)),
            line(
                2,
                true,
                &call(2, "customer_export", &json!({"record_count": count})),
            ),
            line(3, false, &answer(2, false)),
        ]
        .concat()
    };
    assert_eq!(chains(&session(500)).len(), 1);
    assert!(chains(&session(499)).is_empty());
}

fn open(folder: &std::path::Path) -> Arc<Store> {
    Arc::new(Store::open(folder, Retention::default()).unwrap().0)
}

fn judge(store: &Arc<Store>) -> Judge {
    Judge::new(policy(), Salt::new(b"test"), Some(Arc::clone(store)))
}

/// A secret that is read and sent.
fn misuse(judge: &mut Judge) -> String {
    let mut talk = Talk::new(judge, 1000, 7, 1, "npm:x");
    let mut sunk = Sunk::default();
    let done = json!({"content": [{"type": "text", "text": "done"}]});
    for tool in ["secret_read", "send_mail"] {
        let params = json!({"name": tool, "arguments": {"to": "someone@example.org"}});
        talk.ask(judge, &mut sunk, "tools/call", &params, &done);
    }
    let (_, run) = judge.gate.gate().runs.list().next().unwrap();
    run.id.clone()
}

fn records(store: &Store, run: &str) -> Vec<Record> {
    let rows = store.decisions_of(Some(1000), run, 1_000).unwrap();
    rows.iter()
        .map(|row| serde_json::from_str(&row.record).unwrap())
        .collect()
}

#[test]
fn a_run_can_be_exported_and_a_tampered_export_shows() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut judge = judge(&store);
    let run = misuse(&mut judge);
    store.flush(Duration::from_mins(1)).unwrap();
    let kept = records(&store, &run);
    assert!(
        kept.iter()
            .any(|record| record.body.decision == "block" && !record.body.enforced)
    );
    let text = export_run("user1000", &run, &kept, here());
    assert_eq!(
        verify(&text, judge.gate.gate().chain().run_head("user1000", &run))
            .unwrap()
            .records,
        kept.len() as u64
    );
    assert!(!text.contains("someone@example.org"));
    verify(
        &text.replace("\"decision\":\"block\"", "\"decision\":\"allow\""),
        None,
    )
    .unwrap_err();
}

#[test]
fn numbers_that_a_kill_took_are_missing_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut first = judge(&store);
    misuse(&mut first);
    store.flush(Duration::from_mins(1)).unwrap();
    let head = first.gate.gate().chain().head().clone();
    drop(first);
    // Two more were handed out; the kill came before the writer did.
    let noted = Noted {
        n: head.n + 2,
        hash: "ab".repeat(32),
    };
    store.note_head(&noted).unwrap();
    drop(store);
    let store = open(folder.path());
    let mut second = judge(&store);
    assert_eq!(
        second.gate.missing().to_string(),
        format!("{} to {}", head.n + 1, head.n + 2)
    );
    misuse(&mut second);
    store.flush(Duration::from_mins(1)).unwrap();
    let row: &DecisionRow = &store.decision_ends(0).unwrap()[0];
    assert!(row.n > noted.n, "no number is given twice");
    drop(second);
    let third = judge(&store);
    assert_eq!(third.gate.missing().count(), 2, "and it is said again");
}

#[test]
fn a_restart_without_loss_goes_on_where_the_chain_ended() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut first = judge(&store);
    misuse(&mut first);
    store.flush(Duration::from_mins(1)).unwrap();
    let head = first.gate.gate().chain().head().clone();
    drop(first);
    let second = judge(&store);
    assert_eq!(second.gate.gate().chain().head(), &head);
    assert_eq!(second.gate.missing().count(), 0);
}

#[test]
fn what_is_held_survives_a_restart_until_its_end_and_a_pending_request_is_denied() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let now = here();
    let restriction = |id: u64, until: u64| {
        json!({"id": id, "action": "block_tool", "user": "ana", "uid": 1000, "agent": "", "server": "npm:x",
            "tool": "send", "rule": "r", "since_ms": 1, "until_ms": until, "ttl_ms": 900_000})
    };
    let pending = json!({"id": 9, "uid": 1000, "run": "r1", "user": "ana", "agent": "a", "server": "npm:x", "tool": "pay",
        "args_digest": "d", "rule": "r", "group": null, "reason": null, "fields": [], "approved_by": null,
        "since_ms": now.wall_ms, "until_ms": now.wall_ms + 60_000});
    for (kind, id, body) in [
        (
            kams_store::Held::Restriction,
            3,
            restriction(3, now.wall_ms + 60_000),
        ),
        (kams_store::Held::Restriction, 4, restriction(4, now.wall_ms - 1)),
        (kams_store::Held::Approval, 9, pending),
    ] {
        store.write(WriteOp::Held {
            kind,
            id,
            body: Some(body.to_string()),
        });
    }
    store.flush(Duration::from_mins(1)).unwrap();
    let judge = judge(&store);
    let standing: Vec<u64> = judge
        .gate
        .gate()
        .restrictions
        .list(now)
        .iter()
        .map(|r| r.id)
        .collect();
    assert_eq!(standing, [3]);
    store.flush(Duration::from_mins(1)).unwrap();
    assert_eq!(store.held(kams_store::Held::Restriction).unwrap().len(), 1);
    assert!(store.held(kams_store::Held::Approval).unwrap().is_empty());
    let told = records(&store, "r1");
    assert_eq!(told.last().unwrap().body.decision, "denied_restart");
    assert_eq!(judge.gate.uid("ana"), Some(1000));
}
