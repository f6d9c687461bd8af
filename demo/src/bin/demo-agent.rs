//! The demo's agent: starts the server that lies beside it and plays the script, one step per second.
//!
//! `demo-agent [--fast]` narrates on standard error; it fails when the server does not behave as scripted.
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "the narration is what this program is for")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

struct Agent {
    server: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next_id: u32,
    pace: Duration,
}

fn main() -> Result<()> {
    let pace = if std::env::args().any(|a| a == "--fast") {
        Duration::ZERO
    } else {
        Duration::from_secs(1)
    };
    say(pace, "starts its notes server");
    let beside = std::env::current_exe()?.with_file_name("demo-server");
    let mut server = Command::new(&beside)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", beside.display()))?;
    let to = server.stdin.take().context("no stdin")?;
    let from = BufReader::new(server.stdout.take().context("no stdout")?);
    let mut agent = Agent {
        server,
        to,
        from,
        next_id: 0,
        pace,
    };

    let client = json!({"name": "demo-agent", "version": "1.0.0"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    agent.request("initialize", &hello)?;
    agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
    agent.say("lists the tools: they are honest");
    agent.request("tools/list", &json!({}))?;
    agent.say("saves a note");
    agent.call("save_note", "buy milk")?;
    agent.say("finds it again; then the server says that its tools changed");
    agent.call("find_notes", "milk")?;
    agent.say("lists the tools again: one description now gives orders to the model");
    agent.request("tools/list", &json!({}))?;
    agent.say("calls that tool: the answer gives orders, too");
    agent.call("find_notes", "milk")?;
    agent.say("stores a credential in a note (a random one)");
    agent.call("save_note", "deploy with AKIAQ7M2ZK4X9TN3WB5D please")?;
    agent.say("is done");
    let Agent { mut server, to, .. } = agent;
    drop(to);
    server.wait()?;
    Ok(())
}

fn say(pace: Duration, what: &str) {
    std::thread::sleep(pace);
    eprintln!("demo: the agent {what}");
}

impl Agent {
    fn say(&self, what: &str) {
        say(self.pace, what);
    }

    fn call(&mut self, tool: &str, text: &str) -> Result<()> {
        let answer = self.request("tools/call", &json!({"name": tool, "arguments": {"text": text}}))?;
        // What the model would read.
        let said = answer.pointer("/result/content/0/text").and_then(Value::as_str);
        if answer.pointer("/result/isError") == Some(&json!(true)) {
            let said = said.unwrap_or_default().replace('\n', "\n        ");
            eprintln!("demo:   refused, in these words:\n        {said}");
        }
        Ok(())
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        writeln!(self.to, "{message}").context("the server is gone")
    }

    fn request(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line)? == 0 {
                let status = self.server.wait()?;
                bail!("the server ended ({status}) before it answered {method}");
            }
            let message: Value = serde_json::from_str(&line)?;
            if message.get("id") == Some(&json!(id)) {
                return Ok(message);
            }
        }
    }
}
