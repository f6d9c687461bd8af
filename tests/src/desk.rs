//! A session that a test leads itself, call by call, through an agent that says what it is told.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::stage::Stage;

/// An agent with one server.
pub struct Desk {
    agent: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    last_id: u64,
}

impl Desk {
    /// Starts `agent`, which starts `server`, and opens a session. `tools` is the file of the server's list.
    pub fn open(stage: &Stage, agent: &str, server: &str, tools: Option<&Path>) -> Result<Self> {
        Self::open_words(stage, agent, &[server], tools)
    }

    /// The same with a server's whole command line.
    pub fn open_words(stage: &Stage, agent: &str, server: &[&str], tools: Option<&Path>) -> Result<Self> {
        let mut command = stage.command(agent);
        command.args(server).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(tools) = tools {
            command.env("DESK_TOOLS", tools);
        }
        let mut agent = command.spawn().context("start the agent")?;
        let to = agent.stdin.take();
        let from = BufReader::new(agent.stdout.take().context("piped output")?);
        let mut desk = Self {
            agent,
            to,
            from,
            last_id: 0,
        };
        let client = json!({"name": "desk", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        desk.ask("initialize", &hello)?;
        desk.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(desk)
    }

    /// Process id of the agent.
    pub fn agent_pid(&self) -> u32 {
        self.agent.id()
    }

    /// Says one message.
    pub fn line(&mut self, message: &Value) -> Result<()> {
        let to = self.to.as_mut().context("the session is over")?;
        writeln!(to, "{message}")?;
        Ok(to.flush()?)
    }

    /// Sends a request and gives its id.
    pub fn post(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.last_id += 1;
        let id = self.last_id;
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    /// Sends a request and reads until its answer; gives the result, or the error.
    pub fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.post(method, params)?;
        loop {
            let mut line = String::new();
            ensure!(
                self.from.read_line(&mut line)? > 0,
                "the server ended before it answered {method}"
            );
            let Ok(mut answer) = serde_json::from_str::<Value>(&line) else {
                bail!("no JSON: {line}");
            };
            if answer["id"] == id {
                let part = if answer.get("error").is_some() {
                    "error"
                } else {
                    "result"
                };
                return Ok(answer[part].take());
            }
        }
    }

    /// Calls a tool.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// Runs a shell line in the server, that is in the agent's tree; gives its exit status and what it wrote.
    pub fn shell(&mut self, line: &str) -> Result<(i32, String)> {
        let result = self.call("sh", &json!({"line": line}))?;
        let text = result["content"][0]["text"].as_str().context("a text")?;
        let (status, said) = text.split_once('\n').context("a status")?;
        Ok((status.parse()?, said.to_owned()))
    }

    /// Ends the session in order.
    pub fn close(mut self) -> Result<()> {
        drop(self.to.take());
        ensure!(self.agent.wait()?.success(), "the agent ended badly");
        Ok(())
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        drop(self.to.take());
        if matches!(self.agent.try_wait(), Ok(None)) {
            // Nothing more can be done about a child that cannot be killed.
            drop(self.agent.kill());
            drop(self.agent.wait());
        }
    }
}
