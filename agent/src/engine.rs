//! The engine: sensor events in, records, metrics and tables out.
//!
//! One thread owns who is watched and talks to the rest by messages: [`Command`]s in, the shared [`Live`] tables and
//! the record feed out. It waits for nobody: not for a user's files ([`outside`]), not for readers (the feed drops),
//! not for the disk, and not for the judging of what was said ([`judging`]: a thread of its own).

mod agents;
mod attach;
pub mod backend;
pub mod configured;
pub mod conversation;
pub mod counter;
pub mod describe;
pub mod doctor;
mod early;
pub mod enforce;
pub mod gate;
pub mod judge;
pub mod judging;
mod lifecycle;
pub mod live;
mod network;
pub mod outside;
mod own;
pub mod registry;
pub mod relays;
pub mod replay;
mod seccomp;
mod servers;
pub mod sink;
pub mod stream;
pub mod verdict;
pub mod waste;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kams_detect::cost::Point;
use kams_export::view::{EventKind, EventView, Time};
use kams_host::netblock::Blocks;
use kams_host::{
    Marks, Sensor, SensorControl, SensorError, SensorEvent, SensorEvents, SensorOptions, StreamKey, clock,
};
use kams_mcp::Direction;
use kams_policy::Policy;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use crate::admin::Viewer;
use crate::config::{self, Config};
use crate::discover::agents::{AgentTable, PatternError};
use crate::discover::tracker::{InstanceId, Limits, ProcKey, Tracker, UnknownAgents};
use agents::Endpoint;
use configured::{Configured, Reading};
use enforce::{Enforce, Enforcement, Outcomes};
use judge::decided::{Changed, DecideError, Decided};
use judge::usage::Usage;
use judging::{Judging, Work};
use live::Live;
use network::Network;
use outside::Outside;
use seccomp::Filters;
use servers::Server;
use sink::Sink;

/// Seconds without an agent, or with none whose servers have no relay, after which the payload programs leave the host.
/// Agents come in bursts, and attaching takes about as long as a hasty one needs for its first line.
const REST_AFTER: u32 = 15;
/// What the kernel saw longer ago than this is past the ring and the sensor's queue, in nanoseconds.
const SETTLED_NS: u64 = 10_000_000_000;

/// What the rest of the daemon asks of the engine.
#[derive(Debug)]
pub enum Command {
    /// `kams on` and `kams off`.
    SetEnabled {
        /// On or off.
        enabled: bool,
        /// Who said so.
        by: Viewer,
        /// Result in words.
        done: oneshot::Sender<Result<(), String>>,
    },
    /// A decision about baselines.
    Baseline {
        /// What.
        decided: Decided,
        /// Who said so.
        by: Viewer,
        /// What became of it.
        done: oneshot::Sender<Result<Vec<Changed>, DecideError>>,
    },
    /// A true count of tokens.
    Usage {
        /// The report.
        usage: Usage,
        /// Its shares, by server instance.
        done: oneshot::Sender<Vec<(u64, Point)>>,
    },
    /// What was found about wasted tokens.
    Waste(waste::Output),
    /// A new configuration, checked.
    Reload(Box<Config>),
    /// A new policy, checked.
    Policy(Arc<Policy>),
    /// A question to the gate, or an order.
    Gate(backend::runs::Ask),
    /// Stop.
    Stop,
}

/// Facts that the admin API reads without asking the engine.
#[derive(Debug, Default)]
pub struct Shared {
    sensor: Mutex<Option<SensorControl>>,
    endpoints: Mutex<HashSet<u32>>,
    blocks: Mutex<Option<Arc<Blocks>>>,
}

impl Shared {
    /// The running sensor's handle; none after `kams off`.
    pub fn sensor(&self) -> Option<SensorControl> {
        self.sensor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What cuts servers off the network; none before the engine has started.
    pub fn blocks(&self) -> Option<Arc<Blocks>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_blocks(&self, blocks: &Arc<Blocks>) {
        *self.blocks.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(blocks));
    }

    /// Whether this process is an agent.
    pub fn is_agent(&self, pid: u32) -> bool {
        self.endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&pid)
    }

    /// Whether the process is in an agent's tree, by the mark that the kernel side keeps.
    pub fn is_in_tree(&self, pid: u32) -> bool {
        self.is_agent(pid)
            || self
                .sensor()
                .is_some_and(|sensor| sensor.marks(pid).contains(Marks::TREE))
    }
}

/// Why the engine cannot run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The sensor did not start.
    #[error(transparent)]
    Sensor(#[from] SensorError),
    /// A pattern of the configuration.
    #[error("watch.agents: {0}")]
    Pattern(#[from] PatternError),
    /// The engine's thread could not start.
    #[error("cannot start the engine's thread: {0}")]
    Thread(std::io::Error),
}

/// The engine's state.
pub struct Engine {
    config: Config,
    running: Option<Running>,
    shared: Arc<Shared>,
    live: Live,
    tracker: Tracker,
    agents: AgentTable,
    outside: Outside,
    configured: Configured,
    readings: Option<mpsc::UnboundedReceiver<Reading>>,
    judging: Judging,
    enforce: Enforce,
    network: Network,
    filters: Filters,
    outcomes: Option<Outcomes>,
    servers: HashMap<InstanceId, Server>,
    keys: HashMap<StreamKey, (InstanceId, Direction)>,
    endpoints: HashMap<u32, Endpoint>,
    /// Start times of processes with a mark.
    starts: HashMap<u32, u64>,
    learned_paths: HashSet<String>,
    next_id: u64,
    idle_ticks: u32,
    /// Bytes kept back of all candidates.
    kept_back: usize,
    /// Agents that had ended before their exec was looked at.
    missed_agents: u64,
    losses_told: HashMap<(&'static str, &'static str), u64>,
}

struct Running {
    sensor: Sensor,
    control: SensorControl,
}

/// Boot time to wall-clock time.
pub fn to_wall(boot: u64) -> Time {
    let since = clock::to_wall(boot)
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Time::from_unix_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

impl Engine {
    /// An engine with a running sensor, and the events it will read.
    pub fn new(
        config: Config,
        live: Live,
        shared: Arc<Shared>,
        judging: Judging,
        enforcement: Enforcement,
    ) -> Result<(Self, SensorEvents), EngineError> {
        let agents = AgentTable::new(&patterns(&config))?;
        let boot = boot_id();
        let (configured, readings) = Configured::new();
        let blocks = Arc::new(Blocks::new(enforcement.pin.as_deref()));
        shared.set_blocks(&blocks);
        let network = Network::new(blocks, enforcement.cut_offs.clone());
        let (mut enforce, outcomes) = Enforce::new(enforcement);
        let filters = Filters::new(enforce.take_holder());
        let mut engine = Self {
            tracker: Tracker::new(boot, Limits::default(), unknown_agents(&config)),
            config,
            running: None,
            shared,
            live,
            agents,
            outside: Outside::default(),
            configured,
            readings: Some(readings),
            judging,
            enforce,
            network,
            filters,
            outcomes: Some(outcomes),
            servers: HashMap::new(),
            keys: HashMap::new(),
            endpoints: HashMap::new(),
            starts: HashMap::new(),
            learned_paths: HashSet::new(),
            next_id: 1,
            idle_ticks: 0,
            kept_back: 0,
            missed_agents: 0,
            losses_told: HashMap::new(),
        };
        for (uid, identity) in engine.enforce.known_servers() {
            engine.tracker.recall_server(uid, &identity);
        }
        let events = engine.start_sensor()?;
        // Before anybody is told that Kams watches: what runs by then is watched.
        engine.adopt();
        engine.follow_network();
        Ok((engine, events))
    }

    /// Runs until [`Command::Stop`].
    pub async fn run(mut self, events: SensorEvents, mut commands: mpsc::Receiver<Command>) {
        let mut events = Some(events);
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (Some(mut readings), Some(mut outcomes)) = (self.readings.take(), self.outcomes.take()) else {
            return;
        };
        self.tell("started");
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::SetEnabled { enabled, by, done }) => {
                        if !enabled {
                            self.end_injector(&mut outcomes);
                        }
                        self.set_enabled(enabled, &by, &mut events, done);
                    }
                    Some(Command::Baseline { decided, by, done }) => {
                        self.judging.hand(Work::Baseline { decided, by, done });
                    }
                    Some(Command::Usage { usage, done }) => self.judging.hand(Work::Usage { usage, done }),
                    Some(Command::Waste(output)) => self.judging.hand(Work::Waste(output)),
                    Some(Command::Reload(config)) => self.reload(*config),
                    Some(Command::Policy(policy)) => {
                        self.follow_policy(Some(Arc::clone(&policy)));
                        self.follow_network();
                        self.judging.hand(Work::Policy(policy));
                    }
                    Some(Command::Gate(ask)) => self.judging.hand(Work::Gate(ask)),
                    Some(Command::Stop) | None => break,
                },
                Some(outcome) = outcomes.recv() => self.injected(outcome),
                Some(reading) = readings.recv() => self.take_reading(reading),
                () = self.network.changed() => {
                    self.follow_network();
                    self.follow_cut_offs();
                }
                _ = tick.tick() => self.tick(),
                event = next(&mut events) => if let Some(event) = event { self.take(event) } else {
                    tracing::error!("the sensor's reader ended; nothing is watched until `kams off` and `kams on`");
                    events = None;
                },
            }
        }
        self.end_injector(&mut outcomes);
        self.stop_sensor();
        self.tell_after("stopped");
        self.judging.end();
    }

    fn take(&mut self, event: SensorEvent) {
        match event {
            SensorEvent::Exec(report) => {
                self.live.metrics.sensor_events("exec", 1);
                self.on_exec(&report);
                self.answer_hold(&report);
            }
            SensorEvent::Held { pid, start_ns, .. } => {
                self.attach_payload();
                self.let_go(ProcKey { pid, start: start_ns });
                tracing::error!(
                    pid,
                    "the report of a held process was lost; it runs without a relay"
                );
            }
            SensorEvent::Fork {
                pid, ppid, start_ns, ..
            } => {
                self.live.metrics.sensor_events("fork", 1);
                self.on_fork(ppid, pid, start_ns);
            }
            SensorEvent::Exit {
                pid,
                start_ns,
                time_ns,
                ..
            } => {
                self.live.metrics.sensor_events("exit", 1);
                self.on_exit(pid, start_ns, time_ns);
            }
            SensorEvent::Payload(chunk) => {
                self.live.metrics.sensor_events("payload", 1);
                self.on_payload(chunk);
            }
            SensorEvent::StreamGap {
                key,
                stream,
                lost_bytes,
                reasons,
                time_ns,
            } => {
                self.live.metrics.sensor_events("gap", 1);
                self.on_gap((key, stream), lost_bytes, &reasons, time_ns);
            }
            SensorEvent::StreamEof { key, .. } => self.on_eof(key),
            SensorEvent::IoUring { pid, time_ns } => {
                self.live.metrics.sensor_events("io_uring", 1);
                self.on_io_uring(pid, time_ns);
            }
            SensorEvent::LifecycleLost { records, reason } => {
                self.live.metrics.sensor_events("lifecycle_lost", 1);
                tracing::warn!(
                    records,
                    stage = reason.stage.as_str(),
                    reason = reason.reason,
                    "process events were lost; scanning what runs"
                );
                self.adopt();
            }
        }
    }

    fn start_sensor(&mut self) -> Result<SensorEvents, SensorError> {
        let options = SensorOptions {
            ring_bytes: self.config.sensor.ring_buffer,
            queue_bytes: self.config.sensor.queue,
            pin: self.enforce.pin(),
            ..SensorOptions::default()
        };
        let (sensor, events) = Sensor::start(options)?;
        let control = sensor.control();
        *self.shared.sensor.lock().unwrap_or_else(PoisonError::into_inner) = Some(control.clone());
        self.running = Some(Running { sensor, control });
        self.follow_policy(None);
        self.live.metrics.set_enabled(true);
        kams_host::memory::give_back();
        Ok(events)
    }

    fn stop_sensor(&mut self) {
        // Before the sensor: what is held is let go while it can be told.
        self.enforce.stop();
        self.filters.forget();
        self.end_everything();
        *self.shared.sensor.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(Running { sensor, control }) = self.running.take() {
            drop(control);
            sensor.stop();
        }
        self.live.metrics.set_enabled(false);
    }

    fn set_enabled(
        &mut self,
        enabled: bool,
        by: &Viewer,
        events: &mut Option<SensorEvents>,
        done: oneshot::Sender<Result<(), String>>,
    ) {
        if enabled == self.running.is_some() && (!enabled || events.is_some()) {
            drop(done.send(Ok(())));
            return;
        }
        let word = if enabled { "on" } else { "off" };
        tracing::warn!(uid = by.uid, pid = by.pid, "kams {word}");
        *events = None;
        if !enabled {
            self.end_network();
        }
        self.stop_sensor();
        self.filters.allow_all();
        self.tracker.start_again();
        if enabled {
            match self.start_sensor() {
                Ok(started) => *events = Some(started),
                Err(error) => {
                    drop(done.send(Err(error.to_string())));
                    return;
                }
            }
            self.adopt();
        }
        let event = Box::new(daemon_event(&format!("{word}, by uid {}", by.uid)));
        self.judging.hand(Work::Switch {
            on: enabled,
            event,
            done,
        });
    }

    fn reload(&mut self, config: Config) {
        match AgentTable::new(&patterns(&config)) {
            Ok(agents) => {
                self.agents = agents;
                self.tracker.set_unknown_agents(unknown_agents(&config));
                self.config = config;
                self.live.metrics.config_reload(true);
                self.tell("configuration reloaded");
                self.adopt();
            }
            Err(error) => {
                self.live.metrics.config_reload(false);
                tracing::error!(%error, "the new configuration is refused; the old one stays");
            }
        }
    }

    fn tick(&mut self) {
        let now = clock::boot_ns();
        let mut actions = Vec::new();
        self.tracker.tick(now, &mut actions);
        self.act(actions, now);
        self.judging.hand(Work::Tick(now.saturating_sub(SETTLED_NS)));
        self.end_lingering(now);
        self.rest_if_idle();
        self.look_after_injector();
        self.tick_network();
        self.look_after_filters();
        self.tell_losses();
    }

    /// Takes the payload programs off the host while nothing passes that only they see.
    fn rest_if_idle(&mut self) {
        let Some(running) = &self.running else { return };
        let idle = !self.needs_payload();
        self.idle_ticks = if idle { self.idle_ticks + 1 } else { 0 };
        if self.idle_ticks == REST_AFTER {
            if let Err(error) = running.control.detach_payload() {
                tracing::warn!(%error, "the payload probe could not be detached");
            }
            kams_host::memory::give_back();
        }
    }

    fn tell_losses(&mut self) {
        let Some(running) = &self.running else { return };
        let of_sensor = running.control.losses().into_iter();
        let losses = of_sensor.map(|loss| (loss.reason.stage.as_str(), loss.reason.reason, loss.count));
        for (reason, count) in self.tracker.counters().rows() {
            self.live.metrics.discovery_limited_total(reason, count);
        }
        let missed = ("engine", "agent_gone_before_seen", self.missed_agents);
        for (stage, reason, count) in losses.chain([missed]) {
            self.live.metrics.sensor_lost_total(stage, reason, count);
            let told = self.losses_told.entry((stage, reason)).or_default();
            let new = count.saturating_sub(*told);
            *told = count;
            if new > 0 {
                tracing::warn!(stage, reason, count = new, "something was not seen");
                self.live.event(EventView {
                    count: Some(new),
                    stage: Some(stage.to_owned()),
                    reason: Some(reason.to_owned()),
                    ..EventView::new(EventKind::Loss, Time::now(), 0, "root")
                });
            }
        }
    }

    fn tell(&mut self, detail: &str) {
        self.live.event(daemon_event(detail));
    }

    /// Tells of the daemon once all that was handed over before is judged.
    fn tell_after(&self, detail: &str) {
        self.judging.hand(Work::Tell(Box::new(daemon_event(detail))));
    }

    fn new_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }
}

fn daemon_event(detail: &str) -> EventView {
    EventView {
        detail: Some(detail.to_owned()),
        ..EventView::new(EventKind::Daemon, Time::now(), 0, "root")
    }
}

async fn next(events: &mut Option<SensorEvents>) -> Option<SensorEvent> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}

fn unknown_agents(config: &Config) -> UnknownAgents {
    match config.watch.unknown_agents {
        config::UnknownAgents::Discover => UnknownAgents::Discover,
        config::UnknownAgents::Ignore => UnknownAgents::Ignore,
    }
}

fn patterns(config: &Config) -> Vec<crate::discover::agents::AgentPattern> {
    let any_folder = |glob: &String| {
        if glob.contains('/') {
            glob.clone()
        } else {
            format!("**/{glob}")
        }
    };
    let pattern = |p: &config::AgentPattern| crate::discover::agents::AgentPattern {
        name: p.name.clone(),
        exe: vec![p.executable.as_ref().map_or_else(|| "**".to_owned(), any_folder)],
        script: Vec::new(),
        argv: p.arguments.iter().cloned().collect(),
    };
    config.watch.agents.iter().map(pattern).collect()
}

/// The kernel's boot id as bytes; zeros where it cannot be read.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&hex, 16).unwrap_or_default().to_be_bytes()
}
