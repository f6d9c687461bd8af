//! `cargo xtask bench NAME`: builds for release and hands over to the benchmark's program.

use std::process::Command;

use anyhow::{Result, bail};

use crate::host::{self, cargo, is_root, must};
use crate::vm;

/// The one benchmark that boots a guest.
const OVERHEAD: &str = "overhead";
/// Its rounds, unless others are asked for.
const OVERHEAD_ROUNDS: u32 = 5;

/// Which benchmark.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name; without one they are listed.
    name: Option<String>,
    /// Handed to the benchmark.
    #[arg(last = true)]
    rest: Vec<String>,
}

struct Bench {
    name: &'static str,
    about: &'static str,
    package: &'static str,
    program: Program,
}

/// What runs it.
#[derive(Clone, Copy)]
enum Program {
    /// A program of the package with these arguments; it loads kernel programs.
    Host(&'static str, &'static [&'static str]),
    /// A program of the package beside the daemon's; what else it is handed.
    Beside(&'static str, fn() -> Result<Vec<String>>),
    /// An example of the package; anybody may run it.
    Example(&'static str),
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "relay",
        about: "what a relay adds to a call, beside floors and another guard",
        package: "kams-tests",
        program: Program::Beside("relay-bench", peer),
    },
    Bench {
        name: "churn",
        about: "100,000 short-lived processes and 1,000 servers: what they cost and what stays behind (-- PROCESSES SERVERS)",
        package: "kams-tests",
        program: Program::Host("kams-bench", &["churn"]),
    },
    Bench {
        name: "memory",
        about: "memory of the daemon and its relays with no, one and 100 servers (-- SERVERS)",
        package: "kams-tests",
        program: Program::Host("kams-bench", &["memory"]),
    },
    Bench {
        name: "detect",
        about: "time of the text detectors by size and kind of input",
        package: "kams-detect",
        program: Program::Example("bench_detect"),
    },
    Bench {
        name: "egress",
        about: "time of the scan of arguments for secrets",
        package: "kams-detect",
        program: Program::Example("bench_egress"),
    },
    Bench {
        name: "waste",
        about: "time and memory of the waste rules: 10,000 calls, 5 MB of definitions, 100 KB arguments, a telemetry export",
        package: "kams-detect",
        program: Program::Example("bench_waste"),
    },
    Bench {
        name: "policy",
        about: "load of 10,000 rules, and an event that none, one or all of them match",
        package: "kams-policy",
        program: Program::Example("bench_policy"),
    },
    Bench {
        name: "verdict",
        about: "time of a verdict, all detectors on",
        package: "kams-agent",
        program: Program::Example("bench_verdict"),
    },
];

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Some(name) = &arguments.name else {
        println!(
            "{OVERHEAD:<12} what processes that have nothing to do with MCP pay (in a guest; -- ROUNDS)"
        );
        for bench in BENCHES {
            println!("{:<12} {}", bench.name, bench.about);
        }
        return Ok(());
    };
    if name == OVERHEAD {
        let rounds = arguments
            .rest
            .first()
            .map_or(Ok(OVERHEAD_ROUNDS), |text| text.parse())?;
        return vm::overhead::run(rounds);
    }
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        bail!("no benchmark is called `{name}`; `cargo xtask bench` lists them");
    };
    let daemon = || {
        must(cargo().args([
            "build",
            "-q",
            "--release",
            "--bins",
            "--locked",
            "-p",
            "kams-agent",
            "-p",
            "kams-relay",
            "-p",
            bench.package,
        ]))
    };
    let mut command = cargo();
    command.args(["run", "-q", "--release", "--locked", "-p", bench.package]);
    match bench.program {
        Program::Host(program, args) => {
            if !is_root() {
                bail!("this benchmark loads kernel programs: as root, type cargo xtask bench {name}");
            }
            daemon()?;
            command.args(["--bin", program, "--"]).args(args);
        }
        Program::Beside(program, more) => {
            daemon()?;
            command.args(["--bin", program, "--"]).args(more()?);
        }
        Program::Example(example) => {
            command.args(["--example", example, "--"]);
        }
    }
    must(command.args(&arguments.rest))
}

/// Programs to measure, and the command of another guard where it can be installed: the fastest one that inspects
/// and was found in a registry.
fn peer() -> Result<Vec<String>> {
    let mut words = vec![host::target().join("release").display().to_string()];
    let folder = host::target().join("bench/peer");
    let guard = folder.join("bin/bastiongate");
    if !guard.exists() {
        must(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&folder),
        )?;
        let requirements = host::root().join("tests/python/bench.txt");
        let mut install = Command::new(folder.join("bin/pip"));
        install.args([
            "install",
            "-q",
            "--require-hashes",
            "--no-deps",
            "--disable-pip-version-check",
            "-r",
        ]);
        if let Err(error) = must(install.arg(requirements)) {
            println!("the other guard is left out: {error:#}");
            return Ok(words);
        }
    }
    let log = folder.join("log.jsonl");
    words.push("--peer".to_owned());
    words.extend([
        guard.display().to_string(),
        "run".to_owned(),
        "--log".to_owned(),
        log.display().to_string(),
    ]);
    words.push("--".to_owned());
    Ok(words)
}
