//! The server: one tool, `echo`, whose result has the size that its argument says.

use std::io::{BufRead, Write};

use anyhow::Result;
use serde_json::{Value, json};

const PROSE: &str = "The harbour lay quiet in the early light, and the boats that had come in during the night were \
                     still dark. A man walked along the wall with a dog at his side and counted the gulls. ";

/// Serves until its input ends.
pub fn serve() -> Result<()> {
    let begun = super::session::clock();
    let mut out = std::io::stdout().lock();
    let mut prose = String::new();
    let mut line = String::new();
    let mut input = std::io::stdin().lock();
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let message: Value = serde_json::from_str(&line)?;
        let Some(id) = message.get("id") else { continue };
        let result = match message["method"].as_str() {
            Some("initialize") => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "bench", "version": "1"}, "_meta": {"begun": begun}}),
            Some("tools/list") => json!({"tools": [{"name": "echo", "description": "Returns prose.",
                "inputSchema": {"type": "object", "properties": {"size": {"type": "integer"}, "pad": {"type": "string"}}}}]}),
            Some("tools/call") => {
                let size = message["params"]["arguments"]["size"].as_u64().unwrap_or(0);
                let size = usize::try_from(size)?;
                while prose.len() < size {
                    prose.push_str(PROSE);
                }
                let text = prose.get(..size).unwrap_or_default();
                // Written by hand: the server's own time should not grow with the size.
                let head = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\""
                );
                out.write_all(&[head.as_bytes(), text.as_bytes(), b"\"}]}}\n"].concat())?;
                out.flush()?;
                continue;
            }
            _ => json!({}),
        };
        writeln!(out, "{}", json!({"jsonrpc": "2.0", "id": id, "result": result}))?;
        out.flush()?;
    }
}
