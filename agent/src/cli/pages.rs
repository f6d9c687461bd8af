//! Manual pages and completions, made from the command line's own definition.

use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Args, Out};

/// Completions for a shell.
pub(super) fn completions(shell: Shell, out: &mut Out) -> io::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "kams", &mut text);
    out.raw(&text)
}

/// The page of `kams` itself, or all pages into a folder.
pub(super) fn man(folder: Option<&Path>, out: &mut Out) -> io::Result<()> {
    if let Some(folder) = folder {
        return clap_mangen::generate_to(Args::command(), folder);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Args::command()).render(&mut page)?;
    out.raw(&page)
}
