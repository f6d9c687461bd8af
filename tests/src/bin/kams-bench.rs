//! Benchmarks of a running Kams that need real processes: `kams-bench churn [PROCESSES [SERVERS]]`,
//! `kams-bench memory [SERVERS]`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kams_tests::churn;
use kams_tests::desk::Desk;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;

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

/// Servers that live at once, unless another number is asked for: that of the target in the design.
const SERVERS: usize = 100;
/// A daemon that relays every server from its first start on.
const RELAYED: &str = "mode: enforce\nrelay: candidates\nwatch:\n  unknown_agents: ignore\n  agents: [{name: line-agent, executable: line-agent}]\n";

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
        Some("memory") => memory(args.next().map_or(Ok(SERVERS), |text| text.parse())?),
        other => bail!("no benchmark {other:?}; there are: churn, memory"),
    }
}

/// What the worker and the relays take with no, one and `most` servers, each in a session of its own.
fn memory(most: usize) -> Result<()> {
    let programs = std::env::current_exe()?.parent().context("a folder")?.to_owned();
    let (agent, server) = (programs.join("line-agent"), programs.join("desk-server"));
    let (agent, server) = (agent.to_string_lossy(), server.to_string_lossy());
    let kams = Kams::start(&programs, RELAYED)?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{:<10}{:>14}{:>14}{:>14}{:>14}{:>10}{:>16}{:>16}",
        "servers",
        "worker anon",
        "worker file",
        "worker shmem",
        "worker all",
        "relays",
        "anon per relay",
        "all per relay"
    )?;
    let mut sessions = Vec::new();
    for count in [0, 1, most] {
        while sessions.len() < count {
            let stage = Stage::new()?;
            let mut session = Desk::open(&stage, &agent, &server, None)?;
            session.ask("tools/list", &serde_json::json!({}))?;
            session.call("anything", &serde_json::json!({}))?;
            sessions.push((session, stage));
        }
        kams.ask_until(&["servers"], "relays before all of them", |answer| {
            let servers = answer["servers"].as_array();
            servers.is_some_and(|all| all.iter().filter(|one| one["state"] == "relayed").count() == count)
        })?;
        let worker = resident(kams.pid()).context("the worker")?;
        let relays: Vec<_> = relays().into_iter().filter_map(resident).collect();
        let each = |index: usize| {
            let sum: f64 = relays
                .iter()
                .map(|one| one.0.get(index).copied().unwrap_or_default())
                .sum();
            sum / f64::from(u32::try_from(relays.len().max(1)).unwrap_or(1))
        };
        let all = |index: usize| worker.0.get(index).copied().unwrap_or_default();
        writeln!(
            out,
            "{count:<10}{:>10.1} MiB{:>10.1} MiB{:>10.1} MiB{:>10.1} MiB{:>10}{:>12.2} MiB{:>12.2} MiB",
            all(0),
            all(1),
            all(2),
            all(0) + all(1) + all(2),
            relays.len(),
            each(0),
            each(0) + each(1) + each(2)
        )?;
    }
    for (session, _stage) in sessions {
        session.close()?;
    }
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "kamsd ended with {status}\n{log}");
    Ok(())
}

/// MiB of a process's own, of files and of shared memory.
struct Resident([f64; 3]);

fn resident(pid: u32) -> Option<Resident> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kb: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
        Some(kb / 1024.0)
    };
    Some(Resident([
        value("RssAnon:")?,
        value("RssFile:")?,
        value("RssShmem:")?,
    ]))
}

/// Processes that are relays, or wait to be one.
fn relays() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_relay = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
            line.split(|byte| *byte == 0).nth(1) == Some(b"worker")
                && line.windows(10).any(|w| w == b"kams-relay")
        })
    };
    pids.filter(is_relay).collect()
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
    let programs = std::env::current_exe()?.parent().context("a folder")?.to_owned();
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
