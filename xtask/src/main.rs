//! Developer commands.

mod ebpf;

use clap::Parser;

/// Developer commands of Kams.
#[derive(Parser)]
enum Command {
    /// Build the kernel object, or check the committed one.
    Ebpf(ebpf::Options),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Ebpf(options) => ebpf::run(options),
    }
}
