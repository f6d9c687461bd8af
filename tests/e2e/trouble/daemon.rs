//! The daemon's own life: configuration, reload, off and on, the end. These start daemons of their own.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kams_tests::event::Event;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;

use crate::context::{Context, DRIVERS, FORM_AGENT, FORM_SERVER, ODD_AGENT, barrier, one_talk, programs};

/// How long the kernel may take to free programs.
const FREED: Duration = Duration::from_secs(5);

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("daemon::unknown-key", unknown_key),
        context.with_kams("daemon::reload", reload),
        context.with_kams("daemon::off-and-on", off_and_on),
        context.with_kams("daemon::adopts-what-runs", adopts),
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
    stop(kams)?;
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
