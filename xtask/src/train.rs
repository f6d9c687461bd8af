//! `cargo xtask train`: fits the weights of the wording signal from the texts in `detect/corpus`.

use anyhow::Result;

use crate::host::{cargo, must};

/// What to do with the weights; without a flag they are written.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Fail when the weights in the repository are not those that the texts give.
    #[arg(long)]
    check: bool,
    /// Cross-validate by group and score texts that were never trained on.
    #[arg(long, conflicts_with = "check")]
    report: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut command = cargo();
    command.args([
        "run",
        "-q",
        "--locked",
        "-p",
        "kams-detect",
        "--example",
        "train",
        "--",
    ]);
    if arguments.check {
        command.arg("--check");
    }
    if arguments.report {
        command.arg("--report");
    }
    must(&mut command)
}
