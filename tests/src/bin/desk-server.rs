//! An MCP server that does what it is asked: every tool succeeds, whatever its name.
//!
//! Its list of tools is the JSON array in the file `$DESK_TOOLS`, read again at each `tools/list`. A call fails where
//! its arguments have `"fail": true`; the tool `sh` runs `arguments.line` in a shell and gives what it wrote and its exit
//! status; the tool `big` answers with `arguments.bytes` bytes of text.
#![forbid(unsafe_code)]

use std::io::{self, BufRead, Write};
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

fn main() -> Result<()> {
    let mut input = io::stdin().lock();
    let mut line = String::new();
    while input.read_line(&mut line)? != 0 {
        let message: Value = serde_json::from_str(&line)?;
        line.clear();
        let Some(id) = message.get("id") else { continue };
        let params = &message["params"];
        let result = match message["method"].as_str() {
            Some("initialize") => json!({"protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "desk-server", "version": "1.0.0"}}),
            Some("tools/list") => json!({"tools": tools()?}),
            Some("tools/call") => call(params)?,
            _ => json!({}),
        };
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn tools() -> Result<Value> {
    match std::env::var_os("DESK_TOOLS") {
        Some(file) => Ok(serde_json::from_slice(&std::fs::read(file)?)?),
        None => Ok(json!([])),
    }
}

fn call(params: &Value) -> Result<Value> {
    let arguments = &params["arguments"];
    let text = match params["name"].as_str() {
        Some("sh") => {
            let line = arguments["line"].as_str().unwrap_or_default();
            let run = Command::new("sh").args(["-c", line]).output()?;
            let said = [run.stdout, run.stderr].concat();
            format!(
                "{}\n{}",
                run.status.code().unwrap_or(-1),
                String::from_utf8_lossy(&said)
            )
        }
        Some("big") => {
            let bytes = usize::try_from(arguments["bytes"].as_u64().unwrap_or(0))?;
            "word ".repeat(bytes / 5)
        }
        _ => "done".to_owned(),
    };
    let failed = arguments["fail"] == true;
    Ok(json!({"content": [{"type": "text", "text": text}], "isError": failed}))
}
