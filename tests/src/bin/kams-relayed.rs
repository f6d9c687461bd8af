//! The background of a benchmark: a daemon that enforces, and an agent whose one server has a relay.
//!
//! Says `relayed` once the daemon has put the relay there and its payload programs have left the host, and keeps it so
//! until standard input ends. A success means that it was still so then, and that the daemon judged a call before and one
//! after.
#![forbid(unsafe_code)]

use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use kams_tests::desk::Desk;
use kams_tests::event::Event;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use serde_json::json;

/// Every server of the one known agent gets a relay.
const RELAYED: &str = "mode: enforce
relay: candidates
watch:
  unknown_agents: ignore
  agents:
  - {name: line-agent, executable: line-agent}
";

fn main() -> Result<()> {
    // The daemon's programs lie beside this one.
    let programs = std::env::current_exe()?.parent().context("a folder")?.to_owned();
    let program = |name: &str| programs.join(name).to_string_lossy().into_owned();
    let kams = Kams::start(&programs, RELAYED)?;
    let stage = Stage::new()?;
    let has = |events: &[Event], kind: &str| events.iter().any(|event| event.event == kind);
    let mut desk = Desk::open(&stage, &program("line-agent"), &program("desk-server"), None)?;
    kams.wait(0, "a relay", |events| has(events, "server_relayed"))?;
    let judged = |desk: &mut Desk, text: &str| -> Result<()> {
        let mark = kams.mark();
        let result = desk.call("say", &json!({"text": text}))?;
        ensure!(result["content"][0]["text"] == text, "the server said {result}");
        kams.wait(mark, "a call", |events| has(events, "tool_result"))?;
        Ok(())
    };
    judged(&mut desk, "before")?;
    let detached = |status: &serde_json::Value| status["payload"]["attached"] == false;
    kams.ask_until(&["status"], "the payload programs left", detached)?;
    let mut out = std::io::stdout();
    writeln!(out, "relayed")?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let status = kams.ask(&["status"])?;
    ensure!(detached(&status), "the payload programs came back: {status}");
    judged(&mut desk, "after")?;
    let seen = kams.since(0);
    let lost = ["server_unrelayed", "server_gone", "loss"]
        .into_iter()
        .find(|kind| has(&seen, kind));
    ensure!(lost.is_none(), "there was {lost:?}: {seen:#?}");
    desk.close()?;
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "kamsd ended with {status}\n{log}");
    Ok(())
}
