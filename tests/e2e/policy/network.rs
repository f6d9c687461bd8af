//! Servers that are cut off the network by a live daemon: a rule that fires, a setting, restarts, and the way back.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kams_tests::desk::Desk;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::{daemon, desk, findings, list};
use crate::context::{Context, DESK_SERVER, LINE_AGENT};

const CUT: &str = "
version: 1
mode: enforce
rules: [{name: no-leaks, match: {on: call, tool: leak}, action: block_egress, ttl: 1h}]
";

const NONE: &str = "
version: 1
mode: enforce
servers: [{match: {server: 'bin:desk-server'}, network: none}]
";

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("policy::network-block-egress", block_egress),
        context.with_kams("policy::network-none", network_none),
    ]
}

/// Something to reach, on loopback.
struct Goal(TcpListener);

impl Goal {
    fn new() -> Result<Self> {
        Ok(Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?))
    }

    fn port(&self) -> Result<u16> {
        Ok(self.0.local_addr()?.port())
    }

    /// Whether a process of the server's can connect to it.
    fn is_reached(&self, desk: &mut Desk) -> Result<bool> {
        let line = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{}'", self.port()?);
        let (status, said) = desk.shell(&line)?;
        ensure!(
            status == 0 || said.contains("not permitted"),
            "another failure: {status} {said}"
        );
        Ok(status == 0)
    }
}

/// The one live server as `kams servers` shows it, once it is as wanted.
fn server(kams: &Kams, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let live = |answer: &Value| {
        let mut servers = list(answer, "servers").iter();
        servers.rfind(|one| one["state"] != "gone").cloned()
    };
    let answer = kams.ask_until(&["servers"], what, |answer| {
        live(answer).is_some_and(|one| wanted(&one))
    })?;
    live(&answer).context("a server")
}

fn is_cut_off(server: &Value, reason: &str) -> bool {
    server["network"]["cut_off"] == true && server["network"]["reason"] == reason
}

fn backstop(kams: &Kams) -> Result<String> {
    let answer = kams.ask(&["doctor"])?;
    let line = list(&answer, "checks")
        .iter()
        .find(|one| one["name"] == "network backstop");
    let detail = line.and_then(|one| one["detail"].as_str());
    Ok(detail.context("no line about the backstop")?.to_owned())
}

fn block_egress(context: &Context) -> Result<()> {
    let mut kams = daemon(context, &[("policy.yaml", CUT)])?;
    ensure!(
        backstop(&kams)?.starts_with("not attached"),
        "{}",
        backstop(&kams)?
    );
    let goal = Goal::new()?;
    let stage = Stage::new()?;
    let mut session = desk(&stage)?;
    ensure!(goal.is_reached(&mut session)?, "before anything happened");
    drop(goal.0.accept()?);
    // A connection of a child that goes on.
    let line = format!(
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{}; cat <&3' >/dev/null 2>&1 &",
        goal.port()?
    );
    session.shell(&line)?;
    let (mut open, _) = goal.0.accept()?;
    open.set_read_timeout(Some(Duration::from_secs(30)))?;

    let mark = kams.mark();
    session.call("leak", &json!({}))?;
    kams.wait(mark, "the block", |events| {
        events.iter().any(|event| event.event == "network_cut_off")
    })?;
    ensure!(!goal.is_reached(&mut session)?, "a cut off server connects");
    let closed = match open.read(&mut [0; 8]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    };
    ensure!(closed, "the open connection goes on");
    let view = server(&kams, "the connection is counted", |one| {
        one["network"]["closed"] == 1
    })?;
    ensure!(is_cut_off(&view, "restriction"), "{view:#}");
    // Others are none of its business.
    std::net::TcpStream::connect(goal.0.local_addr()?).context("a bystander")?;
    kams.wait(mark, "the attempt is told", |events| {
        events.iter().any(|event| event.event == "network_refused")
    })?;
    findings(&kams, "a finding about it", |all| {
        all.iter()
            .any(|one| one["detector"] == "network.refused" && one["severity"] == "HIGH")
    })?;
    ensure!(backstop(&kams)?.starts_with("attached"), "{}", backstop(&kams)?);
    kams.metric_until("kams_network_blocks", 1.0)?;
    ensure!(kams.metric("kams_network_refused_total")? >= 1.0);

    // The worker's death opens nothing, and the next one knows what it finds.
    let raw = i32::try_from(kams.pid())?;
    let worker = rustix::process::Pid::from_raw(raw).context("a worker")?;
    rustix::process::kill_process(worker, rustix::process::Signal::KILL)?;
    ensure!(!goal.is_reached(&mut session)?, "nobody watches, and it connects");
    kams.wait_ready()?;
    ensure!(!goal.is_reached(&mut session)?, "the next worker lets it connect");
    server(&kams, "the next worker shows the block", |one| {
        is_cut_off(one, "restriction")
    })?;

    let restrictions = kams.ask(&["restrictions", "list"])?;
    let [one] = list(&restrictions, "restrictions") else {
        anyhow::bail!("one restriction: {restrictions:#}")
    };
    ensure!(one["action"] == "block_egress", "{one}");
    let id = one["id"].to_string();
    ensure!(kams.kams(&["restrictions", "lift", &id])?.status.success());
    server(&kams, "the end of the block", |one| one["network"].is_null())?;
    ensure!(goal.is_reached(&mut session)?, "a lifted restriction still holds");
    ensure!(
        backstop(&kams)?.starts_with("not attached"),
        "{}",
        backstop(&kams)?
    );
    session.close()?;
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "{log}");
    Ok(())
}

/// A session whose agent was seen before it starts its server, as the slower agents of people are.
fn seen_desk(kams: &Kams, stage: &Stage) -> Result<Desk> {
    let mark = kams.mark();
    let mut desk = Desk::silent(stage, LINE_AGENT, &[DESK_SERVER], None)?;
    let pid = desk.agent_pid();
    kams.wait(mark, "the agent", |events| {
        events
            .iter()
            .any(|event| event.event == "agent_started" && event.agent_pid == Some(pid))
    })?;
    desk.greet()?;
    Ok(desk)
}

fn network_none(context: &Context) -> Result<()> {
    let kams = daemon(context, &[("policy.yaml", NONE)])?;
    let goal = Goal::new()?;
    let stage = Stage::new()?;
    let mut first = desk(&stage)?;
    server(&kams, "a server of this name is cut off", |one| {
        is_cut_off(one, "policy")
    })?;
    ensure!(!goal.is_reached(&mut first)?);
    ensure!(kams.kams(&["off"])?.status.success());
    ensure!(goal.is_reached(&mut first)?, "`kams off` lets everybody go");
    ensure!(kams.kams(&["on"])?.status.success());
    // It ran before Kams was on again: it is known by what is said next, from a line's beginning on.
    for _ in 0..3 {
        first.call("anything", &json!({}))?;
    }
    server(&kams, "`kams on` cuts off again", |one| is_cut_off(one, "policy"))?;
    ensure!(!goal.is_reached(&mut first)?);
    first.close()?;
    // Known by now: held at its exec, so there is no moment in which it could connect.
    let mark = kams.mark();
    let mut second = seen_desk(&kams, &stage)?;
    ensure!(
        !goal.is_reached(&mut second)?,
        "a known server has the network at its start\n{:#?}\n{}",
        kams.since(mark),
        kams.log()
    );
    let events = kams.wait(mark, "its start", |events| {
        events.iter().any(|event| event.event == "network_cut_off")
    })?;
    let at = |name: &str| events.iter().position(|event| event.event == name);
    ensure!(
        at("network_cut_off") < at("server_relayed"),
        "before its first instruction: {events:#?}"
    );
    second.close()?;
    // Nothing of it lives, so nothing is attached.
    kams.metric_until("kams_network_blocks", 0.0)
        .with_context(|| backstop(&kams).unwrap_or_default())?;
    ensure!(
        backstop(&kams)?.starts_with("not attached"),
        "{}",
        backstop(&kams)?
    );

    // Stopped for good, Kams lets go what it cut off.
    let mut third = seen_desk(&kams, &stage)?;
    ensure!(!goal.is_reached(&mut third)?);
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "{log}");
    ensure!(goal.is_reached(&mut third)?, "cut off by nobody");
    Ok(())
}
