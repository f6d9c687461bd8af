//! An agent in trouble, or a server's victim. `odd-agent SCENE SERVER [ARGS...]`, where SCENE is
//!
//! - `pause`: makes one call, prints `paused`, waits for a line on its standard input, makes another, ends;
//! - `tool NAME`: makes one call of a tool and one of `echo`, and takes every line that is no answer for noise;
//! - `drain`: calls `endless` and reads until the server ends;
//! - `heir`: makes one call, then leaves the session to a forked child, which makes another.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let scene = args.next().context("first argument: the scene")?;
    let tool = if scene == "tool" {
        args.next().context("tool NAME")?
    } else {
        "echo".to_owned()
    };
    kams_tests::forms::start_like_an_agent();
    let mut agent = Agent::start(&mut args)?;
    match scene.as_str() {
        "pause" => {
            agent.call("echo", &json!({"text": "before"}))?;
            let mut out = std::io::stdout();
            writeln!(out, "paused")?;
            out.flush()?;
            std::io::stdin().lock().read_line(&mut String::new())?;
            agent.call("echo", &json!({"text": "after"}))?;
        }
        "tool" => {
            agent.call(&tool, &json!({"text": "odd"}))?;
            agent.call("echo", &json!({"text": "even"}))?;
        }
        "drain" => {
            agent.send(
                "tools/call",
                &json!({"name": "endless", "arguments": {"mib": 80}}),
            )?;
            let drained = std::io::copy(&mut agent.from, &mut std::io::sink())?;
            ensure!(drained == 80 << 20, "{drained} bytes came");
        }
        "heir" => {
            agent.call("echo", &json!({"text": "the testator"}))?;
            kams_tests_raw::in_child(|| {
                agent
                    .call("echo", &json!({"text": "the heir"}))
                    .map(drop)
                    .map_err(std::io::Error::other)
            })?;
            agent.last_id += 1;
        }
        other => bail!("no scene {other}"),
    }
    agent.end()
}

struct Agent {
    server: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    last_id: u32,
}

impl Agent {
    fn start(words: &mut dyn Iterator<Item = String>) -> Result<Self> {
        let mut server = Command::new(words.next().context("the server")?)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the server")?;
        let to = server.stdin.take().context("piped input")?;
        let from = BufReader::new(server.stdout.take().context("piped output")?);
        let mut agent = Self {
            server,
            to,
            from,
            last_id: 0,
        };
        agent.request(
            "initialize",
            &json!({"protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "odd-agent", "version": "1.0.0"}}),
        )?;
        writeln!(
            agent.to,
            "{}",
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
        )?;
        Ok(agent)
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u32> {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        writeln!(self.to, "{request}")?;
        Ok(self.last_id)
    }

    /// Sends a request and reads until its answer.
    fn request(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.send(method, params)?;
        loop {
            let mut line = Vec::new();
            if self.from.by_ref().read_until(b'\n', &mut line)? == 0 {
                bail!("the server ended before it answered request {id}");
            }
            match serde_json::from_slice::<Value>(&line) {
                Ok(answer) if answer["id"] == id => return Ok(answer),
                _ => {}
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    fn end(self) -> Result<()> {
        let Self {
            mut server, to, from, ..
        } = self;
        drop((to, from));
        let status = server.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}
