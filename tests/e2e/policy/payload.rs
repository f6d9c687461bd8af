//! The payload programs leave the host while every server has a relay, and are back before another one speaks.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::desk::Desk;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::json;

use super::DESKS;
use crate::context::{Context, DESK_SERVER, LINE_AGENT, programs};

const RULES: &str = "
version: 1
mode: enforce
servers:
- {match: {server: '*watched-server*'}, mode: observe}
";

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![context.with_kams(
        "policy::payload-programs-leave-when-all-servers-are-relayed",
        leave,
    )]
}

fn leave(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let config = format!("mode: enforce\nrelay: candidates\n{DESKS}");
    let kams = Kams::start_under(&programs(), &config, &[("policy.yaml", RULES)])?;
    let stage = Stage::new()?;
    let mark = kams.mark();
    let mut relayed = Desk::open(&stage, LINE_AGENT, DESK_SERVER, None)?;
    kams.wait(mark, "a relay", |events| {
        events.iter().any(|event| event.event == "server_relayed")
    })?;
    let attached = |status: &serde_json::Value| status["payload"]["attached"] == true;
    kams.ask_until(&["status"], "no payload programs", |status| !attached(status))?;
    relayed.call("still", &json!({}))?;
    // A server of another name, which is only watched: held until the programs are back, and seen from its first line.
    let watched = stage.path("watched-server");
    std::fs::copy(programs().join(DESK_SERVER), &watched).context("a copy of the server")?;
    let mark = kams.mark();
    let mut agent = Desk::open(&stage, LINE_AGENT, &watched.to_string_lossy(), None)?;
    agent.call("seen", &json!({}))?;
    agent.close()?;
    let events = kams.wait(mark, "the end of the watched server", |events| {
        events.iter().any(|event| event.event == "server_gone")
    })?;
    let of_watched = |name: &str| {
        let server = |event: &&kams_tests::event::Event| {
            event
                .server
                .as_deref()
                .is_some_and(|server| server.contains("watched-server"))
        };
        events.iter().filter(server).any(|event| event.event == name)
    };
    for name in ["server_confirmed", "tool_call", "tool_result"] {
        ensure!(of_watched(name), "no {name}: {events:#?}\n{}", kams.log());
    }
    let shaken = events
        .iter()
        .any(|event| event.revision.as_deref() == Some("2025-06-18"));
    ensure!(shaken, "the handshake was not seen: {events:#?}\n{}", kams.log());
    ensure!(
        attached(&kams.ask(&["status"])?),
        "the programs are away while a server is watched"
    );
    relayed.close()?;
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "kamsd ended with {status}\n{log}");
    Ok(())
}
