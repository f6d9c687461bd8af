//! Benchmarks of a running Kams that need real processes: `kams-bench churn [PROCESSES [SERVERS]]`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kams_tests::churn;
use kams_tests::kams::Kams;

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
        other => bail!("no benchmark {other:?}; there is: churn"),
    }
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
