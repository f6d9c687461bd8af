//! `cargo xtask test`: every check, each named and timed, with one summary.
//!
//! A skipped test is listed with its reason; where `CI` is `true` it is a failure. Tests that need root carry
//! `#[ignore = "needs root: ..."]` and are run when we are root.

mod outcome;
mod step;

use anyhow::{Result, bail};

use crate::host::{self, cargo, has, is_root};
use crate::{ebpf, fuzz, setup, tidy, vm};
pub(crate) use outcome::Outcome;
use step::{commands, function, skipped, tests};

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the steps whose name contains this word.
    only: Option<String>,
}

/// One named check.
struct Step {
    name: &'static str,
    run: fn() -> Outcome,
}

/// Seconds of fuzzing per target.
const FUZZ_SMOKE: u32 = 10;

const STEPS: &[Step] = &[
    Step {
        name: "setup",
        run: || function(setup::run),
    },
    Step {
        name: "tidy",
        run: || function(tidy::run),
    },
    Step {
        name: "formatting",
        run: || commands(formatting()),
    },
    Step {
        name: "lints",
        run: || {
            let clippy = [
                "clippy",
                "-q",
                "--workspace",
                "--all-targets",
                "--locked",
                "--",
                "-D",
                "warnings",
            ];
            commands([with(clippy)])
        },
    },
    Step {
        name: "build",
        run: || commands([with(["build", "-q", "--workspace", "--bins", "--locked"])]),
    },
    Step {
        name: "unit",
        run: || {
            let unit = [
                "test",
                "--workspace",
                "--exclude",
                "kams-tests",
                "--lib",
                "--bins",
                "--tests",
                "--locked",
                "--no-fail-fast",
            ];
            tests(&with(unit), is_root())
        },
    },
    Step {
        name: "weights",
        run: || {
            commands([with([
                "run",
                "-q",
                "--locked",
                "-p",
                "kams-detect",
                "--example",
                "train",
                "--",
                "--check",
            ])])
        },
    },
    Step {
        name: "doc",
        run: || {
            tests(
                &with(["test", "--workspace", "--doc", "--locked", "--no-fail-fast"]),
                false,
            )
        },
    },
    Step {
        name: "harness",
        run: || {
            tests(
                &with([
                    "test",
                    "-p",
                    "kams-tests",
                    "--lib",
                    "--bins",
                    "--locked",
                    "--no-fail-fast",
                ]),
                is_root(),
            )
        },
    },
    Step {
        name: "replay",
        run: || tests(&end_to_end(&["transcripts::"]), false),
    },
    Step {
        name: "end-to-end",
        run: || tests(&end_to_end(&["--skip", "transcripts::"]), false),
    },
    Step {
        name: "ebpf",
        run: || {
            function(|| {
                ebpf::run(ebpf::Options {
                    check: true,
                    log: false,
                })
            })
        },
    },
    Step {
        name: "kernels",
        run: || vm::matrix(&vm::Arguments::usual()).unwrap_or_else(|error| function(|| Err(error))),
    },
    Step {
        name: "overhead",
        run: || function(vm::overhead::short),
    },
    Step {
        name: "fuzz",
        run: || fuzz::smoke(FUZZ_SMOKE),
    },
    Step {
        name: "alert rules",
        run: alert_rules,
    },
];

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let only = arguments.only.as_deref().unwrap_or_default();
    let mut done = Vec::new();
    for step in STEPS.iter().filter(|step| step.name.contains(only)) {
        println!("\n=== {}", step.name);
        let start = std::time::Instant::now();
        let outcome = (step.run)();
        done.push((step.name, start.elapsed(), outcome));
    }
    if done.is_empty() {
        bail!(
            "no step is called `{only}`: {}",
            STEPS.iter().map(|step| step.name).collect::<Vec<_>>().join(", ")
        );
    }
    println!("\n=== summary");
    let mut total = Outcome::default();
    for (name, time, outcome) in done {
        let verdict = if outcome.failed == 0 { "ok" } else { "FAILED" };
        println!(
            "{name:<12} {verdict:<7} {:>6.1} s  {} passed, {} failed, {} skipped",
            time.as_secs_f64(),
            outcome.passed,
            outcome.failed,
            outcome.skipped.len()
        );
        total.add(outcome);
    }
    for (name, reason) in &total.skipped {
        println!("skipped: {name}: {reason}");
    }
    for name in &total.failures {
        println!("failed: {name}");
    }
    let strict = std::env::var("CI").is_ok_and(|value| value == "true");
    if strict && !total.skipped.is_empty() {
        println!("in CI a skipped test is a failure");
        total.failed += total.skipped.len();
        total.skipped.clear();
    }
    println!(
        "{} passed, {} failed, {} skipped",
        total.passed,
        total.failed,
        total.skipped.len()
    );
    if total.failed > 0 {
        bail!("{} checks failed", total.failed);
    }
    Ok(())
}

fn with<const N: usize>(args: [&str; N]) -> std::process::Command {
    let mut command = cargo();
    command.args(args);
    command
}

/// Formatting of the workspace and of the packages that lie outside it.
fn formatting() -> Vec<std::process::Command> {
    let outside = fuzz::folders()
        .into_iter()
        .chain([host::root().join("sensor-ebpf")]);
    let manifests = outside
        .map(|folder| folder.join("Cargo.toml"))
        .filter(|manifest| manifest.exists());
    std::iter::once(with(["fmt", "--all", "--check"]))
        .chain(manifests.map(|manifest| {
            let mut command = with(["fmt", "--check", "--manifest-path"]);
            command.arg(manifest);
            command
        }))
        .collect()
}

fn end_to_end(args: &[&str]) -> std::process::Command {
    let mut command = with(["test", "-p", "kams-tests", "--test", "e2e", "--locked", "--"]);
    command.args(args);
    command
}

/// The alert rules that Kams ships, by Prometheus' own tool.
fn alert_rules() -> Outcome {
    let folder = host::root().join("dist/prometheus");
    let files = |ends_with: &str| -> Vec<_> {
        let entries = folder.read_dir().into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.to_string_lossy().ends_with(ends_with))
            .collect()
    };
    if !has("promtool") {
        return skipped(
            "alert rules",
            "promtool is not installed (Debian package prometheus)",
        );
    }
    let promtool = |verb: &str, paths: Vec<std::path::PathBuf>| {
        let mut command = std::process::Command::new("promtool");
        command.args([verb, "rules"]).args(paths).current_dir(&folder);
        command
    };
    commands([
        promtool("check", files(".rules.yml")),
        promtool("test", files(".test.yml")),
    ])
}
