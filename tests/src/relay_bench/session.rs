//! An agent's side of one session.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::measure::Block;

/// A server, perhaps behind a relay.
pub struct Session {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    line: Vec<u8>,
    id: u64,
    /// How long its start took.
    pub start: Start,
}

/// How long a start took, in milliseconds from before the process was made.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Start {
    /// Until the server's own code ran.
    pub begun: f64,
    /// Until its first answer was read.
    pub greeted: f64,
}

/// Nanoseconds of the clock that all processes share.
pub fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

impl Session {
    /// Starts the command and greets it.
    pub fn start(command: &[String]) -> Result<Self> {
        let (program, arguments) = command.split_first().context("no command")?;
        let before = clock();
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| program.clone())?;
        let to = process.stdin.take().context("stdin")?;
        let from = BufReader::with_capacity(256 << 10, process.stdout.take().context("stdout")?);
        let mut session = Self {
            process,
            to,
            from,
            line: Vec::new(),
            id: 0,
            start: Start::default(),
        };
        session.ask(
            "initialize",
            "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}",
        )?;
        let greeted = clock();
        // The server says when it began.
        let answer: Value = serde_json::from_slice(&session.line)?;
        let begun = answer["result"]["_meta"]["begun"].as_u64().context("begun")?;
        #[expect(clippy::cast_precision_loss, reason = "seconds at most")]
        let since = |at: u64| at.saturating_sub(before) as f64 / 1e6;
        session.start = Start {
            begun: since(begun),
            greeted: since(greeted),
        };
        session
            .to
            .write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        session.ask("tools/list", "{}")?;
        Ok(session)
    }

    /// One call; the time from before its writing to the end of its answer, and the answer's length in bytes.
    pub fn call(&mut self, size: usize) -> Result<(Duration, usize)> {
        let arguments =
            format!("{{\"name\":\"echo\",\"arguments\":{{\"size\":{size},\"pad\":\"yyyyyyyyyyyyyyyy\"}}}}");
        let took = self.ask("tools/call", &arguments)?;
        let length = self.line.len();
        ensure!(
            length > size,
            "an answer of {length} bytes where {size} were asked for"
        );
        Ok((took, length))
    }

    /// A number of calls.
    pub fn calls(&mut self, size: usize, count: usize) -> Result<Block> {
        let mut block = Block::default();
        for _ in 0..count {
            let (took, length) = self.call(size)?;
            block.micros.push(took.as_secs_f64() * 1e6);
            block.bytes += length;
            block.spent += took;
        }
        Ok(block)
    }

    fn ask(&mut self, method: &str, params: &str) -> Result<Duration> {
        self.id += 1;
        let id = self.id;
        let text =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n");
        let before = Instant::now();
        self.to.write_all(text.as_bytes())?;
        loop {
            self.line.clear();
            if self.from.read_until(b'\n', &mut self.line)? == 0 {
                bail!("the server went away");
            }
            let took = before.elapsed();
            // Relays may write the id anew, with other spaces and at another place.
            let ends = [
                self.line.get(..200),
                self.line
                    .len()
                    .checked_sub(200)
                    .and_then(|at| self.line.get(at..)),
            ];
            let near = ends
                .into_iter()
                .flatten()
                .chain([self.line.as_slice()].into_iter().filter(|l| l.len() < 200));
            let wanted = [format!("\"id\":{id}"), format!("\"id\": {id}")];
            let mut near = near.map(String::from_utf8_lossy);
            if near.any(|text| wanted.iter().any(|wanted| text.contains(wanted.as_str()))) {
                return Ok(took);
            }
        }
    }

    /// Peak memory, in KiB, of everything between the agent and the server: the largest it has been, summed over
    /// processes. 0 where the server stands alone.
    pub fn memory(&self, server: &str) -> Result<u64> {
        let mut open = vec![self.process.id()];
        let mut sum = 0;
        while let Some(pid) = open.pop() {
            let children =
                std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            open.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<u32>().ok()),
            );
            let words = std::fs::read(format!("/proc/{pid}/cmdline"))?;
            if words.split(|byte| *byte == 0).nth(1) != Some(server.as_bytes()) {
                sum += status(pid, "VmHWM:")?;
            }
        }
        Ok(sum)
    }

    /// Hangs up and waits for the end.
    pub fn end(self) -> Result<()> {
        let Self {
            mut process,
            to,
            from,
            ..
        } = self;
        drop((to, from));
        process.wait()?;
        Ok(())
    }
}

/// A number of `/proc/PID/status`, in KiB.
pub fn status(pid: u32, name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .context("status")?;
    Ok(value.trim().trim_end_matches(" kB").parse()?)
}
