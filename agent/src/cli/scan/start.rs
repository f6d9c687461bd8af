//! Starting one server to list its tools, and ending it again.
//!
//! The server is a program of somebody else's: what it says is bounded in size and time, and its whole process group
//! ends with the listing, however that goes.

use std::process::Stdio;
use std::time::Duration;

use kams_detect::integrity::Definition;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::clients::ConfiguredServer;

/// For everything: a first start may have to fetch a package.
const TIME: Duration = Duration::from_mins(1);
/// For one answer after the first.
const ANSWER: Duration = Duration::from_secs(15);
/// All that a server may say, in bytes.
const MOST: u64 = 64 << 20;
/// Pages of its list.
const PAGES: usize = 256;

/// Why nothing was listed. Quotes no argument.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("cannot be started: {0}")]
    Spawn(std::io::Error),
    #[error("its arguments hold places that only the client can fill in; not started")]
    Placeholder,
    #[error("does not answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("ended before it answered")]
    Ended,
    #[error("says more than {} MiB", MOST >> 20)]
    Talks,
    #[error("cannot be talked to: {0}")]
    Io(#[from] std::io::Error),
    #[error("answers neither initialize nor server/discover")]
    Stranger,
}

/// Ends the group whatever happens.
struct Group {
    child: Child,
    pid: Option<Pid>,
}

impl Drop for Group {
    fn drop(&mut self) {
        // While the leader is not waited for, its number is nobody else's.
        if let (Some(pid), Some(_)) = (self.pid, self.child.id())
            && let Err(error) = killpg(pid, Signal::SIGKILL)
        {
            tracing::debug!(%error, "the group had ended");
        }
    }
}

/// The server's instructions and tools; the flag says which are tools.
pub(super) async fn list(server: &ConfiguredServer) -> Result<Vec<(Definition, bool)>, StartError> {
    let command = server.command.as_deref().unwrap_or_default();
    let words = std::iter::once(command).chain(server.args().iter().map(String::as_str));
    if words.clone().any(|word| word.contains("${")) {
        return Err(StartError::Placeholder);
    }
    let mut start = Command::new(command);
    start
        .args(server.args())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(cwd) = server.cwd.as_ref().or(server.project.as_ref()) {
        start.current_dir(cwd);
    }
    let mut child = start.spawn().map_err(StartError::Spawn)?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let pid = child
        .id()
        .and_then(|pid| i32::try_from(pid).ok())
        .map(Pid::from_raw);
    let group = Group { child, pid };
    let (Some(input), Some(output)) = (input, output) else {
        return Err(StartError::Ended);
    };
    let mut talk = Talk {
        input,
        output: BufReader::new(output.take(MOST)),
        next: 0,
    };
    let listed = tokio::time::timeout(TIME, talk.list()).await;
    drop(group);
    listed.unwrap_or(Err(StartError::Silent(TIME)))
}

struct Talk {
    input: ChildStdin,
    output: BufReader<tokio::io::Take<ChildStdout>>,
    next: u64,
}

impl Talk {
    async fn list(&mut self) -> Result<Vec<(Definition, bool)>, StartError> {
        let client = json!({"name": "kams-scan", "version": env!("CARGO_PKG_VERSION")});
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        let mut answer = self.ask("initialize", hello).await?;
        let mut meta = None;
        if answer.get("result").is_none() {
            // The revision of 2026-07-28 knows no initialize: who asks is said with every request.
            let about = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": client,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            answer = self.ask("server/discover", json!({"_meta": about})).await?;
            meta = Some(about);
        } else {
            self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
                .await?;
        }
        let result = answer.get("result").ok_or(StartError::Stranger)?;
        let mut listed = Vec::new();
        if let Some(text) = result.get("instructions").and_then(Value::as_str) {
            listed.push((Definition::instructions(text), false));
        }
        let mut cursor: Option<Value> = None;
        for _ in 0..PAGES {
            let mut params = serde_json::Map::new();
            if let Some(cursor) = cursor.take() {
                params.insert("cursor".to_owned(), cursor);
            }
            if let Some(meta) = &meta {
                params.insert("_meta".to_owned(), meta.clone());
            }
            let answer = self.ask("tools/list", Value::Object(params)).await?;
            let Some(result) = answer.get("result") else { break };
            let tools = result.get("tools").and_then(Value::as_array);
            let tools = tools
                .into_iter()
                .flatten()
                .filter_map(|tool| Definition::tool(tool).ok());
            listed.extend(tools.map(|tool| (tool, true)));
            match result.get("nextCursor") {
                Some(next @ Value::String(_)) => cursor = Some(next.clone()),
                _ => break,
            }
        }
        Ok(listed)
    }

    async fn say(&mut self, message: &Value) -> Result<(), StartError> {
        self.input.write_all(format!("{message}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    /// Sends a request and waits for its answer, past whatever else the server says.
    async fn ask(&mut self, method: &str, params: Value) -> Result<Value, StartError> {
        self.next += 1;
        let id = self.next;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        let limit = if id == 1 { TIME } else { ANSWER };
        tokio::time::timeout(limit, self.answer(id))
            .await
            .unwrap_or(Err(StartError::Silent(limit)))
    }

    async fn answer(&mut self, id: u64) -> Result<Value, StartError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if self.output.read_until(b'\n', &mut line).await? == 0 {
                let spent = self.output.get_ref().limit() == 0;
                return Err(if spent {
                    StartError::Talks
                } else {
                    StartError::Ended
                });
            }
            let Ok(message) = serde_json::from_slice::<Value>(&line) else {
                continue;
            };
            if message.get("method").is_none() && message.get("id").and_then(Value::as_u64) == Some(id) {
                return Ok(message);
            }
        }
    }
}
