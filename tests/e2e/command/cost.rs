//! `kams servers --cost`, and the true counts that `dist/examples/report-usage.sh` brings.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::desk::Desk;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::{HARMLESS, SERVER, daemon, list, tools};
use crate::context::{Context, DESK_SERVER, LINE_AGENT};

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![context.with_kams("command::cost", cost)]
}

fn server(kams: &Kams, what: &str, enough: impl Fn(&Value) -> bool) -> Result<Value> {
    let of = |answer: &Value| {
        list(answer, "servers")
            .iter()
            .find(|one| one["identity"] == SERVER)
            .cloned()
    };
    let answer = kams.ask_until(&["servers", "--cost"], what, |answer| {
        of(answer).is_some_and(|one| enough(&one))
    })?;
    of(&answer).context("the server")
}

/// The example of the distribution, as its users run it.
fn report(kams: &Kams, pid: u32, tokens: u64, more: &[&str]) -> Result<(bool, Value)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/examples/report-usage.sh");
    let output = Command::new("sh")
        .arg(script)
        .args([pid.to_string(), tokens.to_string()])
        .args(more)
        .env("KAMS_SOCKET", kams.socket())
        .output()?;
    let answer = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    Ok((output.status.success(), answer))
}

fn cost(context: &Context) -> Result<()> {
    if Command::new("curl").arg("--version").output().is_err() {
        anyhow::bail!("the example needs curl");
    }
    let kams = daemon(context)?;
    let stage = Stage::new()?;
    let mut agent = Desk::open(&stage, LINE_AGENT, DESK_SERVER, Some(&tools(&stage, HARMLESS)?))?;
    agent.ask("tools/list", &json!({}))?;
    agent.call("big", &json!({"bytes": 40_000}))?;
    let estimated = server(&kams, "the costs", |one| {
        one["result_tokens"].as_u64().is_some_and(|tokens| tokens > 0)
            && one["definition_tokens"].as_u64().is_some()
    })?;
    let guess = estimated["result_tokens"].as_u64().context("an estimate")?;
    ensure!(
        guess > 5_000 && estimated["true_result_tokens"].is_null(),
        "{estimated:#}"
    );
    ensure!(
        estimated["definition_tokens"]
            .as_u64()
            .is_some_and(|tokens| (20..200).contains(&tokens)),
        "{estimated:#}"
    );

    let pid = agent.agent_pid();
    let (taken, answer) = report(&kams, pid, 2 * guess, &[])?;
    ensure!(
        taken && answer["points"][0]["tokens"] == 2 * guess && answer["points"][0]["server"] == SERVER,
        "{answer}"
    );
    let told = server(&kams, "the true count", |one| {
        one["true_result_tokens"].as_u64() == Some(2 * guess)
    })?;
    ensure!(
        told["result_tokens"].as_u64() == Some(guess),
        "the estimate stays what it was: {told:#}"
    );
    let (taken, answer) = report(&kams, pid, 10, &[])?;
    ensure!(
        taken && list(&answer, "points").is_empty(),
        "reported twice: {answer}"
    );

    // The same answer again: the estimate has come nearer to what was told.
    agent.call("big", &json!({"bytes": 40_000}))?;
    let next = server(&kams, "the second result", |one| {
        one["result_tokens"].as_u64().is_some_and(|sum| sum > guess)
    })?;
    let second = next["result_tokens"].as_u64().context("an estimate")? - guess;
    ensure!(
        second > guess * 12 / 10 && second < guess * 14 / 10,
        "the factor moves by three tenths of the way: {guess}, then {second}"
    );
    let (taken, answer) = report(&kams, pid, 100, &[SERVER])?;
    ensure!(taken && answer["points"][0]["tokens"] == 100, "{answer}");

    let table = String::from_utf8(kams.kams(&["servers", "--cost"])?.stdout)?;
    for word in [
        "DEFINITIONS",
        "RESULTS (EST.)",
        "REPORTED",
        "SHARE",
        "100 %",
        SERVER,
    ] {
        ensure!(table.contains(word), "{word} is missing:\n{table}");
    }
    let metrics = kams.metrics()?;
    for sample in [
        format!("mcp_context_cost_tokens_total{{estimated=\"false\",server=\"{SERVER}\"}}"),
        format!("mcp_context_definition_tokens{{server=\"{SERVER}\"}}"),
    ] {
        ensure!(
            metrics.get(&sample).is_some_and(|value| *value > 0.0),
            "{sample} is missing"
        );
    }

    let (taken, answer) = report(&kams, std::process::id(), 5, &[])?;
    ensure!(
        !taken && answer["code"] == "not_found",
        "a process that is no agent: {answer}"
    );
    let (taken, answer) = report(&kams, pid, 99_999_999_999, &[])?;
    ensure!(!taken, "more than any context holds: {answer}");
    agent.close()?;
    let (taken, answer) = kams_gone(&kams, pid)?;
    ensure!(!taken, "an agent that has ended: {answer}");
    Ok(())
}

fn kams_gone(kams: &Kams, pid: u32) -> Result<(bool, Value)> {
    kams.wait(0, "the end of the agent", |events| {
        events
            .iter()
            .any(|event| event.event == "agent_gone" && event.agent_pid == Some(pid))
    })?;
    report(kams, pid, 5, &[])
}
