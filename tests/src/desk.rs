//! A session that a test leads itself, call by call, through an agent that says what it is told.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::stage::Stage;

/// How long an answer may take.
const PATIENCE: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};

/// What a client says first.
pub fn hello() -> Value {
    let client = json!({"name": "desk", "version": "1"});
    json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
}

/// An agent with one server.
pub struct Desk {
    agent: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    last_id: u64,
    /// Every byte that the agent was told to say.
    sent: Vec<u8>,
    /// Every byte that came back.
    got: Vec<u8>,
}

impl Desk {
    /// Starts `agent`, which starts `server`, and opens a session. `tools` is the file of the server's list.
    pub fn open(stage: &Stage, agent: &str, server: &str, tools: Option<&Path>) -> Result<Self> {
        Self::open_words(stage, agent, &[server], tools)
    }

    /// The same with a server's whole command line.
    pub fn open_words(stage: &Stage, agent: &str, server: &[&str], tools: Option<&Path>) -> Result<Self> {
        let mut desk = Self::silent(stage, agent, server, tools)?;
        desk.greet()?;
        Ok(desk)
    }

    /// The handshake.
    pub fn greet(&mut self) -> Result<()> {
        self.ask("initialize", &hello())?;
        self.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    }

    /// Starts `agent`, which starts `server` once it has something to say to it.
    pub fn silent(stage: &Stage, agent: &str, server: &[&str], tools: Option<&Path>) -> Result<Self> {
        let mut command = stage.command(agent);
        command.args(server).stdin(Stdio::piped()).stdout(Stdio::piped());
        // The server's own record of every byte.
        command.env("DESK_LOG", stage.path("witness"));
        if let Some(tools) = tools {
            command.env("DESK_TOOLS", tools);
        }
        let mut agent = command.spawn().context("start the agent")?;
        let to = agent.stdin.take();
        let from = BufReader::new(agent.stdout.take().context("piped output")?);
        Ok(Self {
            agent,
            to,
            from,
            last_id: 0,
            sent: Vec::new(),
            got: Vec::new(),
        })
    }

    /// Process id of the agent.
    pub fn agent_pid(&self) -> u32 {
        self.agent.id()
    }

    /// Every byte that was said and heard so far.
    pub fn log(&self) -> (&[u8], &[u8]) {
        (&self.sent, &self.got)
    }

    /// Says one message.
    pub fn line(&mut self, message: &Value) -> Result<()> {
        self.raw(format!("{message}\n").as_bytes())
    }

    /// Says these bytes.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        let to = self.to.as_mut().context("the session is over")?;
        to.write_all(bytes)?;
        self.sent.extend_from_slice(bytes);
        Ok(to.flush()?)
    }

    /// What the agent hears next, with its newline; empty at the end.
    pub fn hear(&mut self) -> Result<Vec<u8>> {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            if self.from.buffer().is_empty() {
                let mut wait = [PollFd::new(self.from.get_ref(), PollFlags::IN)];
                ensure!(
                    poll(&mut wait, Some(&PATIENCE))? > 0,
                    "nothing came in time; of a line there is {:?}",
                    String::from_utf8_lossy(line.get(..200).unwrap_or(&line))
                );
            }
            let there = self.from.fill_buf()?;
            let end = there
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(there.len(), |at| at + 1);
            if there.is_empty() {
                break;
            }
            line.extend_from_slice(there.get(..end).unwrap_or_default());
            self.from.consume(end);
        }
        self.got.extend_from_slice(&line);
        Ok(line)
    }

    /// The next line as JSON; null at the end.
    pub fn heard(&mut self) -> Result<Value> {
        let line = self.hear()?;
        if line.is_empty() {
            return Ok(Value::Null);
        }
        let text = || String::from_utf8_lossy(&line).into_owned();
        serde_json::from_slice(&line).with_context(|| format!("no JSON: {}", text()))
    }

    /// Sends a request and gives its id.
    pub fn post(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.last_id += 1;
        let id = self.last_id;
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    /// Sends a request and reads until its answer; gives the whole answer.
    pub fn exchange(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.post(method, params)?;
        self.answer(id).with_context(|| method.to_owned())
    }

    /// Reads until the answer to this request; what is no JSON is passed over.
    pub fn answer(&mut self, id: u64) -> Result<Value> {
        loop {
            let line = self.hear()?;
            if line.is_empty() {
                bail!("the server ended before it answered");
            }
            let answer = serde_json::from_slice(&line).unwrap_or(Value::Null);
            if answer["id"] == id {
                return Ok(answer);
            }
        }
    }

    /// Sends a request and reads until its answer; gives the result, or the error.
    pub fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let mut answer = self.exchange(method, params)?;
        let part = if answer.get("error").is_some() {
            "error"
        } else {
            "result"
        };
        Ok(answer[part].take())
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
    pub fn close(self) -> Result<()> {
        let (status, ..) = self.end()?;
        ensure!(status.success(), "the agent ended badly");
        Ok(())
    }

    /// Hangs up, and reads to the end; how the agent ended, and every byte that was said and heard.
    pub fn end(mut self) -> Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
        drop(self.to.take());
        while !self.hear()?.is_empty() {}
        let status = self.agent.wait()?;
        Ok((
            status,
            std::mem::take(&mut self.sent),
            std::mem::take(&mut self.got),
        ))
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

/// Every byte that the server of a stage read and wrote, by its own record.
pub fn server_log(stage: &Stage) -> Result<(Vec<u8>, Vec<u8>)> {
    let read = |name| std::fs::read(stage.path("witness").join(name)).context("the server's record");
    Ok((read("in")?, read("out")?))
}
