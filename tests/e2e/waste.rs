//! Waste: what agents report of their model calls, the receiver under bad input and floods, the agents' managed settings.
//!
//! Agents under test have no network but loopback, and a user of a report is known by the socket in the daemon's own
//! network namespace. So a daemon of these tests lives in a namespace of its own, with the agents in it.

mod agents;
mod joins;
mod receiver;
mod settings;
mod traffic;

use std::process::Output;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use kams_tests::kams::Kams;
use kams_tests::netbox;
use libtest_mimic::Trial;
use serde_json::Value;

use crate::context::{Context, programs};

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    [
        agents::trials(context),
        receiver::trials(context),
        settings::trials(context),
        traffic::trials(context),
        joins::trials(context),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Configuration with the receiver on its own port.
const CONFIG: &str = "telemetry: {listen: \"127.0.0.1:4318\"}\n";
/// The agent that says what it is told is one, and the test that tells it is none.
const AGENTS: &str =
    "watch:\n  unknown_agents: ignore\n  agents:\n  - {name: line-agent, executable: line-agent}\n";

/// Runs a test on a thread in a network namespace of its own, with a daemon in it.
fn boxed(extra: &str, test: impl FnOnce(&Kams) -> Result<()> + Send) -> Result<()> {
    boxed_under(extra, &[], test)
}

/// The same under a policy, by its files.
fn boxed_under(
    extra: &str,
    policy: &[(&str, &str)],
    test: impl FnOnce(&Kams) -> Result<()> + Send,
) -> Result<()> {
    let work = || {
        netbox::enter()?;
        let kams = Kams::start_under(&programs(), &format!("{CONFIG}{extra}"), policy)?;
        let result = test(&kams).with_context(|| format!("the test failed\n{}", kams.log()));
        let (status, log) = kams.stop()?;
        result?;
        ensure!(status.success(), "kamsd ended with {status}\n{log}");
        Ok(())
    };
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| bail!("the test panicked"))
}

/// Findings of the waste rules so far.
fn waste(kams: &Kams) -> Result<Vec<Value>> {
    let output = kams.kams(&[
        "findings",
        "--detector",
        "waste.*",
        "--last",
        "10000",
        "-o",
        "json",
    ])?;
    ensure!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Waits until a condition holds; the daemon works while we ask.
fn until<T>(what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = std::time::Instant::now();
    while start.elapsed() < std::time::Duration::from_secs(30) {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        std::thread::yield_now();
    }
    bail!("time is up before {what}")
}

/// Standard output of a command that must succeed.
fn well(output: Output) -> Result<String> {
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}
