//! Many processes and many servers that live for a moment.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;

/// Starts `count` processes one after the other, each on pipes like a server's, and waits for each.
pub fn processes(count: u32) -> Result<()> {
    for _ in 0..count {
        let status = Command::new("/bin/true")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .status()?;
        ensure!(status.success(), "/bin/true ended with {status}");
    }
    Ok(())
}

/// Starts the MCP server `program` `count` times, one after the other: this process is the agent. Each session has a
/// handshake and one request, and ends by the end of the server's input.
pub fn servers(program: &Path, count: u32) -> Result<()> {
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "churn", "version": "1"}});
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}),
    ];
    for _ in 0..count {
        let mut server = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let mut to = server.stdin.take().context("piped input")?;
        let mut from = BufReader::new(server.stdout.take().context("piped output")?);
        for message in &messages {
            to.write_all(format!("{message}\n").as_bytes())?;
            let mut answer = String::new();
            ensure!(
                from.read_line(&mut answer)? > 0,
                "the server ended before it answered"
            );
        }
        drop(to);
        let status = server.wait()?;
        ensure!(status.success(), "the server ended with {status}");
    }
    Ok(())
}
