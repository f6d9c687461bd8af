//! What calls add up to: facts of a real session, findings in observe mode, the record of the run and its proof.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::{daemon, desk, findings, list};
use crate::context::Context;

const RULES: &str = "
version: 1
mode: enforce
rules:
- {name: no-shell, match: {on: call, tool: shell}, action: block_call, reason: Shells are not for agents.}
- {name: server-list, match: {on: server_start}, unless: {server: 'npm:*'}, action: block_server}
runs:
  labels: {environment: prod}
  facts:
  - {tool: secret_read}
  - {tool: 'send_*', key: external_send}
  - {tool: customer_enumeration}
  - {tool: customer_export, numeric_keys: [record_count]}
  - {tool: pay, key: payment_submit, arg_keys: [beneficiary_id], numeric_keys: [amount]}
  policies: [chains.json, window.yaml]
approvals: {groups: {security_reviewers: games, payments_reviewers: games}}
";

const WINDOW: &str = "
schemaVersion: '1.0.0'
policyId: pol_window
status: published
version: '1.0.0'
rules:
- ruleId: payments-over-runs
  when: {expression: {'>=': [{var: context.user.tools.payment_submit.calls}, 4]}}
  then: {decision: warn, reason: Four payments in an hour., reasonCodes: [window]}
";

/// Text that only raw arguments hold.
const FREE_TEXT: &str = "kindly wire it before noon";

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("policy::run-of-a-session", run_of_a_session),
        context.with_kams("policy::window-across-runs", window),
        context.with_kams("policy::rules-about-calls-and-starts", calls_and_starts),
    ]
}

/// The three templates as `kams policy generate` writes them, published.
pub(super) fn chains() -> Result<String> {
    let kams = crate::context::programs().join("kams");
    let output = std::process::Command::new(kams)
        .args(["policy", "generate", "tool-chain"])
        .output()?;
    let mut document: Value = serde_json::from_slice(&output.stdout)?;
    document["status"] = json!("published");
    Ok(document.to_string())
}

pub(super) fn start(context: &Context) -> Result<Kams> {
    let chains = chains()?;
    let files = [
        ("policy.yaml", RULES),
        ("chains.json", chains.as_str()),
        ("window.yaml", WINDOW),
    ];
    daemon(context, &files)
}

fn of_rule(all: &[Value], rule: &str) -> usize {
    all.iter().filter(|finding| finding["rule"] == rule).count()
}

fn run_of_a_session(context: &Context) -> Result<()> {
    let kams = start(context)?;
    let stage = Stage::new()?;
    let mut agent = desk(&stage)?;
    agent.call("secret_read", &json!({"path": FREE_TEXT}))?;
    agent.call("send_mail", &json!({"to": "x@example.org", "body": FREE_TEXT}))?;
    for n in 1..=12 {
        let arguments = json!({"beneficiary_id": format!("b-{n}"), "amount": 450, "memo": FREE_TEXT});
        agent.call("pay", &arguments)?;
    }
    agent.call(
        "pay",
        &json!({"beneficiary_id": "b-fails", "amount": 499, "fail": true}),
    )?;

    let (secret, split) = (
        "run-tool-chain-secret-then-external",
        "run-tool-chain-repeated-low-value-actions",
    );
    let all = findings(&kams, "the payments add up", |all| of_rule(all, split) > 0)?;
    ensure!(
        of_rule(&all, secret) > 0,
        "the secret that was sent is not found: {all:#?}"
    );
    for (rule, would) in [(secret, "block_call"), (split, "require_approval")] {
        let one = all
            .iter()
            .find(|finding| finding["rule"] == rule)
            .context("a finding")?;
        ensure!(
            one["would"] == would && one["action"] == "alert" && one["enforced"] == false,
            "on a watched stream nothing is refused, and what would have been is told: {one:#}"
        );
    }

    let runs = kams.ask_until(&["runs", "list"], "the last call has ended", |runs| {
        list(runs, "runs")
            .iter()
            .any(|run| run["state"] == "live" && run["in_flight"] == 0)
    })?;
    let living = list(&runs, "runs")
        .iter()
        .find(|run| run["state"] == "live")
        .context("a run")?;
    ensure!(living["agent"] == "line-agent", "{living}");
    let run = living["run"].as_str().context("its name")?.to_owned();

    let checkpoint = kams.ask(&["runs", "checkpoint", &run])?;
    let matched: Vec<_> = list(&checkpoint["checkpoint"], "matches")
        .iter()
        .map(|hit| hit["rule"].clone())
        .collect();
    ensure!(
        checkpoint["checkpoint"]["decision"] == "block"
            && matched.contains(&json!(secret))
            && matched.contains(&json!(split)),
        "on demand: {checkpoint:#}"
    );

    let shown = kams.ask(&["runs", "show", &run])?;
    let records = list(&shown, "records");
    let at = |rule: &str| {
        let of = |record: &&Value| record["rule"] == rule && record["kind"] == "checkpoint";
        records.iter().find(of).context("a record of the rule")
    };
    let payments = at(split)?;
    ensure!(
        payments["decision"] == "require_approval"
            && payments["enforced"] == false
            && payments["reasonCodes"] == json!(["run_chain_repeated_low_value"])
            && payments["evaluatedFields"]["context.run.tools.payment_submit.calls"] == 10
            && payments["evaluatedFields"]["context.run.tools.payment_submit.numericSums.amount"] == 4500,
        "the record of the decision: {payments:#}"
    );
    ensure!(
        at(secret)?["tool"] == "send_mail",
        "the send is what would be stopped"
    );
    let metrics = kams.metrics()?;
    let name = format!("kams_decisions_total{{decision=\"require_approval\",rule=\"{split}\"}}");
    ensure!(
        metrics.get(&name).is_some_and(|count| *count >= 1.0),
        "{name} is missing"
    );

    agent.close()?;
    kams.ask_until(&["runs", "list"], "the end of the run", |runs| {
        list(runs, "runs")
            .iter()
            .any(|one| one["run"] == run.as_str() && one["state"] == "ended")
    })?;
    let export = kams.kams(&["runs", "export", &run])?.stdout;
    let text = String::from_utf8(export)?;
    ensure!(
        text.lines()
            .last()
            .is_some_and(|line| line.contains("\"kind\":\"run_end\"")),
        "the export has no final state: {text}"
    );
    for raw in [FREE_TEXT, "x@example.org", "memo", "kindly"] {
        ensure!(!text.contains(raw), "raw text in the export: {raw}");
        ensure!(!shown.to_string().contains(raw), "raw text in the records: {raw}");
    }
    verified(&kams, &stage, &text)?;
    // A failed call leaves no fact.
    ensure!(!text.contains("b-fails"), "the failed payment is on record");
    Ok(())
}

/// The export holds, and a changed or a cut one does not.
pub(super) fn verified(kams: &Kams, stage: &Stage, text: &str) -> Result<()> {
    let verify = |name: &str, text: &str, head: Option<&str>| -> Result<Option<i32>> {
        let file = stage.write(name, text)?;
        let file = file.to_string_lossy();
        let mut words = vec!["runs", "verify", &file];
        words.extend(head.into_iter().flat_map(|head| ["--head", head]));
        Ok(kams.kams(&words)?.status.code())
    };
    let lines: Vec<&str> = text.lines().collect();
    let last: Value = serde_json::from_str(lines.last().context("a record")?)?;
    let head = format!("{}:{}", last["runN"], last["hash"].as_str().context("a hash")?);
    ensure!(
        verify("whole", text, None)? == Some(0),
        "a whole export is refused: {text}"
    );
    ensure!(
        verify("whole", text, Some(&head))? == Some(0),
        "the head {head} is not that of the export"
    );
    // One decision is another: a refusal that passed, or an approval by somebody else.
    let changed = |from: &str, to: &str| Some(text.replacen(from, to, 1)).filter(|tampered| tampered != text);
    let tampered = changed("\"decision\":\"block\"", "\"decision\":\"allow\"")
        .or_else(|| changed("\"approver\":\"nobody\"", "\"approver\":\"somebody\""))
        .context("nothing to change")?;
    ensure!(
        verify("tampered", &tampered, None)? == Some(1),
        "a changed export passes"
    );
    let cut = lines[..lines.len() - 1].join("\n");
    ensure!(
        verify("cut", &cut, Some(&head))? == Some(1),
        "a cut export passes"
    );
    let hole = [&lines[..2], &lines[3..]].concat().join("\n");
    ensure!(
        verify("hole", &hole, None)? == Some(1),
        "an export with a hole passes"
    );
    Ok(())
}

/// A chain that is split over two runs of one user.
fn window(context: &Context) -> Result<()> {
    let kams = start(context)?;
    let rule = "payments-over-runs";
    let pay = |from: u64| -> Result<()> {
        let stage = Stage::new()?;
        let mut agent = desk(&stage)?;
        for n in from..from + 2 {
            agent.call("pay", &json!({"beneficiary_id": format!("b-{n}"), "amount": 1}))?;
        }
        agent.close()
    };
    pay(1)?;
    let ended = |count: usize| {
        move |runs: &Value| {
            list(runs, "runs")
                .iter()
                .filter(|run| run["state"] == "ended")
                .count()
                == count
        }
    };
    kams.ask_until(&["runs", "list"], "the end of the first run", ended(1))?;
    ensure!(
        of_rule(&findings(&kams, "any", |_| true)?, rule) == 0,
        "too early"
    );
    pay(3)?;
    kams.ask_until(&["runs", "list"], "the end of the second run", ended(2))?;
    let all = findings(&kams, "the window is told", |all| of_rule(all, rule) == 1)?;
    let one = all
        .iter()
        .find(|finding| finding["rule"] == rule)
        .context("a finding")?;
    ensure!(one["action"] == "warn" && one["tool"] == "pay", "{one:#}");
    Ok(())
}

fn calls_and_starts(context: &Context) -> Result<()> {
    let kams = start(context)?;
    let stage = Stage::new()?;
    let mut agent = desk(&stage)?;
    agent.call("shell", &json!({"line": FREE_TEXT}))?;
    agent.call("read", &json!({}))?;
    agent.close()?;
    kams.wait(0, "the end of the server", |events| {
        events.iter().any(|event| event.event == "server_gone")
    })?;
    let output = kams.kams(&["events", "-o", "json", "--type", "decision"])?;
    let text = String::from_utf8(output.stdout)?;
    let told: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let short: Vec<_> = told
        .iter()
        .map(|event| {
            [&event["rule"], &event["tool"], &event["would"]].map(|word| word.as_str().unwrap_or("-"))
        })
        .collect();
    ensure!(
        short
            == [
                ["server-list", "-", "block_server"],
                ["no-shell", "shell", "block_call"]
            ],
        "{told:#?}"
    );
    ensure!(!text.contains(FREE_TEXT), "raw text in an event");
    Ok(())
}
