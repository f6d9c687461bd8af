//! Calls that go on while something happens to Kams, and what became of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use kams_tests::desk::Desk;
use kams_tests::stage::Stage;
use serde_json::json;

use super::server_log;

/// Calls that are on their way at once.
const WINDOW: usize = 16;

/// What a load shares with whoever disturbs it.
#[derive(Default)]
pub(super) struct Progress {
    answered: AtomicUsize,
    enough: AtomicBool,
}

/// What became of the calls.
pub(super) struct Outcome {
    /// Calls.
    pub(super) made: usize,
    /// Those that the relay refused because nobody judged them.
    pub(super) unjudged: usize,
}

impl Progress {
    /// Waits until so many more calls were answered.
    pub(super) fn more(&self, calls: usize) -> Result<()> {
        let from = self.answered.load(Ordering::Acquire);
        let start = std::time::Instant::now();
        while self.answered.load(Ordering::Acquire) < from + calls {
            ensure!(start.elapsed().as_secs() < 30, "the calls stand still");
            // A counter has nobody who announces it.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Calls again and again while `disturb` runs. Each call must be answered once, by the server or by a refusal that says
/// why, and must have reached the server once; where it was refused perhaps not at all (under `fail: closed` the answer may
/// be what nobody judged).
pub(super) fn under_load(
    stage: &Stage,
    agent: &mut Desk,
    disturb: impl FnOnce(&Progress) -> Result<()>,
) -> Result<Outcome> {
    let progress = Progress::default();
    let (calls, disturbed) = std::thread::scope(|scope| {
        let calls = scope.spawn(|| call_on(agent, &progress));
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
fn call_on(agent: &mut Desk, progress: &Progress) -> Result<BTreeMap<u64, bool>> {
    let mut open = BTreeSet::new();
    let mut answers = BTreeMap::new();
    loop {
        let enough = progress.enough.load(Ordering::Acquire);
        while !enough && open.len() < WINDOW {
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
