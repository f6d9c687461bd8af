//! The demo's MCP server: JSON-RPC lines on standard input and output.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stderr,
    reason = "what reached it is half of what the demo shows"
)]

use std::io::{self, BufRead, Write};

use kams_demo::notes::Notes;

fn main() -> anyhow::Result<()> {
    let mut notes = Notes::default();
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let message: serde_json::Value = serde_json::from_str(&line?)?;
        if message.get("method").is_some_and(|method| method == "tools/call") {
            let tool = message
                .pointer("/params/name")
                .and_then(serde_json::Value::as_str);
            eprintln!(
                "demo:   the server was asked for {}",
                tool.unwrap_or("a tool without a name")
            );
        }
        for answer in notes.answer(&message) {
            writeln!(out, "{answer}")?;
        }
        out.flush()?;
    }
    Ok(())
}
