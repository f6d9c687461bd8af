//! Policy, runs and evidence on a daemon that watches real sessions.

mod approvals;
mod evidence;
mod exceptions;
mod network;
mod payload;
mod reload;
mod rights;
mod runs;
mod seccomp;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use kams_tests::desk::Desk;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::Value;

use crate::context::{Context, DESK_SERVER, LINE_AGENT, programs};

/// The agent of these tests is a known one.
pub(crate) const DESKS: &str =
    "watch:\n  unknown_agents: ignore\n  agents: [{name: line-agent, executable: line-agent}]\n";

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    [
        reload::trials(context),
        approvals::trials(context),
        runs::trials(context),
        evidence::trials(context),
        exceptions::trials(context),
        payload::trials(context),
        network::trials(context),
        rights::trials(context),
        seccomp::trials(context),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A daemon of its own under a policy.
fn daemon(context: &Context, policy: &[(&str, &str)]) -> Result<Kams> {
    context.stop_shared()?;
    Kams::start_under(&programs(), DESKS, policy)
}

/// A session with a server that does what it is asked.
fn desk(stage: &Stage) -> Result<Desk> {
    Desk::open(stage, LINE_AGENT, DESK_SERVER, None)
}

/// Elements of a list in an answer.
fn list<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer[name].as_array().map_or(&[], Vec::as_slice)
}

/// Findings of the daemon, once `enough` of them are there.
fn findings(kams: &Kams, what: &str, enough: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
    let start = std::time::Instant::now();
    loop {
        let output = kams.kams(&["findings", "-n", "10000", "-o", "json"])?;
        let text = String::from_utf8(output.stdout)?;
        let all: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).context("a finding"))
            .collect::<Result<_>>()?;
        if enough(&all) {
            return Ok(all);
        }
        anyhow::ensure!(
            start.elapsed() < std::time::Duration::from_secs(30),
            "time is up before {what}; findings: {all:#?}\nevents: {:#?}\n{}",
            kams.since(0),
            kams.log()
        );
        // Nobody announces that there will be no more.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Plays a session of one call; Kams must have seen the call at its end.
fn one_call(kams: &Kams, tool: &str, arguments: &Value) -> Result<()> {
    let mark = kams.mark();
    let stage = Stage::new()?;
    let mut agent = desk(&stage)?;
    agent.call(tool, arguments)?;
    agent.close()?;
    let events = kams.wait(mark, "the end of the server", |events| {
        events.iter().any(|event| event.event == "server_gone")
    })?;
    let seen = events
        .iter()
        .any(|event| event.event == "tool_result" && event.tool.as_deref() == Some(tool));
    anyhow::ensure!(seen, "the call was not seen\n{}", kams.log());
    Ok(())
}
