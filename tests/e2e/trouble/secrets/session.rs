//! A session that a test leads itself, message by message, through an agent that says what it is told.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context as _, Result, ensure};
use kams_tests::planted::Planted;
use kams_tests::stage::Stage;
use serde_json::{Value, json};

use crate::context::LINE_AGENT;

pub(super) struct Session {
    agent: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    last_id: u64,
    /// What was said, as `kams replay` reads it.
    recording: String,
}

impl Session {
    /// Starts the agent with its server.
    pub(super) fn start(
        stage: &Stage,
        launch: &[String],
        spilled: &Value,
        planted: &mut Planted,
    ) -> Result<Self> {
        let mut agent = stage
            .command(LINE_AGENT)
            .args(launch)
            .env("SPILL", spilled.to_string())
            .env("API_TOKEN", planted.new_value("slack_token", "the environment")?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the agent")?;
        let to = agent.stdin.take().context("piped input")?;
        let from = BufReader::new(agent.stdout.take().context("piped output")?);
        Ok(Self {
            agent,
            to,
            from,
            last_id: 0,
            recording: String::new(),
        })
    }

    /// Opens the session.
    pub(super) fn open(&mut self, planted: &mut Planted) -> Result<()> {
        let client = json!({"name": "tester", "version": planted.new_value("github_token", "clientInfo")?});
        let capabilities = json!({"sampling": {}, "elicitation": {}});
        let hello =
            json!({"protocolVersion": "2025-03-26", "capabilities": capabilities, "clientInfo": client});
        self.ask("initialize", &hello)?;
        self.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string())?;
        self.ask("tools/list", &json!({})).map(drop)
    }

    /// Says one line.
    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        self.record("c>s", line);
        writeln!(self.to, "{line}")?;
        Ok(self.to.flush()?)
    }

    /// Sends a request that gets no answer, and gives its id.
    pub(super) fn post(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        self.line(&request.to_string())?;
        Ok(self.last_id)
    }

    /// Sends a request and reads until its answer; gives its id.
    pub(super) fn ask(&mut self, method: &str, params: &Value) -> Result<u64> {
        let id = self.post(method, params)?;
        loop {
            let mut line = String::new();
            let read = self.from.read_line(&mut line)?;
            ensure!(read > 0, "the server ended before it answered {method}");
            self.record("s>c", line.trim_end_matches('\n'));
            if serde_json::from_str::<Value>(&line).is_ok_and(|answer| answer["id"] == id) {
                return Ok(id);
            }
        }
    }

    /// Answers a request of the server.
    pub(super) fn answer(&mut self, id: &str, result: &Value) -> Result<()> {
        self.line(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
    }

    /// Ends the session; gives a file with what was said.
    pub(super) fn end(self, stage: &Stage) -> Result<PathBuf> {
        let Self {
            mut agent,
            to,
            from,
            recording,
            ..
        } = self;
        drop((to, from));
        agent.wait()?;
        stage.write("session.jsonl", recording)
    }

    fn record(&mut self, direction: &str, line: &str) {
        let entry = json!({"dir": direction, "ms": 0, "raw": line}).to_string();
        self.recording.push_str(&entry);
        self.recording.push('\n');
    }
}
