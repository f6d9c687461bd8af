//! What all tests share: where Kams runs, and the comparison after each scene.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use kams_tests::compare::{Rigour, compare};
use kams_tests::event::Event;
use kams_tests::kams::Kams;
use kams_tests::kit;
use kams_tests::stage::Stage;
use kams_tests::wire::Talk;
use libtest_mimic::{Completion, Failed, Trial};

use crate::enforce;

/// The driver programs of this crate.
pub(crate) const BOX: &str = env!("CARGO_BIN_EXE_kams-box");
pub(crate) const DESK_SERVER: &str = env!("CARGO_BIN_EXE_desk-server");
pub(crate) const FORM_AGENT: &str = env!("CARGO_BIN_EXE_form-agent");
pub(crate) const FORM_SERVER: &str = env!("CARGO_BIN_EXE_form-server");
pub(crate) const LINE_AGENT: &str = env!("CARGO_BIN_EXE_line-agent");
pub(crate) const SPILL_SERVER: &str = env!("CARGO_BIN_EXE_spill-server");
pub(crate) const ODD_AGENT: &str = env!("CARGO_BIN_EXE_odd-agent");

/// Configuration that makes the drivers known agents: they start talking within a millisecond, as an agent that is
/// yet to be learned does not.
pub(crate) const DRIVERS: &str = "watch:\n  agents:\n  - {name: form-agent, executable: form-agent}\n  \
    - {name: odd-agent, executable: odd-agent}\n";

/// Shared by all trials.
pub(crate) struct Context {
    harness_only: bool,
    /// The daemon that most tests share, started by the first.
    shared: Mutex<Option<Arc<Kams>>>,
    /// The same of those that enforce. One daemon at a time has the host.
    enforcing: Mutex<Option<Arc<Kams>>>,
}

/// Plays a scene on its stage.
pub(crate) type Play = Box<dyn Fn(&Stage) -> Result<()> + Send>;

/// One agent with one server, and what Kams must say of it.
pub(crate) struct Scene {
    /// Name of the trial.
    pub(crate) name: String,
    /// Part of the agent's name.
    pub(crate) agent: &'static str,
    /// Identity of the server.
    pub(crate) server: String,
    /// Exactness.
    pub(crate) verdict: Verdict,
    /// Plays it and checks that agent and server did what they should.
    pub(crate) play: Play,
    /// Needs npm and Python packages.
    pub(crate) packages: bool,
}

/// How to judge what was seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// The events must be the record.
    Same(Rigour),
    /// The events must be the record, or a loss must have been counted.
    SameOrCounted,
}

impl Context {
    pub(crate) fn new(harness_only: bool) -> Self {
        Self {
            harness_only,
            shared: Mutex::new(None),
            enforcing: Mutex::new(None),
        }
    }

    /// Whether Kams stays out of it.
    pub(crate) fn harness_only(&self) -> bool {
        self.harness_only
    }

    /// Why tests that start Kams cannot run here; none where they can.
    pub(crate) fn hindrance(&self) -> Option<&'static str> {
        if self.harness_only {
            Some("only the harness is tested")
        } else if !rustix::process::geteuid().is_root() {
            Some("needs root: kamsd loads kernel programs")
        } else {
            None
        }
    }

    /// The shared daemon.
    pub(crate) fn kams(&self) -> Result<Arc<Kams>> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kams) = &*shared {
            return Ok(Arc::clone(kams));
        }
        stop(&self.enforcing)?;
        let kams = Arc::new(Kams::start(&programs(), DRIVERS)?);
        Ok(Arc::clone(shared.insert(kams)))
    }

    /// The shared daemon that enforces [`enforce::RULES`].
    pub(crate) fn enforcing(&self) -> Result<Arc<Kams>> {
        let mut enforcing = self.enforcing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kams) = &*enforcing {
            return Ok(Arc::clone(kams));
        }
        stop(&self.shared)?;
        let rules = [("policy.yaml", enforce::RULES)];
        let kams = Arc::new(Kams::start_under(&programs(), enforce::RELAYED, &rules)?);
        Ok(Arc::clone(enforcing.insert(kams)))
    }

    /// Stops the shared daemons: one that runs alone is needed.
    pub(crate) fn stop_shared(&self) -> Result<()> {
        stop(&self.shared)?;
        stop(&self.enforcing)
    }

    /// The trial of a scene: plays it on a stage of its own, then compares.
    pub(crate) fn trial(self: &Arc<Self>, scene: Scene) -> Trial {
        let context = Arc::clone(self);
        Trial::ignorable_test(scene.name.clone(), move || context.run(&scene))
    }

    /// A trial that needs Kams, and no packages.
    pub(crate) fn with_kams(self: &Arc<Self>, name: &str, test: fn(&Self) -> Result<()>) -> Trial {
        let context = Arc::clone(self);
        Trial::ignorable_test(name, move || {
            if let Some(hindrance) = context.hindrance() {
                return Ok(Completion::ignored_with(hindrance));
            }
            finished(test(&context))
        })
    }

    fn run(&self, scene: &Scene) -> Result<Completion, Failed> {
        if let Some(missing) = kit::missing_packages().filter(|_| scene.packages) {
            return Ok(Completion::ignored_with(missing));
        }
        if self.harness_only {
            return finished(Stage::new().and_then(|stage| {
                (scene.play)(&stage)?;
                one_talk(&stage).map(drop)
            }));
        }
        match self.hindrance() {
            Some(hindrance) => Ok(Completion::ignored_with(hindrance)),
            None => finished(self.watched(scene)),
        }
    }

    fn watched(&self, scene: &Scene) -> Result<()> {
        let kams = self.kams()?;
        let lost = kams.metric("kams_sensor_lost_total")?;
        let mark = kams.mark();
        let stage = Stage::new()?;
        (scene.play)(&stage)?;
        let talk = one_talk(&stage)?;
        let events = only(settled(&kams, mark, &[&talk])?)?;
        let named = |event: &Event| event.server.as_deref() == Some(scene.server.as_str());
        ensure!(
            events.last().is_some_and(named),
            "not taken for {}: {:#?}",
            scene.server,
            events.last()
        );
        let agent = events
            .last()
            .and_then(|event| event.agent.clone())
            .unwrap_or_default();
        ensure!(
            agent.contains(scene.agent),
            "`{agent}` does not name the agent {}",
            scene.agent
        );
        match scene.verdict {
            Verdict::Same(rigour) => compare(&talk, &events, rigour),
            Verdict::SameOrCounted => compare(&talk, &events, Rigour::Exact).or_else(|difference| {
                let counted = kams.metric("kams_sensor_lost_total")? > lost;
                ensure!(counted, "a silent loss: {difference:#}");
                let last = talk.tool_calls().last().map(|call| call.id.clone());
                let recovered = events
                    .iter()
                    .any(|event| event.event == "tool_result" && event.request_id == last);
                ensure!(
                    recovered,
                    "after the loss the plain call is not seen: {events:#?}"
                );
                Ok(())
            }),
        }
    }
}

fn stop(daemon: &Mutex<Option<Arc<Kams>>>) -> Result<()> {
    let kams = daemon.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(kams) = kams else { return Ok(()) };
    let Ok(kams) = Arc::try_unwrap(kams) else {
        bail!("a test still uses the shared daemon")
    };
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "the shared kamsd ended with {status}\n{log}");
    Ok(())
}

fn finished(outcome: Result<()>) -> Result<Completion, Failed> {
    outcome
        .map(|()| Completion::Completed)
        .map_err(|error| format!("{error:#}").into())
}

/// Where kamsd and kams lie: beside the drivers, or in the folder that `KAMS_PROGRAMS` names.
pub(crate) fn programs() -> PathBuf {
    if let Some(folder) = std::env::var_os("KAMS_PROGRAMS") {
        return folder.into();
    }
    Path::new(BOX).parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// The record of the one server of a stage.
pub(crate) fn one_talk(stage: &Stage) -> Result<Talk> {
    let mut talks = stage.talks()?;
    ensure!(
        talks.len() == 1,
        "{} servers left a record, one was started",
        talks.len()
    );
    let talk = talks.remove(0);
    ensure!(!talk.exchanges.is_empty(), "the server recorded nothing");
    Ok(talk)
}

/// The events of the one server of one agent.
pub(crate) fn only(mut agents: Vec<BTreeMap<u64, Vec<Event>>>) -> Result<Vec<Event>> {
    let servers = agents.pop().filter(|_| agents.is_empty()).context("one agent")?;
    ensure!(
        servers.len() == 1,
        "one server spoke MCP, Kams shows {}: {servers:#?}",
        servers.len()
    );
    servers.into_values().next().context("one server")
}

/// Waits until the servers of these records have ended and all that came before has been shown. Returns, for each
/// record, the events of every server that spoke MCP with the same agent; other programs of the host may start
/// servers meanwhile, and are left out.
pub(crate) fn settled(kams: &Kams, mark: usize, talks: &[&Talk]) -> Result<Vec<BTreeMap<u64, Vec<Event>>>> {
    let ended = |events: &[Event], talk: &Talk| {
        of_agent(events, talk).values().any(|events| {
            let is = |event: &Event, kind: &str| event.event == kind && is_server(event, talk);
            events.iter().any(|event| is(event, "server_gone"))
        })
    };
    kams.wait(mark, "the end of the server", |events| {
        talks.iter().all(|talk| ended(events, talk))
    })?;
    let all = barrier(kams, mark)?;
    Ok(talks.iter().map(|talk| of_agent(&all, talk)).collect())
}

/// Plays one more session and waits for its end: what comes before it in the stream is complete.
pub(crate) fn barrier(kams: &Kams, mark: usize) -> Result<Vec<Event>> {
    // On a busy machine the daemon may see the driver too late to read its session; the next one serves as well.
    let mut tries = 0;
    loop {
        tries += 1;
        match one_barrier(kams, mark) {
            Err(_) if tries < 3 => {}
            result => return result,
        }
    }
}

fn one_barrier(kams: &Kams, mark: usize) -> Result<Vec<Event>> {
    let stage = Stage::new()?;
    let mut last = stage.command(FORM_AGENT);
    last.args(["pipe-write", FORM_SERVER])
        .env("KAMS_WITNESS", stage.path("witness"));
    stage.run_well(&mut last)?;
    let talk = one_talk(&stage)?;
    let before = kams.mark();
    let ended = |event: &Event| event.event == "server_gone" && is_server(event, &talk);
    let mut all = kams
        .wait(mark, "the end of the barrier", |events| events.iter().any(ended))
        .with_context(|| format!("{} events came since the barrier began", kams.mark() - before))?;
    let barrier = all
        .iter()
        .rev()
        .find(|event| ended(event))
        .and_then(|event| event.server_id);
    all.retain(|event| event.server_id.is_none() || event.server_id != barrier);
    Ok(all)
}

/// Whether the event is about this server: its own process or a launcher above it.
fn is_server(event: &Event, talk: &Talk) -> bool {
    event
        .server_pid
        .is_some_and(|pid| pid == talk.pid || below_us(talk).contains(&pid))
}

/// The ancestors of a server that are our descendants.
fn below_us(talk: &Talk) -> &[u32] {
    let own = std::process::id();
    let end = talk.tree.iter().position(|pid| *pid == own).unwrap_or_default();
    talk.tree.get(..end).unwrap_or_default()
}

/// The events of each server that spoke MCP with the agent that started this one, by server number.
fn of_agent(events: &[Event], talk: &Talk) -> BTreeMap<u64, Vec<Event>> {
    let mut servers: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
    for event in events {
        if let (Some(id), Some(agent)) = (event.server_id, event.agent_pid)
            && below_us(talk).contains(&agent)
        {
            servers.entry(id).or_default().push(event.clone());
        }
    }
    servers.retain(|_, events| events.iter().any(|event| event.event == "server_confirmed"));
    servers
}

/// The base name of a path, as Kams names an executable.
pub(crate) fn base_name(path: &str) -> String {
    Path::new(path)
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
