//! An MCP server that does what it is asked: every tool succeeds, whatever its name.
//!
//! Its list of tools is the JSON array in the file `$DESK_TOOLS`, read again at each `tools/list`. A call fails where
//! its arguments have `"fail": true`; the tool `sh` runs `arguments.line` in a shell and gives what it wrote and its exit
//! status; `big` answers with `arguments.bytes` bytes of text, `say` with `arguments.text`, `pid` with its process id;
//! `shout` writes a line to standard error first.
//! `end` ends it with the exit status `arguments.status`, without an answer. What is no JSON it passes over. Where
//! `$DESK_LOG` names a folder, the files `in` and `out` there get every byte that it reads and writes.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

fn main() -> Result<()> {
    let folder = std::env::var_os("DESK_LOG");
    let log = |name| -> Result<Option<File>> {
        let open = |folder| {
            File::options()
                .create(true)
                .append(true)
                .open(Path::new(folder).join(name))
        };
        Ok(folder.as_ref().map(open).transpose()?)
    };
    let (mut read, mut written) = (log("in")?, log("out")?);
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? != 0 {
        if let Some(read) = &mut read {
            read.write_all(&line)?;
        }
        let message = serde_json::from_slice(&line).unwrap_or(Value::Null);
        line.clear();
        let answer = match message.as_array() {
            Some(batch) => {
                let answers: Vec<Value> = batch.iter().map(answer).collect::<Result<Vec<_>>>()?;
                let answers: Vec<Value> = answers.into_iter().filter(|one| !one.is_null()).collect();
                if answers.is_empty() {
                    Value::Null
                } else {
                    answers.into()
                }
            }
            None => answer(&message)?,
        };
        if answer.is_null() {
            continue;
        }
        let answer = format!("{answer}\n");
        if let Some(written) = &mut written {
            written.write_all(answer.as_bytes())?;
        }
        let mut out = io::stdout().lock();
        out.write_all(answer.as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

/// The answer to one message; null where it expects none.
fn answer(message: &Value) -> Result<Value> {
    let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else {
        return Ok(Value::Null);
    };
    let params = &message["params"];
    let result = match method {
        "initialize" => json!({"protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "desk-server", "version": "1.0.0"}}),
        "tools/list" => json!({"tools": tools()?}),
        "tools/call" => call(params)?,
        _ => json!({}),
    };
    Ok(json!({"jsonrpc": "2.0", "id": id, "result": result}))
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
        Some("say") => arguments["text"].as_str().unwrap_or_default().to_owned(),
        Some("shout") => {
            io::stderr().write_all(b"beside the point\n")?;
            "quiet".to_owned()
        }
        Some("pid") => std::process::id().to_string(),
        Some("end") => std::process::exit(i32::try_from(arguments["status"].as_i64().unwrap_or(0))?),
        _ => "done".to_owned(),
    };
    let failed = arguments["fail"] == true;
    Ok(json!({"content": [{"type": "text", "text": text}], "isError": failed}))
}
