//! `cargo xtask bench NAME`: builds for release and hands over to the benchmark's program.

use anyhow::{Result, bail};

use crate::host::{cargo, is_root, must};

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
    /// An example of the package; anybody may run it.
    Example(&'static str),
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "churn",
        about: "100,000 short-lived processes: what they cost and what stays behind",
        package: "kams-tests",
        program: Program::Host("kams-bench", &["churn"]),
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
        name: "verdict",
        about: "time of a verdict, all detectors on",
        package: "kams-agent",
        program: Program::Example("bench_verdict"),
    },
];

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Some(name) = &arguments.name else {
        for bench in BENCHES {
            println!("{:<12} {}", bench.name, bench.about);
        }
        return Ok(());
    };
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        bail!("no benchmark is called `{name}`; `cargo xtask bench` lists them");
    };
    let mut command = cargo();
    command.args(["run", "-q", "--release", "--locked", "-p", bench.package]);
    match bench.program {
        Program::Host(program, args) => {
            if !is_root() {
                bail!("this benchmark loads kernel programs: as root, type cargo xtask bench {name}");
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
            command.args(["--bin", program, "--"]).args(args);
        }
        Program::Example(example) => {
            command.args(["--example", example, "--"]);
        }
    }
    must(command.args(&arguments.rest))
}
