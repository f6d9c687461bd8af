//! Calls that are refused, or held for a person, behind a relay (`kams wrap`) on a live daemon.

use std::os::unix::process::CommandExt;
use std::process::Output;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::desk::Desk;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::{daemon, list, runs};
use crate::context::{Context, DESK_SERVER, LINE_AGENT, programs};

/// A user that every Debian has, and whom nothing belongs to.
const NOBODY: u32 = 65_534;
/// A group that every Debian has: `games`.
const GAMES: u32 = 60;

const RULES: &str = "
version: 1
mode: enforce
rules:
- {name: ask-first, match: {on: call, tool: 'wire_*'}, action: require_approval, approver_group: reviewers, reason: Money leaves.}
- {name: never, match: {on: call, tool: shred}, action: block_tool, ttl: 1h, reason: Nothing is shredded here.}
runs:
  labels: {environment: prod}
  facts:
  - {tool: secret_read}
  - {tool: 'send_*', key: external_send}
  - {tool: customer_enumeration}
  - {tool: customer_export, numeric_keys: [record_count]}
  - {tool: pay, key: payment_submit, arg_keys: [beneficiary_id], numeric_keys: [amount]}
  policies: [chains.json]
approvals: {groups: {reviewers: games, security_reviewers: games, payments_reviewers: games}}
";

/// Text that only raw arguments hold.
const FREE_TEXT: &str = "kindly wire it before noon";

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("policy::approvals", approvals),
        context.with_kams("policy::restart-while-a-call-is-held", restart),
        context.with_kams("policy::refused-calls", refused),
    ]
}

fn start(context: &Context) -> Result<Kams> {
    let chains = runs::chains()?;
    daemon(context, &[("policy.yaml", RULES), ("chains.json", &chains)])
}

/// A session whose server stands behind a relay.
fn relayed(kams: &Kams, stage: &Stage) -> Result<Desk> {
    let program = programs().join("kams");
    let relays = kams.folder().join("relay.sock");
    let words = [
        &program.to_string_lossy(),
        "wrap",
        "--relays",
        &relays.to_string_lossy(),
        "--",
        DESK_SERVER,
    ];
    Desk::open_words(stage, LINE_AGENT, &words, None)
}

/// The text of a result, and whether it is an error.
fn text(result: &Value) -> (bool, &str) {
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    (result["isError"] == true, text)
}

/// `kams approvals OP ID` by nobody, as a member of this group alone.
fn order(kams: &Kams, program: &std::path::Path, op: &str, id: u64, gid: u32) -> Result<Output> {
    let mut command = std::process::Command::new(program);
    kams.aim(&mut command);
    Ok(command
        .args(["approvals", op, &id.to_string()])
        .uid(NOBODY)
        .gid(gid)
        .output()?)
}

fn says(output: &Output, status: i32, word: &str) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(status) && said.contains(word),
        "expected {status} and `{word}`: {output:?}"
    );
    Ok(())
}

/// The one request in this state; waits for it.
fn request(kams: &Kams, state: &str) -> Result<Value> {
    let of = |answer: &Value| {
        list(answer, "approvals")
            .iter()
            .find(|one| one["state"] == state)
            .cloned()
    };
    let answer = kams.ask_until(&["approvals", "list"], state, |answer| of(answer).is_some())?;
    of(&answer).context("a request")
}

/// A copy of the program that everybody can reach.
fn shared_program(stage: &Stage) -> Result<std::path::PathBuf> {
    let program = stage.path("kams");
    std::fs::copy(programs().join("kams"), &program)?;
    std::fs::set_permissions(
        stage.path(""),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )?;
    Ok(program)
}

fn approvals(context: &Context) -> Result<()> {
    let kams = start(context)?;
    let stage = Stage::new()?;
    let program = shared_program(&stage)?;
    let mut agent = relayed(&kams, &stage)?;
    let mut other = super::desk(&stage)?;
    let wire = json!({"to": "b-1", "note": FREE_TEXT});
    ensure!(
        text(&agent.call("read", &json!({}))?) == (false, "done"),
        "an ordinary call"
    );

    let (first, result) = std::thread::scope(|scope| -> Result<(Value, Value)> {
        let call = scope.spawn(|| agent.call("wire_out", &wire));
        let held = request(&kams, "pending")?;
        let id = held["id"].as_u64().context("a number")?;
        ensure!(
            held["tool"] == "wire_out"
                && held["rule"] == "ask-first"
                && held["group"] == "reviewers"
                && held["reason"] == "Money leaves."
                && !held.to_string().contains(FREE_TEXT),
            "what the approver sees: {held:#}"
        );
        says(
            &kams.kams(&["approvals", "approve", &id.to_string()])?,
            2,
            "your own run",
        )?;
        says(&order(&kams, &program, "approve", id, NOBODY)?, 2, "`games`")?;
        let own = format!(
            "{} --socket {} approvals approve {id}",
            programs().join("kams").display(),
            kams.socket().display()
        );
        let (status, said) = other.shell(&own)?;
        ensure!(
            status == 2 && said.contains("AI agent's process tree"),
            "an agent approves: {said}"
        );
        ensure!(!call.is_finished(), "the call passed before anybody approved");
        says(
            &order(&kams, &program, "approve", id, GAMES)?,
            0,
            "approved, for one call",
        )?;
        says(&order(&kams, &program, "approve", id, GAMES)?, 2, "already")?;
        let result = call
            .join()
            .map_err(|_panic| anyhow::anyhow!("the call panicked"))??;
        Ok((held, result))
    })?;
    ensure!(text(&result) == (false, "done"), "an approved call: {result}");
    let used = request(&kams, "used")?;
    ensure!(used["by"] == "nobody" && used["id"] == first["id"], "{used:#}");

    // Once: the same call waits again.
    let result = std::thread::scope(|scope| -> Result<Value> {
        let call = scope.spawn(|| agent.call("wire_out", &wire));
        let id = request(&kams, "pending")?["id"].as_u64().context("a number")?;
        says(&order(&kams, &program, "deny", id, GAMES)?, 0, "denied")?;
        call.join()
            .map_err(|_panic| anyhow::anyhow!("the call panicked"))?
    })?;
    let (failed, why) = text(&result);
    ensure!(
        failed && why.contains("ask-first") && why.contains("denied"),
        "a denied call: {result}"
    );

    // The client gives up.
    let id = agent.post(
        "tools/call",
        &json!({"name": "wire_out", "arguments": {"to": "beneficiary-two"}}),
    )?;
    request(&kams, "pending")?;
    agent
        .line(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}))?;
    request(&kams, "cancelled")?;
    ensure!(
        text(&agent.call("read", &json!({}))?) == (false, "done"),
        "calls after a cancelled one"
    );

    agent.close()?;
    let run = used["run"].as_str().context("its run")?;
    kams.ask_until(&["runs", "list"], "the end of the run", |runs| {
        list(runs, "runs")
            .iter()
            .any(|one| one["run"] == run && one["state"] == "ended")
    })?;
    let shown = kams.ask(&["runs", "show", run])?;
    let arc: Vec<_> = list(&shown, "records")
        .iter()
        .filter(|record| record["kind"] == "approval")
        .map(|record| {
            (
                record["decision"].as_str().unwrap_or("-"),
                record["approver"].as_str().unwrap_or("-"),
            )
        })
        .collect();
    ensure!(
        arc == [
            ("pending", "-"),
            ("approved", "nobody"),
            ("used", "nobody"),
            ("pending", "-"),
            ("denied", "nobody"),
            ("pending", "-"),
            ("cancelled", "-")
        ],
        "the arc of the run: {arc:?}"
    );
    let text = String::from_utf8(kams.kams(&["runs", "export", run])?.stdout)?;
    ensure!(
        !text.contains(FREE_TEXT) && !text.contains("beneficiary-two"),
        "raw arguments in the export"
    );
    runs::verified(&kams, &stage, &text)
}

/// The call never passes, the request is denied, and both are on record.
fn restart(context: &Context) -> Result<()> {
    let kams = start(context)?;
    let stage = Stage::new()?;
    let mut agent = relayed(&kams, &stage)?;
    let (kams, held, result) = std::thread::scope(|scope| -> Result<(Kams, Value, Value)> {
        let call = scope.spawn(|| agent.call("wire_out", &json!({"note": FREE_TEXT})));
        let held = request(&kams, "pending")?;
        let kams = kams.restart()?;
        let result = call
            .join()
            .map_err(|_panic| anyhow::anyhow!("the call panicked"))??;
        Ok((kams, held, result))
    })?;
    ensure!(
        text(&result).0 && text(&result).1.contains("kamsd stopped"),
        "a call that nobody approved, and whose daemon went, is refused then: {result}"
    );
    let denied = request(&kams, "denied_restart")?;
    ensure!(
        denied["id"] == held["id"] && denied["run"] == held["run"],
        "{denied:#}"
    );
    let shown = kams.ask(&["runs", "show", held["run"].as_str().context("its run")?])?;
    let last: Vec<_> = list(&shown, "records")
        .iter()
        .rev()
        .take(2)
        .map(|record| record["decision"].clone())
        .collect();
    ensure!(last == ["cut_off_by_restart", "denied_restart"], "{shown:#}");
    // The session goes on under the new daemon, and its rules hold.
    let began = std::time::Instant::now();
    let live = |kams: &Kams| -> Result<bool> {
        let listed = kams.ask(&["runs", "list"])?;
        Ok(list(&listed, "runs").iter().any(|run| run["state"] == "live"))
    };
    while !live(&kams)? {
        ensure!(
            began.elapsed() < std::time::Duration::from_secs(20),
            "the relay does not come back\n{}",
            kams.log()
        );
        let result = agent.call("read", &json!({}))?;
        ensure!(text(&result) == (false, "done"), "an ordinary call: {result}");
        // The relay tries again in its own time.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let result = std::thread::scope(|scope| -> Result<Value> {
        let call = scope.spawn(|| agent.call("wire_out", &json!({"note": FREE_TEXT})));
        let id = request(&kams, "pending")?["id"].as_u64().context("a number")?;
        let deny = kams.kams(&["approvals", "deny", &id.to_string()])?;
        ensure!(deny.status.success(), "one's own call may be denied: {deny:?}");
        call.join()
            .map_err(|_panic| anyhow::anyhow!("the call panicked"))?
    })?;
    ensure!(text(&result).0, "{result}");
    agent.close()
}

fn refused(context: &Context) -> Result<()> {
    let kams = start(context)?;
    let stage = Stage::new()?;
    let mut agent = relayed(&kams, &stage)?;
    ensure!(
        text(&agent.call("secret_read", &json!({}))?) == (false, "done"),
        "the secret is read"
    );
    let sent = agent.call("send_mail", &json!({"body": FREE_TEXT}))?;
    let (failed, why) = text(&sent);
    ensure!(
        failed && why.contains("run-tool-chain-secret-then-external"),
        "a secret was sent: {sent}"
    );
    let findings = super::findings(&kams, "the refusal", |all| {
        all.iter().any(|one| one["kind"] == "RUN_CHAIN")
    })?;
    let chain = findings
        .iter()
        .find(|one| one["kind"] == "RUN_CHAIN")
        .context("a finding")?;
    ensure!(
        chain["enforced"] == true && chain["action"] == "block_call" && chain["would"].is_null(),
        "{chain:#}"
    );

    ensure!(
        text(&agent.call("shred", &json!({}))?).0,
        "a blocked tool is called"
    );
    let show = ["restrictions", "list"];
    let standing = kams.ask(&show)?;
    let one = list(&standing, "restrictions")
        .first()
        .context("no restriction")?
        .clone();
    ensure!(one["action"] == "block_tool" && one["tool"] == "shred", "{one}");
    agent.close()?;
    let kams = kams.restart()?;
    ensure!(
        list(&kams.ask(&show)?, "restrictions").first() == Some(&one),
        "a restart forgets a restriction"
    );
    let mut agent = relayed(&kams, &stage)?;
    let (failed, why) = {
        let result = agent.call("shred", &json!({}))?;
        let (failed, why) = text(&result);
        (failed, why.to_owned())
    };
    ensure!(
        failed && why.contains("kams restrictions lift"),
        "what the person can do is not said: {why}"
    );
    agent.close()
}
