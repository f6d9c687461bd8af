//! Calls that go on while something happens to Kams, and what became of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use crate::desk::{Desk, server_log};
use crate::stage::Stage;

/// How hard the load is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Calls that are on their way at once.
    pub window: usize,
    /// Between an answer and the next call.
    pub pause: Duration,
}

impl Pace {
    /// As fast as it goes.
    pub const FULL: Self = Self {
        window: 16,
        pause: Duration::ZERO,
    };
    /// Leaves time to others on a slow machine.
    pub const GENTLE: Self = Self {
        window: 2,
        pause: Duration::from_millis(100),
    };
}

/// What a load shares with whoever disturbs it.
#[derive(Debug, Default)]
pub struct Progress {
    answered: AtomicUsize,
    enough: AtomicBool,
}

/// What became of the calls.
#[derive(Debug)]
pub struct Outcome {
    /// Calls.
    pub made: usize,
    /// Those that the relay refused because nobody judged them.
    pub unjudged: usize,
}

impl Progress {
    /// Waits until so many more calls were answered.
    pub fn more(&self, calls: usize) -> Result<()> {
        let from = self.answered.load(Ordering::Acquire);
        let start = std::time::Instant::now();
        while self.answered.load(Ordering::Acquire) < from + calls {
            ensure!(start.elapsed().as_secs() < 60, "the calls stand still");
            // A counter has nobody who announces it.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Calls again and again while `disturb` runs. Each call must be answered once, by the server or by a refusal that says
/// why, and must have reached the server once; where it was refused perhaps not at all (under `fail: closed` the answer may
/// be what nobody judged).
pub fn under_load(
    stage: &Stage,
    agent: &mut Desk,
    disturb: impl FnOnce(&Progress) -> Result<()>,
) -> Result<Outcome> {
    under_load_at(Pace::FULL, stage, agent, disturb)
}

/// The same at another pace.
pub fn under_load_at(
    pace: Pace,
    stage: &Stage,
    agent: &mut Desk,
    disturb: impl FnOnce(&Progress) -> Result<()>,
) -> Result<Outcome> {
    let progress = Progress::default();
    let (calls, disturbed) = std::thread::scope(|scope| {
        let calls = scope.spawn(|| call_on(pace, agent, &progress));
        let disturbed = disturb(&progress);
        progress.enough.store(true, Ordering::Release);
        (calls.join(), disturbed)
    });
    let answers = calls.map_err(|_panic| anyhow::anyhow!("the load panicked"))?;
    // Calls that cannot go on are the reason why they stand still.
    let answers = answers?;
    disturbed?;
    let reached = reached(stage)?;
    let mut unjudged = 0;
    for (id, refused) in &answers {
        unjudged += usize::from(*refused);
        ensure!(
            *refused || reached.contains(id),
            "call {id} did not reach the server"
        );
    }
    Ok(Outcome {
        made: answers.len(),
        unjudged,
    })
}

/// Ids of answered calls, and whether they were refused.
fn call_on(pace: Pace, agent: &mut Desk, progress: &Progress) -> Result<BTreeMap<u64, bool>> {
    let mut open = BTreeSet::new();
    let mut answers = BTreeMap::new();
    loop {
        let enough = progress.enough.load(Ordering::Acquire);
        while !enough && open.len() < pace.window {
            let text = format!("load {}", answers.len());
            open.insert(agent.post("tools/call", &json!({"name": "say", "arguments": {"text": text}}))?);
        }
        if open.is_empty() {
            return Ok(answers);
        }
        let answer = agent.heard()?;
        if answer.is_null() {
            bail!("the connection ended, {} calls are open", open.len());
        }
        let Some(id) = answer["id"].as_u64() else { continue };
        ensure!(open.remove(&id), "an answer that nobody waits for: {answer}");
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().context("a text")?;
        let refused = result["isError"] == true;
        ensure!(
            if refused {
                text.contains("did not judge it in time")
            } else {
                text.starts_with("load ")
            },
            "{answer}"
        );
        answers.insert(id, refused);
        progress.answered.store(answers.len(), Ordering::Release);
        std::thread::sleep(pace.pause);
    }
}

/// Ids of the calls that the server has got; an error where one came twice.
fn reached(stage: &Stage) -> Result<BTreeSet<u64>> {
    let (read, _) = server_log(stage)?;
    let mut ids = BTreeSet::new();
    for line in read.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: serde_json::Value = serde_json::from_slice(line).context("a line that is no message")?;
        if message["params"]["name"] == "say" {
            let id = message["id"].as_u64().context("an id")?;
            ensure!(ids.insert(id), "call {id} reached the server twice");
        }
    }
    Ok(ids)
}
