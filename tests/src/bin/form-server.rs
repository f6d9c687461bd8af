//! An MCP server for the form tests. Writes what it read and wrote to PID.in and PID.out in the folder
//! `$KAMS_WITNESS`, its command line to PID.argv, and the process ids of its ancestors to PID.tree.
//!
//! Tools: `echo` (text back), `fail` (an `isError` result), `refuse` (a JSON-RPC error), `binary` (noise on the wire,
//! then the result), `endless` (as many MiB as asked for without a newline, then the end), `vanish` (ends at once).
//! `form-server --comm NAME` takes NAME for its process name.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--comm") {
        std::fs::write("/proc/self/comm", args.get(at + 1).context("--comm NAME")?)?;
    }
    let mut server = Server::new(&args)?;
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? != 0 {
        server.saw(&line)?;
        if let Ok(message) = serde_json::from_slice::<Value>(&line) {
            let Some(answer) = server.answer(&message)? else {
                return Ok(());
            };
            if !answer.is_null() {
                let mut bytes = answer.to_string().into_bytes();
                bytes.push(b'\n');
                server.say(&bytes)?;
            }
        }
        line.clear();
    }
    Ok(())
}

struct Server {
    saw: Option<File>,
    said: Option<File>,
}

impl Server {
    fn new(args: &[String]) -> Result<Self> {
        let Some(folder) = std::env::var_os("KAMS_WITNESS") else {
            return Ok(Self {
                saw: None,
                said: None,
            });
        };
        let file = |end| Path::new(&folder).join(format!("{}.{end}", std::process::id()));
        std::fs::write(file("argv"), args.join("\0"))?;
        std::fs::write(file("tree"), ancestors()?)?;
        Ok(Self {
            saw: Some(File::create(file("in"))?),
            said: Some(File::create(file("out"))?),
        })
    }

    fn saw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.saw.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
    }

    fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(file) = &mut self.said {
            file.write_all(bytes)?;
        }
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// The answer; null where none is due, none where the server is to end.
    fn answer(&mut self, message: &Value) -> Result<Option<Value>> {
        if let Some(batch) = message.as_array() {
            let mut answers = Vec::new();
            for one in batch {
                match self.answer(one)? {
                    None => return Ok(None),
                    Some(Value::Null) => {}
                    Some(answer) => answers.push(answer),
                }
            }
            return Ok(Some(Value::Array(answers)));
        }
        let Some(id) = message.get("id") else {
            return Ok(Some(Value::Null));
        };
        let params = &message["params"];
        let result = match message["method"].as_str() {
            Some("initialize") => json!({"protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "form-server", "version": "1.0.0"}}),
            Some("ping") => json!({}),
            Some("tools/list") => json!({"tools": tools()}),
            Some("tools/call") => {
                let arguments = &params["arguments"];
                match params["name"].as_str() {
                    Some("echo") => json!({"content": [{"type": "text", "text": arguments["text"]}]}),
                    Some("fail") => {
                        json!({"content": [{"type": "text", "text": "no such row"}], "isError": true})
                    }
                    Some("binary") => {
                        self.say(&noise())?;
                        json!({"content": [{"type": "text", "text": "after noise"}]})
                    }
                    Some("endless") => {
                        for _ in 0..arguments["mib"].as_u64().unwrap_or(1) {
                            self.say(&vec![b'x'; 1 << 20])?;
                        }
                        return Ok(None);
                    }
                    Some("vanish") => return Ok(None),
                    _ => {
                        return Ok(Some(json!({"jsonrpc": "2.0", "id": id,
                        "error": {"code": -32602, "message": "refused"}})));
                    }
                }
            }
            _ => {
                return Ok(Some(json!({"jsonrpc": "2.0", "id": id,
                "error": {"code": -32601, "message": "method not found"}})));
            }
        };
        Ok(Some(json!({"jsonrpc": "2.0", "id": id, "result": result})))
    }
}

/// Process ids from the parent upwards, one a line.
fn ancestors() -> Result<String> {
    let mut found = String::new();
    let mut pid = std::process::id().to_string();
    while pid != "0" && pid != "1" {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        after_name
            .split_ascii_whitespace()
            .nth(1)
            .context("parent")?
            .clone_into(&mut pid);
        found.push_str(&pid);
        found.push('\n');
    }
    Ok(found)
}

fn tools() -> Vec<Value> {
    ["echo", "fail", "refuse", "binary", "endless", "vanish"]
        .map(|name| json!({"name": name, "description": "For tests.", "inputSchema": {"type": "object"}}))
        .to_vec()
}

/// Every byte value, bad UTF-8, newlines and the starts of messages among it; ends with a newline.
fn noise() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
    bytes.extend_from_slice(b"\n{\"jsonrpc\":\"2.0\",\"id\":\xff\xfe\n{\n[\n\0\0\0\n");
    bytes
}
