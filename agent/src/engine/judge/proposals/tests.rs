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

#[test]
fn a_retry_under_an_idempotency_key_counts_once_and_other_payments_do_not_hide_behind_it() {
    let pay = |id: u64, amount: u64, key: &str, meta: bool| {
        let mut params = json!({"name": "pay", "arguments": {"beneficiary_id": "b-1", "amount": amount}});
        let place = if meta { "_meta" } else { "arguments" };
        params[place]["idempotencyKey"] = json!(key);
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let session = |make: &dyn Fn(u64) -> Value| -> String {
        (1..=60)
            .map(|id| line(2 * id, true, &make(id)) + &line(2 * id + 1, false, &answer(id, false)))
            .collect()
    };
    for meta in [false, true] {
        let retries = session(&|id| pay(id, 450, "order-7", meta));
        assert!(chains(&retries).is_empty(), "one payment, sent again and again");
        let distinct = session(&|id| pay(id, 450, &format!("order-{id}"), meta));
        assert_eq!(chains(&distinct).len(), 1);
        let hidden = session(&|id| pay(id, 400 + id, "order-7", meta));
        assert_eq!(chains(&hidden).len(), 1, "other amounts are other payments");
    }
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
    assert_eq!(second.gate.missing().count(), 0);
    store.flush(Duration::from_mins(1)).unwrap();
    let last = &store.decision_ends(0).unwrap()[0];
    let last: Record = serde_json::from_str(&last.record).unwrap();
    assert_eq!((last.n, &last.prev), (head.n + 1, &head.hash));
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
    let told: Vec<&str> = told.iter().map(|record| record.body.decision.as_str()).collect();
    assert_eq!(told, ["denied_restart", "cut_off_by_restart"]);
    assert_eq!(judge.gate.uid("ana"), Some(1000));
}

#[test]
fn a_restart_ends_what_was_open_and_the_arc_stays_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut first = judge(&store);
    let run = misuse(&mut first);
    store.flush(Duration::from_mins(1)).unwrap();
    drop(first);
    let now = here();
    let pending = json!({"id": 9, "uid": 1000, "run": run, "user": "user1000", "agent": "claude", "server": "npm:x",
        "tool": "pay", "args_digest": "d", "rule": "r", "group": null, "reason": null, "fields": [],
        "approved_by": null, "since_ms": now.wall_ms, "until_ms": now.wall_ms + 60_000});
    store.write(WriteOp::Held {
        kind: kams_store::Held::Approval,
        id: 9,
        body: Some(pending.to_string()),
    });
    store.flush(Duration::from_mins(1)).unwrap();
    drop(judge(&store));
    store.flush(Duration::from_mins(1)).unwrap();
    let kept = records(&store, &run);
    let last: Vec<&str> = kept
        .iter()
        .rev()
        .take(2)
        .map(|record| record.body.decision.as_str())
        .collect();
    assert_eq!(last, ["cut_off_by_restart", "denied_restart"]);
    verify(&export_run("user1000", &run, &kept, here()), None).unwrap();
    let count = kept.len();
    drop(judge(&store));
    store.flush(Duration::from_mins(1)).unwrap();
    assert_eq!(records(&store, &run).len(), count, "an ended run is ended once");
}

#[test]
fn an_exception_from_outside_counts_until_it_is_removed_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let rules = "version: 1\nrules: [{name: tell, match: {kind: EGRESS_SENSITIVE}, action: block_call}]";
    let policy = Arc::new(Policy::load("p.yaml", rules, &kams_policy::NoFiles).unwrap());
    let start = || Judge::new(Arc::clone(&policy), Salt::new(b"t"), Some(Arc::clone(&store)));
    let leak = |judge: &mut Judge, agent: u32| {
        let mut talk = Talk::new(judge, 1000, agent, 1, "npm:x");
        let mut sunk = Sunk::default();
        let key = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9".repeat(2));
        let params = json!({"name": "send", "arguments": {"text": key}});
        talk.ask(judge, &mut sunk, "tools/call", &params, &json!({"content": []}));
        sunk.records().remove(0)
    };
    let mut judge = start();
    let before = leak(&mut judge, 7);
    assert_eq!(before.would.as_deref(), Some("block_call"));
    let text = json!({"fingerprint": before.fingerprint, "owner": "ana", "reason": "a test key", "expires": "2100-01-01"});
    let mut sunk = Sunk::default();
    let add = |gate: &mut kams_policy::Gate| gate.add_exception(&text.to_string(), "root", here());
    let kept = judge.gate.order(here(), &mut sunk, add).unwrap();
    let excepted = leak(&mut judge, 8);
    assert_eq!(
        (excepted.would.as_deref(), excepted.rule.as_deref()),
        (None, None)
    );
    store.flush(Duration::from_mins(1)).unwrap();
    drop(judge);
    let mut judge = start();
    assert_eq!(leak(&mut judge, 9).would, None, "it survives a restart");
    let removed = judge.gate.order(here(), &mut sunk, |gate| {
        gate.remove_exception(kept.id, "root", here())
    });
    assert!(removed.is_some());
    assert_eq!(leak(&mut judge, 10).would.as_deref(), Some("block_call"));
    store.flush(Duration::from_mins(1)).unwrap();
    assert!(store.held(kams_store::Held::Exception).unwrap().is_empty());
}

#[test]
fn rules_about_starts_and_calls_are_told_as_events() {
    let rules = "
version: 1
rules:
  - name: ci-server-list
    match: {on: [server_start, call], user: 'user*'}
    unless: {server: 'npm:@corp/*'}
    action: block_server
    reason: This server is not on the list.
";
    let policy = Arc::new(Policy::load("p.yaml", rules, &kams_policy::NoFiles).unwrap());
    let mut judge = Judge::new(policy, Salt::new(b"t"), None);
    let mut sunk = Sunk::default();
    for (id, server) in [(1, "npm:@corp/mail"), (2, "npm:stranger")] {
        let mut talk = Talk::new(&mut judge, 1000, 7, id, server);
        for tool in ["read", "send"] {
            let params = json!({"name": tool, "arguments": {}});
            talk.ask(
                &mut judge,
                &mut sunk,
                "tools/call",
                &params,
                &json!({"content": []}),
            );
        }
    }
    let told: Vec<_> = sunk
        .events
        .iter()
        .filter(|event| event.event == kams_export::view::EventKind::Decision)
        .map(|event| {
            (
                event.server.as_deref(),
                event.tool.as_deref(),
                event.would.as_deref(),
            )
        })
        .collect();
    let would = Some("block_server");
    assert_eq!(
        told,
        [
            (Some("npm:stranger"), None, would),
            (Some("npm:stranger"), Some("read"), would),
            (Some("npm:stranger"), Some("send"), would)
        ]
    );
}
