//! Benchmarks of a running Kams that need real processes.
//!
//! `kams-bench churn [PROCESSES [SERVERS]]` measures by itself. `kams-bench relayed` is the background of another
//! benchmark: a daemon that enforces, and an agent whose one server has a relay.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kams_tests::churn;
use kams_tests::desk::Desk;
use kams_tests::event::Event;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use serde_json::json;

/// Short-lived processes and servers, unless others are asked for.
const COUNTS: [u32; 2] = [100_000, 1_000];
/// How long what servers left may take to be cleared: streams are looked after every half minute at least.
const SETTLE: Duration = Duration::from_secs(90);
/// What is sampled, and how much more of it there may be afterwards. What is told of servers and kept for readers is
/// bounded and not yet at its bound, hence the memory.
const GROWTH: [(&str, f64); 4] = [
    ("MiB resident", 16.0),
    ("entries in maps", 4.0),
    ("open descriptors", 4.0),
    ("losses", 0.0),
];

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("churn") => {
            let mut counts = COUNTS;
            for (count, given) in counts.iter_mut().zip(args) {
                *count = given.parse().context("counts are numbers")?;
            }
            churn(counts)
        }
        Some("relayed") => relayed(),
        other => bail!("no benchmark {other:?}; there are: churn, relayed"),
    }
}

/// Where the daemon's programs lie: beside this one.
fn programs() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.parent().context("a folder")?.to_owned())
}

/// Every server of the one known agent gets a relay.
const RELAYED: &str = "mode: enforce
relay: candidates
watch:
  unknown_agents: ignore
  agents:
  - {name: line-agent, executable: line-agent}
";

/// Says `relayed` once the daemon has put a relay before the agent's server and its payload programs have left the
/// host, and keeps it so until standard input ends. A success means that it was so throughout, and that the daemon
/// judged a call before and one after.
fn relayed() -> Result<()> {
    let programs = programs()?;
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

/// In the order of [`GROWTH`].
type Sample = [f64; GROWTH.len()];

fn sample(kams: &Kams) -> Result<Sample> {
    let process = format!("/proc/{}", kams.pid());
    let status = std::fs::read_to_string(format!("{process}/status"))?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("VmRSS")?;
    let resident: f64 = resident.trim().trim_end_matches(" kB").parse()?;
    let descriptors = u32::try_from(std::fs::read_dir(format!("{process}/fd"))?.count())?;
    Ok([
        resident / 1024.0,
        kams.metric("kams_map_entries")?,
        f64::from(descriptors),
        kams.metric("kams_sensor_lost_total")?,
    ])
}

/// What has grown by more than it may.
fn grown(before: &Sample, after: &Sample) -> Vec<&'static str> {
    let pairs = before.iter().zip(after).zip(&GROWTH);
    pairs
        .filter(|((before, after), (_, most))| *after - *before > *most)
        .map(|(_, (name, _))| *name)
        .collect()
}

/// Short-lived processes and servers with Kams: what they cost, and what stays behind.
fn churn([processes, servers]: [u32; 2]) -> Result<()> {
    let programs = programs()?;
    let server = programs.join("desk-server");
    let timed = |work: &dyn Fn() -> Result<()>, count: u32| -> Result<f64> {
        let start = Instant::now();
        work()?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(count.max(1)))
    };
    let few = processes.min(10_000);
    let bare = [
        timed(&|| churn::processes(few), few)?,
        timed(&|| churn::servers(&server, servers.min(100)), servers.min(100))?,
    ];
    let kams = Kams::start(&programs, "")?;
    // The first part brings allocators and caches to their working size, and makes this program known as an agent.
    churn::servers(&server, servers / 5 + 2)?;
    churn::processes(processes / 10)?;
    let mark = kams.mark();
    let before = sample(&kams)?;
    let watched = [
        timed(&|| churn::processes(processes), processes)?,
        timed(&|| churn::servers(&server, servers), servers)?,
    ];
    // Each server was seen to speak: else nothing was measured.
    let expected = usize::try_from(servers)?;
    kams.wait(mark, "every server", |events| {
        events
            .iter()
            .filter(|event| event.event == "server_confirmed")
            .count()
            >= expected
    })?;
    let began = Instant::now();
    let mut after = sample(&kams)?;
    while !grown(&before, &after).is_empty() && began.elapsed() < SETTLE {
        std::thread::sleep(Duration::from_secs(1));
        after = sample(&kams)?;
    }
    let mut out = std::io::stdout();
    let costs = [("process", processes), ("server", servers)];
    for (((what, count), bare), watched) in costs.iter().zip(bare).zip(watched) {
        writeln!(
            out,
            "{count} short-lived, each {what}: {bare:.0} us without Kams, {watched:.0} us with it"
        )?;
    }
    writeln!(out, "{:<18}{:>10}{:>10}{:>10}", "", "before", "after", "may grow")?;
    for (((name, most), before), after) in GROWTH.iter().zip(before).zip(after) {
        writeln!(out, "{name:<18}{before:>10.1}{after:>10.1}{most:>10.1}")?;
    }
    let grown = grown(&before, &after);
    ensure!(grown.is_empty(), "grown: {}", grown.join(", "));
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "kamsd ended with {status}\n{log}");
    Ok(())
}
