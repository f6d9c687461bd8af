//! The demo's MCP server: JSON-RPC lines on standard input and output.
#![forbid(unsafe_code)]

use std::io::{self, BufRead, Write};

use kams_demo::notes::Notes;

fn main() -> anyhow::Result<()> {
    let mut notes = Notes::default();
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        for answer in notes.answer(&serde_json::from_str(&line?)?) {
            writeln!(out, "{answer}")?;
        }
        out.flush()?;
    }
    Ok(())
}
