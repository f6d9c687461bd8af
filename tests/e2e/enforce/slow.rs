//! Who does not read: the writer waits as it would without a relay, the relay stays small, and everything arrives at last.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::json;

use super::{open, serving, text};
use crate::context::Context;
use kams_tests::processes::{Stopped, send};

/// Calls, and the bytes of each one's argument or result.
const CALLS: usize = 300;
const BYTES: usize = 100_000;
/// What a relay may take, in kB: a megabyte that waits in each direction, one that is written, and itself.
const MOST: u64 = 24_000;

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("enforce::an-agent-that-reads-slowly", agent),
        context.with_kams("enforce::a-server-that-reads-slowly", server),
    ]
}

/// Resident memory of a process, in kB.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line
        .and_then(|rest| rest.split_whitespace().next())
        .context("VmRSS")?;
    Ok(kb.parse()?)
}

/// Thirty megabytes of results wait for an agent that reads one after the other.
fn agent(context: &Context) -> Result<()> {
    let kams = context.enforcing()?;
    let stage = Stage::new()?;
    let before = serving(&kams)?;
    let mut agent = open(&kams, &stage, "eager")?;
    let relay = *serving(&kams)?
        .iter()
        .find(|pid| !before.contains(pid))
        .context("a relay")?;
    let mut ids = Vec::new();
    for _ in 0..CALLS {
        ids.push(agent.post(
            "tools/call",
            &json!({"name": "big", "arguments": {"bytes": BYTES}}),
        )?);
    }
    let mut most = 0;
    for id in ids {
        most = most.max(resident(relay)?);
        let answer = agent.answer(id)?;
        ensure!(text(&answer["result"], false)?.len() == BYTES, "a result was cut");
    }
    ensure!(most < MOST, "the relay took {most} kB");
    agent.close()
}

/// Thirty megabytes of calls for a server that does not read at all, and then does.
fn server(context: &Context) -> Result<()> {
    let kams = context.enforcing()?;
    let stage = Stage::new()?;
    let before = serving(&kams)?;
    let mut agent = open(&kams, &stage, "sleepy")?;
    let relay = *serving(&kams)?
        .iter()
        .find(|pid| !before.contains(pid))
        .context("a relay")?;
    let server: u32 = text(&agent.call("pid", &json!({}))?, false)?.parse()?;
    send(server, Signal::STOP)?;
    let stopped = Stopped(server);
    let posted = AtomicUsize::new(0);
    let argument = "word ".repeat(BYTES / 5);
    let ids = std::thread::scope(|scope| -> Result<Vec<u64>> {
        let writer = scope.spawn(|| -> Result<Vec<u64>> {
            let mut ids = Vec::new();
            for _ in 0..CALLS {
                ids.push(agent.post(
                    "tools/call",
                    &json!({"name": "add", "arguments": {"text": argument}}),
                )?);
                posted.store(ids.len(), Ordering::Release);
            }
            Ok(ids)
        });
        // The writer stands still: only that it goes on can be seen.
        let (mut last, mut since, start) = (0, Instant::now(), Instant::now());
        while since.elapsed() < Duration::from_millis(700) && start.elapsed() < Duration::from_secs(20) {
            let now = posted.load(Ordering::Acquire);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let most = resident(relay)?;
        drop(stopped);
        let ids = writer
            .join()
            .map_err(|_panic| anyhow::anyhow!("the writer panicked"))??;
        ensure!(
            last < CALLS / 2,
            "{last} of {CALLS} calls went into a server that does not read"
        );
        ensure!(most < MOST, "the relay took {most} kB");
        Ok(ids)
    })?;
    for id in ids {
        let answer = agent.answer(id)?;
        text(&answer["result"], false)?;
    }
    agent.close()
}
