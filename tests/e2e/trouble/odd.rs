//! Odd agents and servers under the shared daemon.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::compare::{Rigour, compare};
use kams_tests::event::Event;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use kams_tests::{churn, wire};
use libtest_mimic::Trial;

use crate::context::{
    Context, FORM_AGENT, FORM_SERVER, ODD_AGENT, Scene, Verdict, barrier, base_name, one_talk, only, settled,
};

/// Processes of the churn test: enough to run over any map that leaks one entry each and is small. The full
/// figure is `cargo xtask bench churn`.
const CHURN: u32 = 2_000;

/// Calls that the bystander makes on its pipe.
const BYSTANDER: u32 = 20_000;

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let exact = Verdict::Same(Rigour::Exact);
    let scene = |name: &str, server: String, verdict, play: fn(&Stage) -> Result<()>| {
        context.trial(Scene {
            name: format!("trouble::{name}"),
            agent: "odd-agent",
            server,
            verdict,
            packages: false,
            play: Box::new(play),
        })
    };
    let usual = || format!("bin:{}", base_name(FORM_SERVER));
    vec![
        scene("binary-on-stdout", usual(), exact, |stage| {
            odd(stage, &["tool", "binary", FORM_SERVER])
        }),
        scene("failing-tools", usual(), exact, |stage| {
            odd(stage, &["tool", "fail", FORM_SERVER])
        }),
        scene("refusing-tools", usual(), exact, |stage| {
            odd(stage, &["tool", "refuse", FORM_SERVER])
        }),
        scene("session-left-to-a-child", usual(), exact, |stage| {
            odd(stage, &["heir", FORM_SERVER])
        }),
        scene("server-named-like-kams", "bin:kamsd".to_owned(), exact, |stage| {
            masked(stage, "kamsd")
        }),
        scene(
            "server-named-like-an-agent",
            "bin:claude".to_owned(),
            exact,
            |stage| masked(stage, "bin/claude"),
        ),
        context.with_kams("trouble::four-agents-with-16-mib", four_agents),
        context.with_kams(
            "trouble::short-sessions-beside-large-ones",
            short_sessions_beside_large_ones,
        ),
        context.with_kams("trouble::no-newline-ever", no_newline),
        context.with_kams("trouble::agent-killed", agent_killed),
        context.with_kams("trouble::server-vanishes", server_vanishes),
        context.with_kams("trouble::churn", churned),
        context.with_kams("trouble::pid-reused", pid_reused),
        context.with_kams("trouble::bystander", bystander),
    ]
}

fn odd(stage: &Stage, words: &[&str]) -> Result<()> {
    let mut agent = stage.command(ODD_AGENT);
    stage
        .run_well(agent.args(words).env("KAMS_WITNESS", stage.path("witness")))
        .map(drop)
}

/// The server under another file name and another process name.
fn masked(stage: &Stage, name: &str) -> Result<()> {
    let server = stage.path(name);
    std::fs::create_dir_all(server.parent().context("a folder")?)?;
    std::fs::copy(FORM_SERVER, &server)?;
    let path = server.to_string_lossy().into_owned();
    odd(stage, &["tool", "echo", &path, "--comm", &base_name(name)])
}

fn four_agents(context: &Context) -> Result<()> {
    together(context, &["pipe-16m", "socket-16m", "pipe-16m", "socket-16m"], 0)
}

/// What is judged for seconds must not hide who comes meanwhile.
fn short_sessions_beside_large_ones(context: &Context) -> Result<()> {
    together(context, &["pipe-16m", "socket-16m"], 40)
}

/// Plays these forms at the same time, and beside them short sessions one after the other; all must be seen exactly.
fn together(context: &Context, large: &[&str], short: usize) -> Result<()> {
    let kams = context.kams()?;
    let mark = kams.mark();
    let stage_each = |n: usize| (0..n).map(|_| Stage::new()).collect::<Result<Vec<_>>>();
    let (of_large, of_short) = (stage_each(large.len())?, stage_each(short)?);
    let form = |stage: &Stage, case: &str| {
        let mut agent = stage.command(FORM_AGENT);
        agent
            .args([case, FORM_SERVER])
            .env("KAMS_WITNESS", stage.path("witness"));
        stage.run_well(&mut agent).map(drop)
    };
    std::thread::scope(|scope| -> Result<()> {
        let running: Vec<_> = of_large
            .iter()
            .zip(large)
            .map(|(stage, case)| scope.spawn(move || form(stage, case)))
            .collect();
        for stage in &of_short {
            odd(stage, &["tool", "echo", FORM_SERVER])?;
        }
        for run in running {
            run.join()
                .map_err(|_panic| anyhow::anyhow!("an agent's thread failed"))??;
        }
        Ok(())
    })?;
    let talks: Vec<_> = of_large
        .iter()
        .chain(&of_short)
        .map(one_talk)
        .collect::<Result<_>>()?;
    let seen = settled(&kams, mark, &talks.iter().collect::<Vec<_>>())?;
    for (talk, seen) in talks.iter().zip(seen) {
        compare(talk, &only(vec![seen])?, Rigour::Exact)?;
    }
    Ok(())
}

fn no_newline(context: &Context) -> Result<()> {
    let kams = context.kams()?;
    let before = resident_mib(&kams)?;
    let mark = kams.mark();
    let stage = Stage::new()?;
    odd(&stage, &["drain", FORM_SERVER])?;
    let events = only(settled(&kams, mark, &[&one_talk(&stage)?])?)?;
    let told = |event: &Event| event.event == "malformed" || event.event == "gap" || event.gap;
    ensure!(
        events.iter().any(told),
        "80 MiB without a newline went by without a word: {events:#?}"
    );
    let growth = resident_mib(&kams)? - before;
    ensure!(growth < 160, "kamsd has grown by {growth} MiB");
    Ok(())
}

fn resident_mib(kams: &Kams) -> Result<i64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", kams.pid()))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .context("VmRSS")?;
    let kib: i64 = line
        .split_ascii_whitespace()
        .nth(1)
        .context("a number")?
        .parse()?;
    Ok(kib / 1024)
}

/// Starts an agent that stops after its first call, and waits until it has.
pub(super) fn paused(stage: &Stage) -> Result<Child> {
    let mut agent = stage.command(ODD_AGENT);
    agent
        .args(["pause", FORM_SERVER])
        .env("KAMS_WITNESS", stage.path("witness"));
    let mut child = agent.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().context("piped output")?).read_line(&mut line)?;
    ensure!(line == "paused\n", "the agent says {line:?}");
    Ok(child)
}

fn agent_killed(context: &Context) -> Result<()> {
    let kams = context.kams()?;
    let mark = kams.mark();
    let stage = Stage::new()?;
    let mut agent = paused(&stage)?;
    agent.kill()?;
    agent.wait()?;
    let talk = one_talk(&stage)?;
    compare(&talk, &only(settled(&kams, mark, &[&talk])?)?, Rigour::Exact)?;
    let gone = |event: &Event| event.event == "agent_gone" && event.agent_pid == Some(agent.id());
    kams.wait(mark, "the agent's end", |events| events.iter().any(gone))
        .map(drop)
}

fn server_vanishes(context: &Context) -> Result<()> {
    let kams = context.kams()?;
    let mark = kams.mark();
    let stage = Stage::new()?;
    let mut agent = stage.command(ODD_AGENT);
    agent
        .args(["tool", "vanish", FORM_SERVER])
        .env("KAMS_WITNESS", stage.path("witness"));
    let run = stage.run(&mut agent)?;
    ensure!(
        !run.status.success(),
        "the agent got an answer from a server that ended"
    );
    let events = only(settled(&kams, mark, &[&one_talk(&stage)?])?)?;
    let unanswered = |event: &Event| event.outcome.as_deref() == Some("no_answer");
    ensure!(
        events.iter().any(unanswered),
        "the open call is not closed: {events:#?}"
    );
    Ok(())
}

fn churned(context: &Context) -> Result<()> {
    let kams = context.kams()?;
    let lost = kams.metric("kams_sensor_lost_total")?;
    let entries = kams.metric("kams_map_entries")?;
    churn::processes(CHURN)?;
    let mark = kams.mark();
    let stage = Stage::new()?;
    odd(&stage, &["tool", "echo", FORM_SERVER])?;
    let talk = one_talk(&stage)?;
    compare(&talk, &only(settled(&kams, mark, &[&talk])?)?, Rigour::Exact)?;
    let lost = kams.metric("kams_sensor_lost_total")? - lost;
    ensure!(lost < 0.5, "{lost} losses");
    let growth = kams.metric("kams_map_entries")? - entries;
    ensure!(
        growth < f64::from(CHURN) / 100.0,
        "{growth} entries stayed in the maps"
    );
    Ok(())
}

fn pid_reused(context: &Context) -> Result<()> {
    let kams = context.kams()?;
    let mark = kams.mark();
    let first = Stage::new()?;
    let mut agent = paused(&first)?;
    let pid = agent.id();
    agent.kill()?;
    agent.wait()?;
    // The kernel gives the number after the last one; other processes of the host may take it first.
    for _ in 0..50 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())?;
        let second = Stage::new()?;
        let mut agent = second.command(ODD_AGENT);
        agent
            .args(["tool", "echo", FORM_SERVER])
            .env("KAMS_WITNESS", second.path("witness"));
        let mut child = agent.spawn()?;
        let same = child.id() == pid;
        child.wait()?;
        if !same {
            continue;
        }
        // Both agents have the same number, so each must be shown with two servers, one of them its own.
        for (stage, other) in [(&first, &second), (&second, &first)] {
            let (talk, other) = (one_talk(stage)?, one_talk(other)?);
            let mut servers = settled(&kams, mark, &[&talk, &other])?.remove(0);
            ensure!(
                servers.len() == 2,
                "two agents with one process id started {} servers",
                servers.len()
            );
            servers.retain(|_, events| events.iter().any(|event| event.server_pid == Some(talk.pid)));
            compare(&talk, &only(vec![servers])?, Rigour::Exact)?;
        }
        return Ok(());
    }
    anyhow::bail!("process id {pid} could not be had again")
}

/// A process that is no agent: not a byte of it may be read.
fn bystander(context: &Context) -> Result<()> {
    let kams = context.kams()?;
    // Payload is read as long as an agent lives, so let one live.
    let stage = Stage::new()?;
    let mut agent = paused(&stage)?;
    // What that agent said so far must have gone through the daemon: it is counted where it is looked at.
    barrier(&kams, kams.mark())?;
    let events = |kams: &Kams| kams.metrics().map(payload);
    let before = events(&kams)?;
    let line = format!("dd if=/dev/zero bs=1 count={BYSTANDER} status=none | cat | wc -c");
    let mut shell = stage.command("sh");
    let run = stage.run_well(shell.args(["-c", &line]))?;
    ensure!(
        run.stdout.trim() == BYSTANDER.to_string(),
        "the bystander printed {}",
        run.stdout
    );
    let read = events(&kams)? - before;
    // And what the daemon had not looked at by then: the barrier's own bytes are few.
    barrier(&kams, kams.mark())?;
    let with_barrier = events(&kams)? - before;
    drop(agent.stdin.take());
    agent.wait()?;
    ensure!(
        read == 0.0,
        "{read} payload records of a process that is no agent"
    );
    ensure!(
        with_barrier < f64::from(BYSTANDER) / 20.0,
        "{with_barrier} payload records of a process that is no agent, and of a short session"
    );
    wire::talks(&stage.path("witness")).map(drop)
}

/// Records that carry bytes.
fn payload(metrics: std::collections::BTreeMap<String, f64>) -> f64 {
    metrics
        .into_iter()
        .filter(|(name, _)| name.starts_with("kams_sensor_events_total") && name.contains("payload"))
        .map(|(_, value)| value)
        .sum()
}
