//! What outlives the daemon: records, restrictions, requests for approval.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{daemon, desk, findings, list, one_call, runs};
use crate::context::Context;

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("policy::killed-before-the-record", killed),
        context.with_kams("policy::restart-with-a-pending-approval", pending),
        context.with_kams("policy::restrictions", restrictions),
    ]
}

/// Somebody who works on the database file of a daemon.
struct Database(Child);

impl Database {
    /// Runs one statement; holds its transaction until [`Database::let_go`].
    fn begin(kams: &Kams, statement: &str) -> Result<Self> {
        const WORK: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.execute('BEGIN IMMEDIATE')
db.execute(sys.argv[2])
print('held', flush=True)
sys.stdin.readline()
db.execute('COMMIT')";
        let mut child = Command::new("python3")
            .args(["-c", WORK])
            .arg(kams.folder().join("state/kams.db"))
            .arg(statement)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("piped")?).read_line(&mut line)?;
        ensure!(line == "held\n", "the statement failed");
        Ok(Self(child))
    }

    fn let_go(mut self) -> Result<()> {
        writeln!(self.0.stdin.take().context("piped")?)?;
        ensure!(self.0.wait()?.success(), "the transaction failed");
        Ok(())
    }
}

fn misuse(kams: &Kams) -> Result<()> {
    let stage = Stage::new()?;
    let before = findings(kams, "any", |_| true)?.len();
    let mut agent = desk(&stage)?;
    agent.call("secret_read", &json!({}))?;
    agent.call("send_mail", &json!({}))?;
    findings(kams, "the secret that was sent", |all| all.len() > before)?;
    agent.close()
}

fn newest(kams: &Kams) -> Result<u64> {
    kams.ask(&["runs", "list"])?["head"]["n"]
        .as_u64()
        .context("a head")
}

fn killed(context: &Context) -> Result<()> {
    let mut kams = runs::start(context)?;
    misuse(&kams)?;
    kams.ask_until(&["runs", "list"], "the end of the run", |runs| {
        list(runs, "runs").iter().any(|run| run["state"] == "ended")
    })?;
    let listed = kams.ask(&["runs", "list"])?;
    let run = list(&listed, "runs")[0]["run"]
        .as_str()
        .context("a run")?
        .to_owned();
    // Waits for the disk.
    let export = kams.kams(&["runs", "export", &run])?.stdout;
    let on_disk = newest(&kams)?;

    // From here on nothing reaches the disk: the records of what is decided wait in memory.
    let lock = Database::begin(&kams, "DELETE FROM decisions WHERE n < 0")?;
    misuse(&kams)?;
    let made = newest(&kams)?;
    ensure!(made > on_disk, "nothing was decided");
    let status = kams.end_by(Signal::KILL)?;
    ensure!(!status.success(), "{status}");
    lock.let_go()?;

    let kams = kams.restart()?;
    let listed = kams.ask(&["runs", "list"])?;
    ensure!(
        listed["missing"] == json!([[on_disk + 1, made]]),
        "{} to {made} are missing: {listed:#}",
        on_disk + 1
    );
    let status = kams.ask(&["status"])?;
    let numbers = format!("{} to {made}", on_disk + 1);
    ensure!(
        list(&status, "notes")
            .iter()
            .any(|note| note.to_string().contains(&numbers)),
        "status is silent: {status:#}"
    );
    ensure!(kams.log().contains(&numbers), "the log is silent");
    ensure!(newest(&kams)? >= made, "numbers are given twice");
    ensure!(
        kams.kams(&["runs", "export", &run])?
            .stdout
            .split(|byte| *byte == b'\n')
            .skip(1)
            .collect::<Vec<_>>()
            == export.split(|byte| *byte == b'\n').skip(1).collect::<Vec<_>>(),
        "the run that was on disk is another one now"
    );
    misuse(&kams)?;
    let after = kams.ask(&["runs", "list"])?;
    let new = list(&after, "runs").last().context("a run")?["run"]
        .as_str()
        .context("its name")?
        .to_owned();
    let text = String::from_utf8(kams.kams(&["runs", "export", &new])?.stdout)?;
    runs::verified(&kams, &Stage::new()?, &text)
}

/// A request that waited when the daemon ended. (Where no relay holds a call the request is put into the store by hand.)
fn pending(context: &Context) -> Result<()> {
    let kams = runs::start(context)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let now = u64::try_from(now.as_millis())?;
    let body = json!({"id": 9, "uid": 0, "run": "run-of-before.1", "user": "root", "agent": "line-agent", "server": "npm:pay",
        "tool": "pay", "args_digest": "d", "rule": "split", "group": "payments_reviewers", "reason": "Too many.",
        "fields": [["context.run.tools.payment_submit.calls", 12]], "approved_by": null,
        "since_ms": now, "until_ms": now + 300_000});
    Database::begin(
        &kams,
        &format!("INSERT INTO held VALUES ('approval', 9, '{body}')"),
    )?
    .let_go()?;
    let kams = kams.restart()?;
    let listed = kams.ask(&["approvals", "list"])?;
    let one = list(&listed, "approvals")
        .first()
        .context("the request is forgotten")?;
    ensure!(one["state"] == "denied_restart", "{one:#}");
    let late = kams.kams(&["approvals", "approve", "9"])?;
    ensure!(late.status.code() == Some(2), "a denied request was approved");
    let shown = kams.ask(&["runs", "show", "run-of-before.1"])?;
    let record = list(&shown, "records").first().context("no record")?;
    ensure!(
        record["kind"] == "approval" && record["decision"] == "denied_restart" && record["reference"] == 9,
        "{record:#}"
    );
    let kams = kams.restart()?;
    let again = kams.ask(&["runs", "show", "run-of-before.1"])?;
    ensure!(
        list(&again, "records").len() == list(&shown, "records").len(),
        "denied twice: {again:#}"
    );
    Ok(())
}

const CUT_OFF: &str = "
version: 1
mode: enforce
rules:
- {name: for-a-while, match: {kind: EGRESS_SENSITIVE, tool: short}, action: block_egress, ttl: 1s}
- {name: for-good, match: {kind: EGRESS_SENSITIVE, tool: long}, action: block_egress}
- {name: for-an-hour, match: {kind: EGRESS_SENSITIVE, tool: hour}, action: block_egress, ttl: 1h}
";

fn standing(answer: &Value) -> Vec<&str> {
    list(answer, "restrictions")
        .iter()
        .filter_map(|one| one["rule"].as_str())
        .collect()
}

/// The one restriction that needs no relay.
fn restrictions(context: &Context) -> Result<()> {
    let kams = daemon(context, &[("policy.yaml", CUT_OFF)])?;
    let leak = |tool: &str| -> Result<()> {
        let key = kams_tests::planted::Planted::default().new_value("github_token", "an argument")?;
        one_call(&kams, tool, &json!({"text": key}))
    };
    let show = ["restrictions", "list"];
    leak("short")?;
    let short = kams.ask_until(&show, "the restriction", |answer| {
        standing(answer) == ["for-a-while"]
    })?;
    let one = &list(&short, "restrictions")[0];
    ensure!(
        one["action"] == "block_egress" && one["until_ms"].as_u64().is_some(),
        "{one}"
    );
    kams.ask_until(&show, "its end", |answer| standing(answer).is_empty())?;
    kams.metric_until("kams_restrictions{action=\"block_egress\"}", 0.0)?;
    leak("hour")?;
    let hour = kams.ask_until(&show, "the restriction", |answer| {
        standing(answer) == ["for-an-hour"]
    })?;

    let kams = kams.restart()?;
    let after = kams.ask(&show)?;
    ensure!(
        after == hour,
        "a restart changes what is in force: {hour} {after}"
    );
    let id = list(&after, "restrictions")[0]["id"].to_string();
    let lifted = kams.kams(&["restrictions", "lift", &id])?;
    ensure!(
        lifted.status.success(),
        "{}",
        String::from_utf8_lossy(&lifted.stderr)
    );
    ensure!(standing(&kams.ask(&show)?).is_empty(), "it stands");
    let again = kams.kams(&["restrictions", "lift", &id])?;
    ensure!(again.status.code() == Some(2), "lifted twice");
    let kams = kams.restart()?;
    ensure!(standing(&kams.ask(&show)?).is_empty(), "a restart brings it back");
    Ok(())
}
