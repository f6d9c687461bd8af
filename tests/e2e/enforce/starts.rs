//! Starts of servers: which get a relay and when, which policy does not want, and what it does to a whole server.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::desk::{Desk, hello};
use kams_tests::event::Event;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::{RULES, open, server, start, text};
use crate::context::{Context, LINE_AGENT, programs};

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("enforce::a-server-that-policy-kills", killed),
        context.with_kams("enforce::a-server-that-policy-blocks", blocked),
        context.with_kams("enforce::a-start-that-policy-refuses", refused),
        context.with_kams("enforce::a-start-that-policy-ends", ended),
        context.with_kams("enforce::helpers-that-speak-something-else", helpers),
        context.with_kams("enforce::known-after-a-restart", known),
        context.with_kams("enforce::restarted-to-get-a-relay", restarted),
    ]
}

/// Waits for the end of a process.
pub(super) fn gone(pid: u32) -> Result<()> {
    let start = std::time::Instant::now();
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    };
    while state().is_some_and(|state| state != 'Z') {
        ensure!(start.elapsed().as_secs() < 20, "{pid} lives on");
        // It is another's child: nobody tells us.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Ok(())
}

fn killed(context: &Context) -> Result<()> {
    let kams = context.enforcing()?;
    let stage = Stage::new()?;
    let mut agent = open(&kams, &stage, "ruined")?;
    let pid: u32 = text(&agent.call("pid", &json!({}))?, false)?.parse()?;
    let denied = agent.call("ruin", &json!({}))?;
    ensure!(text(&denied, true)?.contains("end-it"), "{denied}");
    gone(pid)?;
    // The agent has seen the end, and nothing else.
    let (_, _, got) = agent.end()?;
    ensure!(
        String::from_utf8(got)?.lines().count() == 3,
        "something after the refusal"
    );
    Ok(())
}

fn blocked(context: &Context) -> Result<()> {
    let kams = context.enforcing()?;
    let stage = Stage::new()?;
    let mut agent = open(&kams, &stage, "spoiled")?;
    text(&agent.call("say", &json!({"text": "x"}))?, false)?;
    let denied = agent.call("spoil", &json!({}))?;
    ensure!(text(&denied, true)?.contains("shut-it"), "{denied}");
    let denied = agent.call("say", &json!({"text": "x"}))?;
    ensure!(text(&denied, true)?.contains("shut-it"), "{denied}");
    let list = agent.exchange("tools/list", &json!({}))?;
    ensure!(list["error"]["code"] == -31_001, "{list}");
    ensure!(
        agent.ask("ping", &json!({}))? == json!({}),
        "a session stays alive"
    );
    let restrictions = kams.ask(&["restrictions", "list"])?;
    let all = restrictions["restrictions"].as_array().context("a list")?;
    let own = all
        .iter()
        .find(|one| one["rule"] == "shut-it")
        .context("a restriction")?;
    let id = own["id"].as_u64().context("a number")?.to_string();
    ensure!(
        kams.kams(&["restrictions", "lift", &id])?.status.success(),
        "lift"
    );
    text(&agent.call("say", &json!({"text": "x"}))?, false)?;
    agent.close()
}

/// The first message of a session, and its answer.
fn greeting(stage: &Stage, name: &str) -> Result<(Desk, Value)> {
    let path = server(stage, name)?;
    let mut agent = Desk::silent(stage, LINE_AGENT, &[&path.to_string_lossy()], None)?;
    let answer = agent.exchange("initialize", &hello())?;
    Ok((agent, answer))
}

/// A server that policy does not want opens no session; the person is told why.
fn refused(context: &Context) -> Result<()> {
    let kams = context.enforcing()?;
    let stage = Stage::new()?;
    // The second time by the restriction that the first one left.
    for _ in 0..2 {
        let (mut agent, answer) = greeting(&stage, "stranger")?;
        let said = answer["error"]["message"]
            .as_str()
            .with_context(|| answer.to_string())?;
        ensure!(
            said.contains("not-here") && said.contains("It is on no list."),
            "{said}"
        );
        let list = agent.exchange("tools/list", &json!({}))?;
        ensure!(list["error"]["code"] == -31_001, "{list}");
        agent.close()?;
    }
    ensure!(
        super::server_log(&stage)?.0.is_empty(),
        "the server was spoken to"
    );
    drop(kams);
    Ok(())
}

fn ended(context: &Context) -> Result<()> {
    let kams = context.enforcing()?;
    let stage = Stage::new()?;
    let (agent, answer) = greeting(&stage, "intruder")?;
    ensure!(
        answer["error"]["message"]
            .as_str()
            .is_some_and(|said| said.contains("not-at-all")),
        "{answer}"
    );
    for child in kams_tests::processes::children(agent.agent_pid()) {
        gone(child)?;
    }
    drop((agent, kams));
    Ok(())
}

/// Programs that agents start with streams like a server's, and that are none: they work, and are no servers.
fn helpers(context: &Context) -> Result<()> {
    let kams = context.enforcing()?;
    let mark = kams.mark();
    let stage = Stage::new()?;
    let mut agent = Desk::silent(&stage, LINE_AGENT, &["cat"], None)?;
    for n in 0..200 {
        let line = format!("Content-Length: {n}\n");
        agent.raw(line.as_bytes())?;
        ensure!(agent.hear()? == line.as_bytes(), "line {n}");
    }
    let pid = agent.agent_pid();
    agent.close()?;
    let events = crate::context::barrier(&kams, mark)?;
    let told: Vec<_> = events
        .iter()
        .filter(|event| event.agent_pid == Some(pid) && !event.event.starts_with("agent_"))
        .collect();
    ensure!(told.is_empty(), "told as a server: {told:#?}");
    let servers = kams.ask(&["servers"])?;
    let all = servers["servers"].as_array().context("a list")?;
    ensure!(
        !all.iter().any(|one| one["agent_pid"] == pid),
        "shown as a server: {servers}"
    );
    Ok(())
}

const KNOWN: &str = "mode: enforce\nrelay: known\nwatch:\n  unknown_agents: ignore\n  agents: [{name: line-agent, executable: line-agent}]\n";

/// What was told of one session's relay: none, or why there is none.
fn relay_of(kams: &Kams, stage: &Stage, name: &str) -> Result<Option<String>> {
    let mark = kams.mark();
    let agent = start(stage, name)?;
    let pid = agent.agent_pid();
    let told = |event: &&Event, kind: &str| event.event == kind && event.agent_pid == Some(pid);
    let events = kams.wait(mark, "a word on the relay", |events| {
        events
            .iter()
            .any(|event| told(&event, "server_relayed") || told(&event, "server_unrelayed"))
    })?;
    agent.close()?;
    let unrelayed = events.iter().find(|event| told(event, "server_unrelayed"));
    Ok(unrelayed.map(|event| event.reason.clone().unwrap_or_default()))
}

/// A server first seen without a relay is told, learned, and relayed from then on: also by the next daemon, and the next worker.
fn known(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let mut kams = Kams::start_under(&programs(), KNOWN, &[("policy.yaml", RULES)])?;
    let stage = Stage::new()?;
    ensure!(
        relay_of(&kams, &stage, "novel")?.as_deref() == Some("first_seen"),
        "the first start"
    );
    ensure!(relay_of(&kams, &stage, "novel")?.is_none(), "the second start");
    kams = kams.restart()?;
    ensure!(
        relay_of(&kams, &stage, "novel")?.is_none(),
        "the first start under the next daemon"
    );
    for word in ["off", "on"] {
        ensure!(kams.kams(&[word])?.status.success(), "kams {word}");
    }
    ensure!(
        relay_of(&kams, &stage, "novel")?.is_none(),
        "after kams off and on"
    );
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "{log}");
    Ok(())
}

/// With `unrelayed: restart` it does not run on: its agent starts it again, now with a relay.
fn restarted(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let kams = Kams::start_under(
        &programs(),
        &format!("{KNOWN}unrelayed: restart\n"),
        &[("policy.yaml", RULES)],
    )?;
    let stage = Stage::new()?;
    let path = server(&stage, "novel")?;
    let mut agent = Desk::silent(&stage, LINE_AGENT, &[&path.to_string_lossy()], None)?;
    agent.post("initialize", &hello())?;
    let mine =
        |event: &Event| event.event == "server_confirmed" && event.agent_pid == Some(agent.agent_pid());
    let events = kams.wait(0, "a server", |events| events.iter().any(mine))?;
    let server = events
        .iter()
        .find(|event| mine(event))
        .and_then(|event| event.server_pid);
    gone(server.context("a process")?)?;
    drop(agent);
    ensure!(relay_of(&kams, &stage, "novel")?.is_none(), "its next start");
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "{log}");
    Ok(())
}
