//! `relay-bench PROGRAMS [--peer COMMAND...]`: what `kams wrap` adds to a call, beside the floors and another guard.
//! PROGRAMS is the folder with `kams`. Roles that it starts itself in: `serve`, `copy COMMAND`, `inspect COMMAND`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use kams_tests::relay_bench::measure::{Row, calls, starts};
use kams_tests::relay_bench::{floor, server};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Sizes of results and how often each is asked for.
const SIZES: [(&str, usize, usize); 3] = [
    ("300 B", 300, 2_000),
    ("64 KB", 64 << 10, 400),
    ("1 MB", 1 << 20, 60),
];

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let rest = words.get(2..).unwrap_or_default();
    match words.get(1).map(String::as_str) {
        Some("serve") => server::serve(),
        Some("copy") => floor::copy(rest),
        Some("inspect") => floor::inspect(rest),
        Some(programs) => run(Path::new(programs), rest),
        None => bail!("usage: relay-bench PROGRAMS [--peer COMMAND...]"),
    }
}

struct Relay {
    name: String,
    command: Vec<String>,
}

fn run(programs: &Path, rest: &[String]) -> Result<()> {
    let own = std::env::current_exe()?.to_string_lossy().into_owned();
    let direct = vec![own.clone(), "serve".to_owned()];
    let state = std::env::temp_dir().join(format!("relay-bench-{}", std::process::id()));
    let kams = programs.join("kams").to_string_lossy().into_owned();
    let wrap = [
        "env",
        &format!("XDG_STATE_HOME={}", state.display()),
        &kams,
        "wrap",
        "--enforce",
        "--",
    ];
    let relay = |name: &str, before: &[&str]| Relay {
        name: name.to_owned(),
        command: before
            .iter()
            .map(ToString::to_string)
            .chain(direct.iter().cloned())
            .collect(),
    };
    let mut relays = vec![
        relay("copying floor", &[&own, "copy"]),
        relay("inspecting floor", &[&own, "inspect"]),
        relay("kams, enforcing", &wrap),
    ];
    if let Some((_, peer)) = rest.split_first() {
        let peer: Vec<&str> = peer.iter().map(String::as_str).collect();
        relays.push(relay("peer guard", &peer));
    }
    let cpus = sched_getaffinity(None)?;
    for pinned in [true, false] {
        if pinned {
            let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| cpus.is_set(*cpu));
            let mut one = CpuSet::new();
            one.set(last.context("a CPU")?);
            sched_setaffinity(None, &one)?;
        } else {
            sched_setaffinity(None, &cpus)?;
        }
        table(&relays, &direct, pinned)?;
    }
    std::fs::remove_dir_all(&state)?;
    Ok(())
}

fn table(relays: &[Relay], direct: &[String], pinned: bool) -> Result<()> {
    let mut out = std::io::stdout();
    let where_ = if pinned {
        "pinned to one CPU"
    } else {
        "on all CPUs"
    };
    writeln!(
        out,
        "\n{where_}: microseconds; added = median less the direct median of the same run"
    )?;
    writeln!(
        out,
        "{:<18} {:<6} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9}",
        "relay", "result", "direct", "p50", "added", "p99", "x floor", "MB/s", "peak KiB"
    )?;
    let mut floors = [0.0; SIZES.len()];
    for relay in relays {
        for (at, (label, size, count)) in SIZES.into_iter().enumerate() {
            // A guard that takes half a second for a call is not asked a thousand times.
            let count = if relay.name == "peer guard" {
                count / 8
            } else {
                count
            };
            let row: Row = calls(direct, &relay.command, size, count)?;
            if floors[at] == 0.0 {
                floors[at] = row.added();
            }
            writeln!(
                out,
                "{:<18} {label:<6} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>8.1} {:>9.1} {:>9}",
                relay.name,
                row.direct,
                row.p50,
                row.added(),
                row.p99,
                row.added() / floors[at],
                row.rate,
                row.memory
            )?;
        }
        let (alone, relayed) = starts(direct, &relay.command, 10)?;
        writeln!(
            out,
            "{:<18} start  {:>8.1}m {:>8.1}m {:>8.1}m   (ms to the first answer)",
            relay.name,
            alone,
            relayed,
            relayed - alone
        )?;
    }
    Ok(())
}
