//! `cargo xtask bench NAME`: builds for release and hands over to the benchmark's program.

use anyhow::{Result, bail};

use crate::host::{cargo, is_root, must};
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
    program: &'static str,
    args: &'static [&'static str],
}

const BENCHES: &[Bench] = &[Bench {
    name: "churn",
    about: "100,000 short-lived processes: what they cost and what stays behind",
    package: "kams-tests",
    program: "kams-bench",
    args: &["churn"],
}];

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
    if !is_root() {
        bail!("benchmarks load kernel programs: as root, type cargo xtask bench {name}");
    }
    must(cargo().args([
        "build",
        "-q",
        "--release",
        "--bins",
        "--locked",
        "-p",
        "kams-agent",
        "-p",
        bench.package,
    ]))?;
    let mut command = cargo();
    command.args([
        "run",
        "-q",
        "--release",
        "--locked",
        "-p",
        bench.package,
        "--bin",
        bench.program,
        "--",
    ]);
    must(command.args(bench.args).args(&arguments.rest))
}
