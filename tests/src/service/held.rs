//! Processes that are held at their start when the service dies, and a second daemon that comes to the first one's state.

use std::path::Path;
use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use rustix::process::Signal;

use super::{
    Cursor, UNIT, is_judged, nothing_is_stopped, open, passes, run, running, said, silent, stage, trial,
};
use super::{until, well, worker};
use crate::desk::{Desk, hello};
use crate::processes::{Stopped, children, send, state};
use crate::stage::Stage;

/// Where the daemon of the unit pins what names held processes.
const PINS: &str = "/sys/fs/bpf/kams/holds";

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("held-when-all-is-killed", healed_after),
        trial("held-when-nobody-heals-after", healed_before),
        trial("held-when-it-is-stopped", stopped),
        trial("a-second-daemon-is-refused", || second(&[])),
        trial("a-second-daemon-with-other-sockets-is-refused", second_elsewhere),
        trial("heal-by-hand-leaves-a-running-daemon-alone", heal_by_hand),
    ]
}

/// A server that is held, because the worker that would go on with it stands still.
struct Held {
    _stage: Stage,
    desk: Desk,
    server: u32,
    hello: u64,
    worker: Option<Stopped>,
}

impl Held {
    fn new(name: &str) -> Result<Self> {
        let stage = stage()?;
        let mut desk = silent(&stage, name)?;
        let agent = desk.agent_pid();
        until("the agent is known", || {
            let events = well("kams", &["events", "--last", "1000", "-o", "json"])?;
            Ok(events.lines().any(|line| {
                line.contains("\"agent_started\"") && line.contains(&format!("\"agent_pid\":{agent}"))
            }))
        })?;
        let pid = worker()?;
        send(pid, Signal::STOP)?;
        let worker = Some(Stopped(pid));
        let hello = desk.post("initialize", &hello())?;
        let mut server = None;
        until("the server is held", || {
            server = children(agent)
                .into_iter()
                .find(|child| state(*child) == Some('T'));
            Ok(server.is_some())
        })?;
        Ok(Self {
            _stage: stage,
            desk,
            server: server.context("a server")?,
            hello,
            worker,
        })
    }

    fn is_held(&self) -> bool {
        state(self.server) == Some('T')
    }

    /// The server answers as if nothing had been.
    fn runs(&mut self) -> Result<()> {
        let answer = self.desk.answer(self.hello)?;
        ensure!(
            answer["result"]["serverInfo"]["name"] == "desk-server",
            "{answer}"
        );
        self.desk
            .line(&serde_json::json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        passes(&mut self.desk, "on")?;
        nothing_is_stopped(&self.desk)
    }
}

fn kill_all() -> Result<()> {
    well("systemctl", &["kill", "--signal=KILL", UNIT]).map(drop)
}

/// systemd runs `--heal` after the end.
fn healed_after() -> Result<()> {
    let mut held = Held::new("healed-after")?;
    let cursor = Cursor::now()?;
    kill_all()?;
    held.runs()?;
    running()?;
    let journal = cursor.since()?;
    ensure!(journal.contains("1 held processes run again"), "{journal}");
    held.desk.close()
}

/// Where that does not happen, it runs it before the next start.
fn healed_before() -> Result<()> {
    let folder = Path::new("/run/systemd/system/kamsd.service.d");
    std::fs::create_dir_all(folder)?;
    std::fs::write(
        folder.join("tests.conf"),
        "[Service]\nExecStopPost=\nRestart=no\nTimeoutStopSec=20\n",
    )?;
    well("systemctl", &["daemon-reload"])?;
    let outcome = healed_before_the_start();
    std::fs::remove_dir_all(folder)?;
    well("systemctl", &["daemon-reload"])?;
    outcome?;
    running()
}

fn healed_before_the_start() -> Result<()> {
    let mut held = Held::new("healed-before")?;
    let cursor = Cursor::now()?;
    kill_all()?;
    until("its end", || Ok(super::property("ActiveState")? == "failed"))?;
    ensure!(held.is_held(), "nobody was there to let it go");
    well("systemctl", &["start", UNIT])?;
    held.runs()?;
    let journal = cursor.since()?;
    ensure!(journal.contains("1 held processes run again"), "{journal}");
    held.desk.close()
}

/// A worker that stands still when the service is stopped is killed, and what it held runs.
fn stopped() -> Result<()> {
    let mut held = Held::new("stopped")?;
    let output = run("systemctl", &["stop", UNIT])?;
    ensure!(output.status.success(), "{}", said(&output));
    held.runs()?;
    held.desk.close()?;
    well("systemctl", &["start", UNIT])?;
    running()
}

/// What a second daemon says, which must be no success, and must leave what the first one holds.
fn refused(held: &Held, output: &Output) -> Result<()> {
    let said = said(output);
    ensure!(output.status.code() == Some(2), "{}: {said}", output.status);
    ensure!(said.contains("another kamsd"), "it is not told why: {said}");
    ensure!(held.is_held(), "what the first one holds was let go: {said}");
    ensure!(
        Path::new(PINS).exists(),
        "what names held processes is gone: {said}"
    );
    Ok(())
}

/// The first daemon goes on as if nothing had been.
fn first_goes_on(mut held: Held) -> Result<()> {
    drop(held.worker.take());
    held.runs()?;
    held.desk.close()?;
    let stage = stage()?;
    let mut next = open(&stage, "next")?;
    is_judged(&mut next)?;
    next.close()
}

fn second(words: &[&str]) -> Result<()> {
    let held = Held::new("first")?;
    // One that is not refused would go on for ever.
    let output = run("timeout", &[&["60", "kamsd"], words].concat())?;
    refused(&held, &output)?;
    first_goes_on(held)
}

/// The same state, everything else its own.
fn second_elsewhere() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("kams.yaml");
    let socket = folder.path().join("kams.sock");
    let text = format!(
        "admin: {{socket: {}}}\nmetrics: {{listen: off}}\ntelemetry: {{listen: off}}\n",
        socket.display()
    );
    std::fs::write(&config, text)?;
    second(&["--config", &config.to_string_lossy()])
}

/// `kamsd --heal` is for daemons that are dead.
fn heal_by_hand() -> Result<()> {
    let held = Held::new("not-healed")?;
    let output = run("kamsd", &["--heal"])?;
    ensure!(held.is_held(), "let go: {}", said(&output));
    ensure!(said(&output).contains("kamsd runs"), "{}", said(&output));
    first_goes_on(held)
}
