//! The daemon's own life: configuration, reload, off and on, the end. These start daemons of their own.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kams_tests::desk::Desk;
use kams_tests::event::Event;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;

use crate::context::{
    Context, DESK_SERVER, DRIVERS, FORM_AGENT, FORM_SERVER, LINE_AGENT, ODD_AGENT, barrier, one_talk,
    programs,
};

/// How long the kernel may take to free programs.
const FREED: Duration = Duration::from_secs(5);

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("daemon::unknown-key", unknown_key),
        context.with_kams("daemon::reload", reload),
        context.with_kams("daemon::off-and-on", off_and_on),
        context.with_kams("daemon::adopts-what-runs", adopts),
        context.with_kams("daemon::agent-that-ran-before", agent_that_ran_before),
        context.with_kams("daemon::stops-clean", stops_clean),
    ]
}

fn unknown_key(_: &Context) -> Result<()> {
    let stage = Stage::new()?;
    let config = stage.write(
        "kams.yaml",
        "watch:\n  unknown_agents: discover\nmertics: {listen: off}\n",
    )?;
    let output = Command::new(programs().join("kamsd"))
        .arg("--config")
        .arg(&config)
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "an unknown key was taken");
    for word in ["kams.yaml:3:1", "mertics", "metrics"] {
        ensure!(said.contains(word), "`{word}` is missing: {said}");
    }
    Ok(())
}

/// One session; whether Kams shows it.
fn shown(kams: &Kams) -> Result<bool> {
    let mark = kams.mark();
    let stage = Stage::new()?;
    let mut agent = stage.command(ODD_AGENT);
    stage.run_well(
        agent
            .args(["tool", "echo", FORM_SERVER])
            .env("KAMS_WITNESS", stage.path("witness")),
    )?;
    let pid = one_talk(&stage)?.pid;
    // The barrier's agent is on the list of agents, so it is always seen.
    Ok(spoke(&barrier(kams, mark)?, pid))
}

/// Whether the server with this process id is said to have spoken MCP.
fn spoke(events: &[Event], pid: u32) -> bool {
    events
        .iter()
        .any(|event| event.event == "server_confirmed" && event.server_pid == Some(pid))
}

fn settings(unknown: &str) -> String {
    let agent = FORM_AGENT.rsplit('/').next().unwrap_or_default();
    format!("watch:\n  unknown_agents: {unknown}\n  agents: [{{name: barrier, executable: {agent}}}]\n")
}

fn reload(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let mut kams = Kams::start(&programs(), &settings("ignore"))?;
    ensure!(
        !shown(&kams)?,
        "an unknown agent is shown though unknown agents are ignored"
    );
    let text = std::fs::read_to_string(kams.config())?;
    kams.reload(&text.replace("unknown_agents: ignore", "unknown_agents: discover"))?;
    ensure!(shown(&kams)?, "the reloaded configuration does not hold");
    kams.reload(&text.replace("unknown_agents: ignore", "unknown_agents: perhaps"))?;
    ensure!(
        kams.log().contains("unknown_agents"),
        "the log says nothing of the bad configuration"
    );
    ensure!(shown(&kams)?, "a bad configuration replaced a good one");
    stop(kams)
}

fn off_and_on(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let kams = Kams::start(&programs(), &settings("discover"))?;
    ensure!(shown(&kams)?, "nothing is shown");
    let switch = |word: &str| -> Result<()> {
        let output = kams.kams(&[word])?;
        ensure!(
            output.status.success(),
            "kams {word}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    };
    switch("off")?;
    let mark = kams.mark();
    let stage = Stage::new()?;
    let mut agent = stage.command(ODD_AGENT);
    stage.run_well(
        agent
            .args(["tool", "echo", FORM_SERVER])
            .env("KAMS_WITNESS", stage.path("witness")),
    )?;
    switch("on")?;
    ensure!(shown(&kams)?, "after `kams on` nothing is shown");
    ensure!(
        !spoke(&kams.since(mark), one_talk(&stage)?.pid),
        "a server is shown that ran while Kams was off"
    );
    stop(kams)
}

fn adopts(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let stage = Stage::new()?;
    let mut agent = super::odd::paused(&stage)?;
    let kams = Kams::start(&programs(), DRIVERS)?;
    let mark = 0;
    drop(agent.stdin.take());
    agent.wait()?;
    let pid = one_talk(&stage)?.pid;
    let events = barrier(&kams, mark)?;
    let last_call = |event: &Event| event.event == "tool_result" && event.server_pid == Some(pid);
    ensure!(
        events.iter().any(last_call),
        "the running server was not adopted: {events:#?}"
    );
    let gone = |event: &Event| event.event == "server_gone" && event.server_pid == Some(pid);
    kams.wait(mark, "its end", |events| events.iter().any(gone))?;
    stop(kams)
}

/// Agents run for days: what one starts after Kams came is its server from the first byte to the end.
fn agent_that_ran_before(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let stage = Stage::new()?;
    let mut desk = Desk::silent(&stage, LINE_AGENT, &[DESK_SERVER], None)?;
    let agent = desk.agent_pid();
    let kams = Kams::start(
        &programs(),
        "watch:\n  agents:\n  - {name: the-old-one, executable: line-agent}\n",
    )?;
    let of_agent = |event: &&Event| event.agent_pid == Some(agent);
    let seen = |events: &[Event], what: &str| events.iter().filter(of_agent).any(|e| e.event == what);
    kams.wait(0, "the agent", |events| seen(events, "agent_started"))?;
    desk.greet()?;
    desk.call("anything", &serde_json::json!({}))?;
    desk.close()?;
    let events = kams.wait(0, "the ends", |events| {
        seen(events, "server_gone") && seen(events, "agent_gone")
    })?;
    let of_agent: Vec<&Event> = events.iter().filter(of_agent).collect();
    ensure!(
        of_agent
            .iter()
            .all(|e| e.agent.as_deref() == Some("the-old-one") && !e.gap),
        "{of_agent:#?}"
    );
    ensure!(
        seen(&events, "response") && seen(&events, "tool_result"),
        "{of_agent:#?}"
    );
    ensure!(
        of_agent.iter().filter(|e| e.event == "agent_started").count() == 1,
        "{of_agent:#?}"
    );
    stop(kams)
}

fn stops_clean(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let kams = Kams::start(&programs(), "")?;
    let stage = Stage::new()?;
    let mut agent = super::odd::paused(&stage)?;
    let own = programs_of(kams.pid())?;
    ensure!(
        own.iter().any(|id| loaded().is_ok_and(|ids| ids.contains(id))),
        "a daemon without a kernel program"
    );
    let pinned = pin_folders()?;
    ensure!(!pinned.is_empty(), "a daemon that pins nothing");
    stop(kams)?;
    let stays: Vec<_> = pinned.iter().filter(|folder| folder.exists()).collect();
    ensure!(
        stays.len() + 1 == pinned.len(),
        "pinned maps stay behind: {stays:?}"
    );
    let left = || -> Result<usize> { Ok(loaded()?.iter().filter(|id| own.contains(id)).count()) };
    // The kernel frees a program some time after its last holder has gone, and tells nobody.
    let start = Instant::now();
    while left()? > 0 {
        ensure!(start.elapsed() < FREED, "{} kernel programs stay behind", left()?);
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(agent.stdin.take());
    ensure!(
        agent.wait()?.success(),
        "the agent does not survive the end of Kams"
    );
    Ok(())
}

/// Folders in which daemons of this host pin maps.
fn pin_folders() -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir("/sys/fs/bpf").context("the BPF filesystem")?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("kams-"))
        })
        .collect())
}

/// Ids of the eBPF programs that a process holds; other daemons on the host have others.
fn programs_of(pid: u32) -> Result<Vec<u64>> {
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let text = std::fs::read_to_string(entry?.path()).unwrap_or_default();
        ids.extend(
            text.lines()
                .filter_map(|line| line.strip_prefix("prog_id:"))
                .flat_map(|id| id.trim().parse::<u64>()),
        );
    }
    Ok(ids)
}

fn stop(kams: Kams) -> Result<()> {
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "kamsd ended with {status}\n{log}");
    Ok(())
}

/// Ids of the eBPF programs that the kernel holds.
fn loaded() -> Result<Vec<u64>> {
    let output = Command::new("bpftool")
        .args(["-j", "prog", "list"])
        .output()
        .context("bpftool")?;
    let list: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout)?;
    Ok(list.iter().filter_map(|program| program["id"].as_u64()).collect())
}
