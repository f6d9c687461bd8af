//! An agent in a process of its own, so that the daemon knows it and its server gets a relay, while the direct server of
//! the same run has no agent.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::measure::Block;
use super::session::{Session, Start};

/// What the agent is told, one JSON line each.
#[derive(Deserialize, Serialize)]
enum Order {
    /// That many calls of that size.
    Calls { size: usize, count: usize },
    /// One start of the server.
    Start,
}

/// An agent's process and the server that it started.
pub struct Remote {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Remote {
    /// Starts `agent` with the server's command.
    pub fn start(agent: &Path, server: &[String]) -> Result<Self> {
        let mut process = Command::new(agent)
            .arg("agent")
            .args(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| agent.display().to_string())?;
        Ok(Self {
            to: process.stdin.take().context("stdin")?,
            from: BufReader::new(process.stdout.take().context("stdout")?),
            process,
        })
    }

    fn ask<T: serde::de::DeserializeOwned>(&mut self, order: &Order) -> Result<T> {
        writeln!(self.to, "{}", serde_json::to_string(order)?)?;
        let mut line = String::new();
        ensure!(self.from.read_line(&mut line)? > 0, "the agent went away");
        Ok(serde_json::from_str(&line)?)
    }

    /// Calls of the agent's session.
    pub fn calls(&mut self, size: usize, count: usize) -> Result<Block> {
        let (micros, bytes): (Vec<f64>, usize) = self.ask(&Order::Calls { size, count })?;
        let spent = Duration::from_secs_f64(micros.iter().sum::<f64>() / 1e6);
        Ok(Block { micros, bytes, spent })
    }

    /// One more session, from its start to its end.
    pub fn once(&mut self) -> Result<Start> {
        self.ask(&Order::Start)
    }

    /// Has the agent hang up and waits for its end.
    pub fn end(self) -> Result<()> {
        let Self { mut process, to, .. } = self;
        drop(to);
        ensure!(process.wait()?.success(), "the agent failed");
        Ok(())
    }
}

/// The agent: does what its standard input says until that ends.
pub fn agent(server: &[String]) -> Result<()> {
    let mut session = None;
    for line in std::io::stdin().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Order::Calls { size, count } => {
                let session = match &mut session {
                    Some(session) => session,
                    none => none.insert(Session::start(server)?),
                };
                let block = session.calls(size, count)?;
                serde_json::to_string(&(block.micros, block.bytes))?
            }
            Order::Start => {
                let once = Session::start(server)?;
                let start = once.start;
                once.end()?;
                serde_json::to_string(&start)?
            }
        };
        let mut out = std::io::stdout();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    session.map_or(Ok(()), Session::end)
}
