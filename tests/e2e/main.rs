//! End-to-end tests: real agents talk to real servers while Kams watches, and what Kams shows must be what the
//! servers recorded.
//!
//! `cargo test -p kams-tests --test e2e -- [FILTER] [--harness-only]`. With `--harness-only` no Kams is started and
//! only the agents, servers and witnesses are checked. Tests run one at a time: Kams watches the whole host.
#![forbid(unsafe_code)]
mod agents;
mod command;
mod context;
mod enforce;
mod forms;
mod policy;
mod servers;
mod transcripts;
mod trouble;
mod waste;
mod wrap;

use std::process::ExitCode;
use std::sync::Arc;

use context::Context;
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().collect();
    let before = words.len();
    words.retain(|word| word != "--harness-only");
    let context = Arc::new(Context::new(before != words.len()));
    let arguments = Arguments {
        test_threads: Some(1),
        ..Arguments::from_iter(words)
    };
    let trials = [
        transcripts::trials(&context),
        servers::trials(&context),
        agents::trials(&context),
        forms::trials(&context),
        policy::trials(&context),
        command::trials(&context),
        trouble::trials(&context),
        wrap::trials(&context),
        enforce::trials(&context),
        waste::trials(&context),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
}
