//! Developer commands: `cargo xtask COMMAND`. CI calls nothing else.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program for developers"
)]

mod bench;
mod ebpf;
mod fuzz;
mod host;
mod run;
mod setup;
mod suite;
mod tidy;
mod train;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of Kams.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what building and testing need: Debian packages (as root), npm and Python packages under target/.
    Setup,
    /// Build Kams, start the daemon and print what it sees until Ctrl-C.
    Run(run::Arguments),
    /// Run every check: formatting, lints, all tests, a short fuzzing of each target.
    Test(suite::Arguments),
    /// Check the habits that no compiler checks.
    Tidy,
    /// Fuzz each target for a while.
    Fuzz(fuzz::Arguments),
    /// Build the kernel object, or check the committed one.
    Ebpf(ebpf::Options),
    /// Run a benchmark.
    Bench(bench::Arguments),
    /// Fit the weights of the wording signal from the texts in detect/corpus.
    Train(train::Arguments),
    /// Run the kernel-dependent tests on other kernels, under qemu.
    Vm(vm::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Setup => setup::run(),
        Command::Run(arguments) => run::run(&arguments),
        Command::Test(arguments) => suite::run(&arguments),
        Command::Tidy => tidy::run(),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Ebpf(options) => ebpf::run(options),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Train(arguments) => train::run(&arguments),
        Command::Vm(arguments) => vm::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
