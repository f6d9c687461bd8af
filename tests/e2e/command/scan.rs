//! `kams scan`: configured servers, what the daemon knows of them, and what they say when they are started.

use std::os::unix::process::CommandExt;
use std::process::Output;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::{HARMLESS, POISON, SERVER, daemon, list, listed, tools};
use crate::context::{Context, DESK_SERVER, programs};

/// A user that every Debian has, and whom nothing belongs to.
const NOBODY: u32 = 65_534;

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("command::scan", scan),
        context.with_kams("command::scan-start-and-then-administer", start_then_administer),
    ]
}

/// A project that configures the server.
fn project(stage: &Stage) -> Result<String> {
    let servers = json!({"mcpServers": {"desk": {"command": DESK_SERVER, "args": []}}});
    stage.write("project/.mcp.json", serde_json::to_string_pretty(&servers)?)?;
    Ok(stage.path("project").to_string_lossy().into_owned())
}

/// Findings of a report in JSON that are about our server.
fn ours(output: &Output) -> Result<Vec<Value>> {
    let answer: Value = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    Ok(list(&answer, "findings")
        .iter()
        .filter(|one| one["server"] == SERVER)
        .cloned()
        .collect())
}

fn scanned(kams: &Kams, stage: &Stage, words: &[&str]) -> Result<Output> {
    let mut command = std::process::Command::new(programs().join("kams"));
    kams.aim(&mut command);
    Ok(command
        .arg("scan")
        .args(words)
        .env("DESK_TOOLS", stage.path("tools.json"))
        .output()?)
}

fn scan(context: &Context) -> Result<()> {
    let kams = daemon(context)?;
    let stage = Stage::new()?;
    let project = project(&stage)?;
    let poisoned = tools(&stage, POISON)?;
    let run = |words: &[&str]| scanned(&kams, &stage, &[&[project.as_str()], words].concat());

    // Nothing is known yet, and nothing is started.
    let static_only = run(&["--format", "json", "--fail-on", "low"])?;
    ensure!(
        static_only.status.code() == Some(0) && ours(&static_only)?.is_empty(),
        "{static_only:?}"
    );
    let answer: Value = serde_json::from_slice(&static_only.stdout)?;
    let declared = list(&answer, "servers")
        .iter()
        .find(|one| one["identity"] == SERVER)
        .context("the server")?;
    ensure!(
        declared["name"] == "desk"
            && declared["line"] == 3
            && declared["file"]
                .as_str()
                .is_some_and(|file| file.ends_with("project/.mcp.json")),
        "{declared:#}"
    );

    // Started, it shows what it offers.
    let started = run(&["--start", "--format", "json", "--fail-on", "high"])?;
    let found = ours(&started)?;
    ensure!(
        started.status.code() == Some(1) && found.len() == 1,
        "{started:?}"
    );
    ensure!(
        found[0]["tool"] == "add" && found[0]["line"] == 3 && found[0]["kind"] == "INTEGRITY_INJECTION",
        "{:#}",
        found[0]
    );
    let below = run(&["--start", "--format", "json"])?;
    ensure!(
        below.status.code() == Some(0),
        "without --fail-on a finding is no failure: {below:?}"
    );

    // Without a start: from what the daemon saw in a session.
    listed(&kams, &stage, &poisoned)?;
    let known = run(&["--format", "json", "--fail-on", "high"])?;
    ensure!(
        known.status.code() == Some(1) && ours(&known)?.len() == 1,
        "{known:?}"
    );
    let sarif = run(&["--format", "sarif"])?;
    let report: Value = serde_json::from_slice(&sarif.stdout)?;
    let results = report["runs"][0]["results"].as_array().context("results")?;
    let place = |one: &Value| one["locations"][0]["physicalLocation"]["region"]["startLine"].clone();
    ensure!(
        report["version"] == "2.1.0" && results.iter().any(|one| place(one) == 3),
        "{report:#}"
    );
    let table = String::from_utf8(run(&[])?.stdout)?;
    ensure!(
        table.contains("!! ") && table.contains(SERVER) && table.contains("DECLARED AT"),
        "{table}"
    );

    // Whose files: root's word, and nobody else's.
    let all = scanned(&kams, &stage, &["--all", "--format", "json"])?;
    ensure!(all.status.code() == Some(0), "{all:?}");
    let own = run(&["--user", "root", "--format", "json"])?;
    ensure!(own.status.code() == Some(0) && ours(&own)?.len() == 1, "{own:?}");
    for words in [
        &["--user", "no-such-user"][..],
        &["--all", "--user", "root"],
        &["--all", "--start"],
        &["/no/such/project"],
        &["--format", "yaml"],
    ] {
        let output = scanned(&kams, &stage, words)?;
        ensure!(output.status.code() == Some(2), "scan {words:?}: {output:?}");
    }
    let program = stage.path("kams");
    std::fs::copy(programs().join("kams"), &program)?;
    std::fs::set_permissions(
        stage.path(""),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )?;
    for words in [&["--all"][..], &["--user", "root"]] {
        let output = std::process::Command::new(&program)
            .arg("scan")
            .args(words)
            .uid(NOBODY)
            .gid(NOBODY)
            .output()?;
        ensure!(
            output.status.code() == Some(2),
            "scan {words:?} by another user: {output:?}"
        );
    }
    // No daemon: configuration alone, and it says so.
    let alone = std::process::Command::new(programs().join("kams"))
        .args([
            "--socket",
            "/no/such/socket",
            "scan",
            &project,
            "--format",
            "json",
        ])
        .output()?;
    ensure!(
        alone.status.code() == Some(0)
            && String::from_utf8_lossy(&alone.stderr).contains("only configuration files are judged"),
        "{alone:?}"
    );
    Ok(())
}

/// `kams scan --start` speaks MCP to a child, as agents do. It must not be taken for one, or nobody could administer Kams
/// with this program any more.
fn start_then_administer(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let kams = Kams::start(&programs(), "watch: {unknown_agents: discover}\n")?;
    let stage = Stage::new()?;
    let project = project(&stage)?;
    tools(&stage, HARMLESS)?;
    for _ in 0..3 {
        let output = scanned(&kams, &stage, &[&project, "--start", "--format", "json"])?;
        ensure!(output.status.success(), "{output:?}");
    }
    for words in [&["policy", "reload"][..], &["off"], &["on"]] {
        let output = kams.kams(words)?;
        ensure!(
            output.status.success(),
            "kams {words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
