//! `cargo xtask bench overhead`: what processes that have nothing to do with MCP pay, in a guest whose clock counts
//! instructions, so that figures repeat on a busy machine too.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kams_vm_tests::plan::Program;

use super::{Bench, kernel, programs};
use crate::host::{is_root, must};

/// The kernel of the figures: peers were measured on it.
const KERNEL: &str = "6.1";
const LIMIT: Duration = Duration::from_mins(25);
/// Begin of the lines that the benchmark prints.
const LINES: &str = "overhead: ";

/// Rounds of the short form.
const SHORT: u32 = 1;

/// The short form, for every change: fails where a ratio is over its bound. Without the part of a whole daemon, which takes
/// longer than all others together.
pub(crate) fn short() -> Result<()> {
    guest(SHORT, &[])
}

/// Rounds in the guest and, beside it, on this machine.
pub(crate) fn run(rounds: u32) -> Result<()> {
    println!("guest with kernel {KERNEL}, one instruction is one nanosecond");
    let built = daemon()?;
    guest(rounds, &built)?;
    if !is_root() {
        println!("this machine: not root, not measured");
        return Ok(());
    }
    println!("this machine, noisy: other processes run, and clocks change their pace");
    let daemon = built.first().context("nothing was built")?;
    must(Command::new(program()?).arg(rounds.to_string()).arg(daemon))
}

fn program() -> Result<PathBuf> {
    programs::built(
        &["build", "-p", "kams-host", "--example", "bench_overhead"],
        "bench_overhead",
    )
}

/// What the benchmark starts for the part with a whole daemon; the first starts the others, which lie beside it.
const DAEMON: [&str; 6] = [
    "kams-relayed",
    "kamsd",
    "kams",
    "kams-relay",
    "line-agent",
    "desk-server",
];

fn daemon() -> Result<Vec<PathBuf>> {
    let packages = ["-p", "kams-agent", "-p", "kams-relay", "-p", "kams-tests"];
    programs::built_all(&[&["build", "--bins"], &packages[..]].concat(), &DAEMON)
}

/// The guest's part; fails where a ratio is over its bound. `daemon`: what [`daemon`] built, or nothing.
fn guest(rounds: u32, daemon: &[PathBuf]) -> Result<()> {
    let relayed = if daemon.is_empty() {
        "-"
    } else {
        "/kams/kams-relayed"
    };
    let bench = Bench::set_up()?;
    let kernel = kernel(KERNEL)?;
    let images = bench.images(&[kernel])?;
    let plan = Program {
        name: "overhead".to_owned(),
        command: ["/tests/overhead", &rounds.to_string(), relayed, "--check"]
            .map(str::to_owned)
            .to_vec(),
        environment: Vec::new(),
        limit: LIMIT,
    };
    // The second is the server of the benchmark's agent.
    let mut files = vec![
        (program()?, "tests/overhead".to_owned()),
        ("/bin/cat".into(), "bin/cat".to_owned()),
    ];
    let places = DAEMON.iter().map(|name| format!("kams/{name}"));
    files.extend(daemon.iter().cloned().zip(places));
    let archive = bench.archive("overhead", &files, &[plan])?;
    for image in &images {
        let mut guest = bench.guest(&kernel, image, archive.clone());
        guest.count_instructions = true;
        guest.limit = LIMIT;
        // As a host of this distribution boots: its own security modules take part in every read and write.
        guest.kernel_arguments.clear();
        let run = guest.run(&mut std::io::sink());
        for line in run.log.lines() {
            if let Some((_, said)) = line.split_once(LINES) {
                println!("{}", said.trim_end());
            }
        }
        println!("{} in {:.0} s", image.release, run.time.as_secs_f64());
        if let Err(failure) = run.verdict {
            println!("{}", run.log);
            bail!("{failure}");
        }
    }
    Ok(())
}
