//! What happens to agents and servers when a part of Kams dies, is stopped or is replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kams_tests::desk::{Desk, hello};
use kams_tests::kams::Kams;
use kams_tests::load::under_load;
use kams_tests::processes::{Stopped, children, send, state};
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::json;

use super::starts::gone;
use super::{RELAYED, RULES, open, secret, server, serving, text};
use crate::context::{Context, LINE_AGENT, programs};

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("enforce::worker-killed-under-load", |context| {
            worker(context, false)
        }),
        context.with_kams("enforce::worker-killed-under-load-closed", |context| {
            worker(context, true)
        }),
        context.with_kams("enforce::both-killed-under-load", |context| both(context, false)),
        context.with_kams("enforce::both-killed-under-load-closed", |context| {
            both(context, true)
        }),
        context.with_kams("enforce::parent-killed-under-load", parent),
        context.with_kams("enforce::upgraded-under-load", upgraded),
        context.with_kams("enforce::relay-killed-under-load", relay),
        context.with_kams("enforce::pool-killed", pool),
        context.with_kams("enforce::worker-killed-while-it-holds", |context| {
            held(context, Killed::Worker)
        }),
        context.with_kams("enforce::parent-killed-while-the-worker-holds", |context| {
            held(context, Killed::Parent)
        }),
        context.with_kams("enforce::both-killed-while-they-hold", |context| {
            held(context, Killed::Both)
        }),
    ]
}

/// A daemon of its own, which fails open or closed.
fn daemon(context: &Context, closed: bool) -> Result<Kams> {
    context.stop_shared()?;
    let rules = if closed {
        RULES.replace("mode: enforce\n", "mode: enforce\nfail: closed\n")
    } else {
        RULES.to_owned()
    };
    Kams::start_under(&programs(), RELAYED, &[("policy.yaml", &rules)])
}

fn kill(pid: u32) -> Result<()> {
    send(pid, Signal::KILL)
}

/// The session goes on, is judged again, and nothing stands still.
fn goes_on(kams: Kams, mut agent: Desk) -> Result<()> {
    let refused = agent.call("say", &json!({"text": secret()}))?;
    ensure!(text(&refused, true)?.contains("no-secrets"), "{refused}");
    ensure!(
        text(&agent.call("say", &json!({"text": "fine"}))?, false)? == "fine",
        "the next call"
    );
    for pid in children(agent.agent_pid()) {
        ensure!(!matches!(state(pid), Some('T' | 't')), "{pid} is stopped");
    }
    agent.close()?;
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "kamsd ended with {status}\n{log}");
    Ok(())
}

/// What passed unjudged is told to the next engine.
fn told(kams: &Kams, closed: bool) -> Result<()> {
    let sample = format!(
        "kams_relay_failmode_total{{mode=\"{}\"}}",
        if closed { "closed" } else { "open" }
    );
    let start = Instant::now();
    while kams.metrics()?.get(&sample).copied().unwrap_or_default() <= 0.0 {
        ensure!(start.elapsed().as_secs() < 20, "{sample} stays 0\n{}", kams.log());
        // The relay tells it when it is connected again.
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn worker(context: &Context, closed: bool) -> Result<()> {
    let mut kams = daemon(context, closed)?;
    let stage = Stage::new()?;
    let mut agent = open(&kams, &stage, "steady")?;
    let before = serving(&kams)?;
    let outcome = under_load(&stage, &mut agent, |progress| {
        for _ in 0..3 {
            progress.more(300)?;
            kill(kams.pid())?;
            kams.next_worker()?;
        }
        progress.more(300)
    })?;
    ensure!(outcome.made > 1_200, "{} calls", outcome.made);
    ensure!(
        closed == (outcome.unjudged > 0),
        "{} calls were refused unjudged",
        outcome.unjudged
    );
    ensure!(serving(&kams)? == before, "another relay");
    told(&kams, closed)?;
    goes_on(kams, agent)
}

fn both(context: &Context, closed: bool) -> Result<()> {
    let mut kams = Some(daemon(context, closed)?);
    let stage = Stage::new()?;
    let mut agent = open(kams.as_ref().context("a daemon")?, &stage, "steady")?;
    let outcome = under_load(&stage, &mut agent, |progress| {
        progress.more(300)?;
        let mut dead = kams.take().context("a daemon")?;
        dead.kill()?;
        progress.more(300)?;
        kams = Some(dead.restart()?);
        progress.more(300)
    })?;
    let kams = kams.context("a daemon")?;
    ensure!(outcome.made > 900, "{} calls", outcome.made);
    ensure!(
        closed == (outcome.unjudged > 0),
        "{} calls were refused unjudged",
        outcome.unjudged
    );
    told(&kams, closed)?;
    goes_on(kams, agent)
}

fn parent(context: &Context) -> Result<()> {
    let mut kams = Some(daemon(context, false)?);
    let stage = Stage::new()?;
    let mut agent = open(kams.as_ref().context("a daemon")?, &stage, "steady")?;
    let outcome = under_load(&stage, &mut agent, |progress| {
        progress.more(300)?;
        let mut dead = kams.take().context("a daemon")?;
        dead.end_both(|kams| kams.signal(Signal::KILL))?;
        progress.more(300)?;
        kams = Some(dead.restart()?);
        progress.more(300)
    })?;
    ensure!(outcome.unjudged == 0, "{} calls were refused", outcome.unjudged);
    goes_on(kams.context("a daemon")?, agent)
}

/// Stopped, and started again from another place, while calls go on: none is lost.
fn upgraded(context: &Context) -> Result<()> {
    let mut kams = Some(daemon(context, false)?);
    let stage = Stage::new()?;
    let new = stage.path("new");
    std::fs::create_dir(&new)?;
    for name in ["kamsd", "kams", "kams-relay"] {
        std::fs::copy(programs().join(name), new.join(name))?;
    }
    let mut agent = open(kams.as_ref().context("a daemon")?, &stage, "steady")?;
    let outcome = under_load(&stage, &mut agent, |progress| {
        for place in [&new, &programs()] {
            progress.more(500)?;
            let old = kams.take().context("a daemon")?;
            kams = Some(old.upgrade(place)?);
        }
        progress.more(500)
    })?;
    ensure!(
        outcome.made > 1_500 && outcome.unjudged == 0,
        "{} calls, {} refused",
        outcome.made,
        outcome.unjudged
    );
    goes_on(kams.context("a daemon")?, agent)
}

/// A relay's death ends that server's connection, as the server's own would; the next start gets another.
fn relay(context: &Context) -> Result<()> {
    let kams = daemon(context, false)?;
    let (stage, other) = (Stage::new()?, Stage::new()?);
    let mut bystander = open(&kams, &other, "bystander")?;
    let before = serving(&kams)?;
    let mut agent = open(&kams, &stage, "steady")?;
    let now = serving(&kams)?;
    let relay = *now.iter().find(|pid| !before.contains(pid)).context("a relay")?;
    let server: u32 = text(&agent.call("pid", &json!({}))?, false)?.parse()?;
    for n in 0..50 {
        agent.post(
            "tools/call",
            &json!({"name": "say", "arguments": {"text": n.to_string()}}),
        )?;
    }
    kill(relay)?;
    gone(server)?;
    ensure!(
        bystander.call("say", &json!({"text": "on"}))?["isError"] == false,
        "another server"
    );
    drop(agent);
    let stage = Stage::new()?;
    let agent = open(&kams, &stage, "steady")?;
    bystander.close()?;
    goes_on(kams, agent)
}

/// Without the pool relays serve on, and the next start gets another pool.
fn pool(context: &Context) -> Result<()> {
    let kams = daemon(context, false)?;
    let stage = Stage::new()?;
    let mut agent = open(&kams, &stage, "steady")?;
    for pid in children(kams.pid()) {
        kill(pid)?;
    }
    text(&agent.call("say", &json!({"text": "on"}))?, false)?;
    let stage = Stage::new()?;
    open(&kams, &stage, "next")?.close()?;
    goes_on(kams, agent)
}

#[derive(Clone, Copy, PartialEq)]
enum Killed {
    Worker,
    Parent,
    Both,
}

/// A server that is held at its exec, and whoever would let it go cannot.
pub(super) struct Held {
    pub(super) agent: Desk,
    /// The server's process.
    pub(super) server: u32,
    /// The agent's first request, which waits.
    pub(super) request: u64,
    /// The daemon's worker.
    pub(super) worker: Stopped,
}

impl Held {
    pub(super) fn new(kams: &Kams, stage: &Stage) -> Result<Self> {
        let path = server(stage, "steady")?;
        let mut agent = Desk::silent(stage, LINE_AGENT, &[&path.to_string_lossy()], None)?;
        let pid = agent.agent_pid();
        kams.wait(0, "the agent", |events| {
            events
                .iter()
                .any(|event| event.event == "agent_started" && event.agent_pid == Some(pid))
        })?;
        let worker = kams.pid();
        send(worker, Signal::STOP)?;
        let worker = Stopped(worker);
        let request = agent.post("initialize", &hello())?;
        let start = Instant::now();
        let server = loop {
            if let Some(held) = children(pid).into_iter().find(|child| state(*child) == Some('T')) {
                break held;
            }
            ensure!(start.elapsed().as_secs() < 10, "the server was not held");
            // The kernel stops it and tells nobody but the worker.
            std::thread::sleep(Duration::from_millis(1));
        };
        Ok(Self {
            agent,
            server,
            request,
            worker,
        })
    }

    pub(super) fn is_held(&self) -> bool {
        state(self.server) == Some('T')
    }
}

/// A server is held at its exec, and whoever would let it go cannot: then it dies.
fn held(context: &Context, killed: Killed) -> Result<()> {
    let mut kams = daemon(context, killed == Killed::Both)?;
    let stage = Stage::new()?;
    let Held {
        mut agent,
        server: held,
        request: id,
        worker: frozen,
    } = Held::new(&kams, &stage)?;
    let worker = frozen.0;
    match killed {
        Killed::Worker => {
            kill(worker)?;
            kams.next_worker()?;
        }
        Killed::Parent => {
            kams.end_both(|kams| {
                kams.signal(Signal::KILL)?;
                drop(frozen);
                Ok(())
            })?;
            kams = kams.restart()?;
        }
        Killed::Both => {
            kams.kill()?;
            ensure!(state(held) == Some('T'), "nobody was there to let it go");
            kams = kams.restart()?;
        }
    }
    let answer = agent.answer(id)?;
    ensure!(
        answer["result"]["serverInfo"]["name"] == "desk-server",
        "{answer}"
    );
    ensure!(!matches!(state(held), Some('T' | 't')), "it is stopped still");
    agent.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
    ensure!(
        text(&agent.call("say", &json!({"text": "on"}))?, false)? == "on",
        "a call"
    );
    agent.close()?;
    // The next start is held and relayed as ever.
    let stage = Stage::new()?;
    let agent = open(&kams, &stage, "steady")?;
    goes_on(kams, agent)
}
