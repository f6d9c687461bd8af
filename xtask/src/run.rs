//! `cargo xtask run`: builds Kams, starts the daemon as root and prints what it sees.

use anyhow::Result;

/// How to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Let the demo's agent and server play a scene.
    #[arg(long)]
    demo: bool,
    /// Handed to the daemon.
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    drop((arguments.demo, &arguments.rest));
    Ok(())
}
