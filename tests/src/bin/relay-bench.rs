//! `relay-bench PROGRAMS [--only NAME] [--peer COMMAND...]`: what `kams wrap` adds to a call, beside the floors and another guard.
//! PROGRAMS is the folder with `kams`. As root also what a relay adds that the daemon injects. Roles that it starts itself
//! in: `serve`, `copy COMMAND`, `inspect COMMAND`, `agent COMMAND`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use kams_tests::kams::Kams;
use kams_tests::relay_bench::measure::{Row, calls, start, starts};
use kams_tests::relay_bench::remote::Remote;
use kams_tests::relay_bench::session::{Session, Start};
use kams_tests::relay_bench::{floor, remote, server};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Sizes of results and how often each is asked for.
const SIZES: [(&str, usize, usize); 3] = [
    ("300 B", 300, 2_000),
    ("64 KB", 64 << 10, 400),
    ("1 MB", 1 << 20, 60),
];

/// Starts of each.
const STARTS: usize = 30;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let rest = words.get(2..).unwrap_or_default();
    match words.get(1).map(String::as_str) {
        Some("serve") => server::serve(),
        Some("copy") => floor::copy(rest),
        Some("inspect") => floor::inspect(rest),
        Some("agent") => remote::agent(rest),
        Some(programs) => run(Path::new(programs), rest),
        None => bail!("usage: relay-bench PROGRAMS [--only NAME] [--peer COMMAND...]"),
    }
}

struct Relay {
    name: String,
    between: Between,
}

/// What stands between agent and server.
enum Between {
    /// A program that the agent starts in the server's place.
    Command(Vec<String>),
    /// A relay that the daemon injects where this agent starts its server.
    Injected {
        programs: PathBuf,
        agent: PathBuf,
        server: Vec<String>,
    },
}

/// Name of the agent's program, by which the daemon knows it.
const AGENT: &str = "relay-bench-agent";
/// Every server of the one known agent gets a relay.
const RELAYED: &str = "mode: enforce
relay: candidates
watch:
  unknown_agents: ignore
  agents:
  - {name: relay-bench, executable: relay-bench-agent}
";

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
        between: Between::Command(
            before
                .iter()
                .map(ToString::to_string)
                .chain(direct.iter().cloned())
                .collect(),
        ),
    };
    let mut relays = vec![
        relay("copying floor", &[&own, "copy"]),
        relay("inspecting floor", &[&own, "inspect"]),
        relay("kams, enforcing", &wrap),
    ];
    let (only, rest) = match rest {
        [option, name, rest @ ..] if option == "--only" => (Some(name), rest),
        rest => (None, rest),
    };
    if let Some((_, peer)) = rest.split_first() {
        let peer: Vec<&str> = peer.iter().map(String::as_str).collect();
        relays.push(relay("peer guard", &peer));
    }
    let agent = state.join(AGENT);
    if rustix::process::geteuid().is_root() {
        std::fs::create_dir_all(&state)?;
        std::fs::copy(&own, &agent)?;
        relays.push(Relay {
            name: "kams, injected".to_owned(),
            between: Between::Injected {
                programs: programs.to_owned(),
                agent,
                server: direct.clone(),
            },
        });
    }
    relays.retain(|relay| only.is_none_or(|name| relay.name.contains(name.as_str())));
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
        // It runs for its own rows alone, on the same CPUs as they.
        let daemon = match &relay.between {
            Between::Injected { programs, .. } => {
                let mut daemon = Kams::start(programs, RELAYED)?;
                daemon.unfollowed()?;
                Some(daemon)
            }
            Between::Command(_) => None,
        };
        for (at, (label, size, count)) in SIZES.into_iter().enumerate() {
            // A guard that takes half a second for a call is not asked a thousand times.
            let count = if relay.name == "peer guard" {
                count / 8
            } else {
                count
            };
            let row = row(relay, direct, size, count)?;
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
        let (alone, relayed) = match &relay.between {
            Between::Command(command) => starts(direct, || start(command), STARTS)?,
            Between::Injected { agent, server, .. } => {
                let mut remote = Remote::start(agent, server)?;
                // The first start of an agent that the daemon has not met tells nothing about the others.
                remote.once()?;
                let times = starts(direct, || remote.once(), STARTS)?;
                remote.end()?;
                times
            }
        };
        for (what, of) in [
            ("exec", (|s: &Start| s.begun) as fn(&Start) -> f64),
            ("start", |s| s.greeted),
        ] {
            let (alone, relayed) = (of(&alone), of(&relayed));
            writeln!(
                out,
                "{:<18} {what:<6} {alone:>8.2}m {relayed:>8.2}m {:>8.2}m   (ms until {})",
                relay.name,
                relayed - alone,
                if what == "exec" {
                    "the server's own code runs"
                } else {
                    "its first answer"
                }
            )?;
        }
        if let Some(daemon) = daemon {
            let metrics = daemon.metrics()?;
            ensure!(
                metrics.contains_key("kams_injections_total{result=\"injected\"}"),
                "the daemon injected no relay"
            );
            let (status, log) = daemon.stop()?;
            ensure!(status.success(), "kamsd ended with {status}\n{log}");
        }
    }
    Ok(())
}

fn row(relay: &Relay, direct: &[String], size: usize, count: usize) -> Result<Row> {
    match &relay.between {
        Between::Command(command) => {
            let mut session = Session::start(command)?;
            let row = calls(direct, &mut session, size, count)?;
            session.end()?;
            Ok(row)
        }
        Between::Injected { agent, server, .. } => {
            let mut remote = Remote::start(agent, server)?;
            let row = calls(direct, &mut remote, size, count)?;
            remote.end()?;
            Ok(row)
        }
    }
}
