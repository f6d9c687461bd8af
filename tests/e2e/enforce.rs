//! A daemon that enforces: relays that it put before servers by itself, and nobody's configuration changed.

mod clients;
mod deaths;
mod second;
mod session;
mod slices;
mod slow;
mod starts;
mod switch;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::desk::{Desk, server_log};
use kams_tests::kams::Kams;
use kams_tests::processes;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::context::{Context, DESK_SERVER, LINE_AGENT};

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    [
        session::trials(context),
        slow::trials(context),
        starts::trials(context),
        clients::trials(context),
        switch::trials(context),
        deaths::trials(context),
        second::trials(context),
        slices::trials(context),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Every server of these agents gets a relay at its first start.
pub(crate) const RELAYED: &str = "mode: enforce
relay: candidates
watch:
  unknown_agents: ignore
  agents:
  - {name: line-agent, executable: line-agent}
  - {name: form-agent, executable: form-agent}
  - {name: typescript-sdk, executable: node, arguments: '*sdk.mjs*'}
  - {name: python-sdk, executable: 'python*', arguments: '*clients/session.py*'}
  - {name: python-client, executable: 'python*', arguments: '*clients/client.py*'}
";

/// Rules for all trials that share a daemon: each has tools of its own, so that no restriction meets another trial.
pub(crate) const RULES: &str = "
version: 1
mode: enforce
rules:
- {name: mask, match: {kind: EGRESS_SENSITIVE, tool: 'mail*'}, action: redact_args}
- {name: no-secrets, match: {kind: EGRESS_SENSITIVE, tool: [say, echo]}, action: block_call, reason: Pass a reference instead.}
- {name: no-drift, match: {kind: INTEGRITY_DRIFT}, action: block_call}
- {name: no-orders, match: {detector: integrity.result_injection, min_severity: HIGH, tool: say}, action: block_call}
- {name: no-orders-from-it, match: {detector: integrity.result_injection, min_severity: HIGH, tool: fetch}, action: block_tool, ttl: 15m}
- {name: never, match: {on: call, tool: shred}, action: block_tool, ttl: 1h}
- {name: ask, match: {on: call, tool: wire}, action: require_approval}
- {name: end-it, match: {on: call, tool: ruin}, action: kill_server}
- {name: shut-it, match: {on: call, tool: spoil}, action: block_server, ttl: 1h}
- {name: not-here, match: {on: server_start, server: 'bin:stranger*'}, action: block_server, ttl: 1h, reason: It is on no list.}
- {name: not-at-all, match: {on: server_start, server: 'bin:intruder*'}, action: kill_server}
";

/// A token in the published format, assembled so that no scanner of repositories takes it for a real one.
fn secret() -> String {
    format!("gh{}_R7kQ2mZ9xT4bV1nW8cL5sD3gH6jP0aYeUoIq", 'p')
}

/// A session whose server stands behind an injected relay from its first byte on. Each trial names a server of its own:
/// baselines and restrictions belong to a server.
fn open(kams: &Kams, stage: &Stage, name: &str) -> Result<Desk> {
    let mark = kams.mark();
    let desk = start(stage, name)?;
    relayed(kams, mark, desk.agent_pid())?;
    Ok(desk)
}

/// A session, whatever stands between agent and server.
fn start(stage: &Stage, name: &str) -> Result<Desk> {
    let server = server(stage, name)?;
    let tools = stage.path("tools.json");
    if !tools.exists() {
        set_tools(stage, &[("add", "Adds two numbers.")])?;
    }
    Desk::open(stage, LINE_AGENT, &server.to_string_lossy(), Some(&tools))
}

/// The server's program under another name.
fn server(stage: &Stage, name: &str) -> Result<PathBuf> {
    let path = stage.path(name);
    if !path.exists() {
        std::fs::copy(DESK_SERVER, &path)?;
    }
    Ok(path)
}

/// Waits until a relay is said to stand before this agent's server.
fn relayed(kams: &Kams, mark: usize, agent: u32) -> Result<()> {
    let of =
        |event: &kams_tests::event::Event, kind: &str| event.event == kind && event.agent_pid == Some(agent);
    let events = kams.wait(mark, "a relay", |events| {
        events
            .iter()
            .any(|event| of(event, "server_relayed") || of(event, "server_unrelayed"))
    })?;
    ensure!(
        !events.iter().any(|event| of(event, "server_unrelayed")),
        "a server runs without a relay: {events:#?}\n{}",
        kams.log()
    );
    Ok(())
}

/// What the server lists: tools by name and description.
fn set_tools(stage: &Stage, tools: &[(&str, &str)]) -> Result<()> {
    let all: Vec<Value> = tools
        .iter()
        .map(|(name, text)| json!({"name": name, "description": text, "inputSchema": {"type": "object"}}))
        .collect();
    stage.write("tools.json", Value::from(all).to_string())?;
    Ok(())
}

/// The relays of this daemon that serve.
fn serving(kams: &Kams) -> Result<Vec<u32>> {
    processes::serving(&kams.programs().join("kams-relay"))
}

/// The text of a tool's result, which is an error or not.
fn text(result: &Value, error: bool) -> Result<&str> {
    ensure!(
        (result["isError"] == true) == error,
        "expected isError {error}: {result}"
    );
    result["content"][0]["text"]
        .as_str()
        .with_context(|| format!("no text: {result}"))
}
