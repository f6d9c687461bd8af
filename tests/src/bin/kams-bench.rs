//! Benchmarks of a running Kams that need real processes: `kams-bench churn [COUNT]`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use kams_tests::churn;
use kams_tests::kams::Kams;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("churn") => {
            let count = args
                .next()
                .map_or(Ok(100_000), |count| count.parse())
                .context("COUNT is a number")?;
            churn(count)
        }
        other => bail!("no benchmark {other:?}; there is: churn"),
    }
}

/// Short-lived processes without and with Kams: what they cost, and what stays behind.
fn churn(count: u32) -> Result<()> {
    let programs = std::env::current_exe()?.parent().context("a folder")?.to_owned();
    let mut out = std::io::stdout();
    let timed = |count| -> Result<f64> {
        let start = Instant::now();
        churn::processes(count)?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    };
    let bare = timed(count.min(10_000))?;
    let kams = Kams::start(&programs, "")?;
    let samples = |kams: &Kams| -> Result<[f64; 3]> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", kams.pid()))?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("VmRSS")?;
        let resident: f64 = resident.trim().trim_end_matches(" kB").parse()?;
        Ok([
            resident / 1024.0,
            kams.metric("kams_map_entries")?,
            kams.metric("kams_sensor_lost_total")?,
        ])
    };
    // The first tenth brings allocators and caches to their working size.
    churn::processes(count / 10)?;
    let before = samples(&kams)?;
    let watched = timed(count)?;
    let after = samples(&kams)?;
    writeln!(
        out,
        "{count} processes: {bare:.0} us each without Kams, {watched:.0} us with it"
    )?;
    for (what, (before, after)) in ["MiB resident", "map entries", "losses"]
        .iter()
        .zip(before.iter().zip(after))
    {
        writeln!(out, "{what}: {before:.1} before, {after:.1} after")?;
    }
    ensure!(after[2] - before[2] < 0.5, "records were lost");
    ensure!(
        after[1] - before[1] < f64::from(count) / 1_000.0,
        "entries stayed in the maps"
    );
    ensure!(after[0] - before[0] < 16.0, "kamsd has grown");
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "kamsd ended with {status}\n{log}");
    Ok(())
}
