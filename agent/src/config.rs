//! The daemon's configuration: `/etc/kams/kams.yaml` and `/etc/kams/conf.d/*.yaml`.
//!
//! Two stages. `source` and `tree` turn files into one located tree (later files win key by key); `keys` checks
//! each key of the tree and builds a [`Config`]. All problems are collected, each with its place. The table in
//! `keys` is the only list of keys: the check, the suggestions, the effective listing and the documented sample
//! file come out of it.

mod keys;
mod listing;
mod problem;
mod source;
mod tree;
mod units;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use kams_export::view::Mode;
pub use listing::{check, sample};
pub use problem::{Problem, Problems};
pub(crate) use source::place_of;
pub use source::{Sources, trusted_text};

use crate::admin::FeedLimits;

/// A checked configuration. Every value is usable as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What the daemon does about findings.
    pub mode: Mode,
    /// What gets a relay in enforce mode.
    pub relay: RelayWhat,
    /// What is done about a server that was to get a relay and runs without one.
    pub unrelayed: Unrelayed,
    /// Whom to watch.
    pub watch: Watch,
    /// How to read.
    pub sensor: Sensor,
    /// Who may ask.
    pub admin: Admin,
    /// Who may scrape.
    pub metrics: MetricsConfig,
    /// What agents may report about their model calls.
    pub telemetry: Telemetry,
    /// What the daemon says about itself.
    pub log: Log,
    /// Where state lives.
    pub state_dir: PathBuf,
    /// How much state lives.
    pub retention: Retention,
    /// How much of the event stream stays in memory.
    pub events: FeedLimits,
}

/// `relay`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RelayWhat {
    /// Servers seen before, and those that a configuration of the agent names.
    Known,
    /// All that is shaped like a server.
    Candidates,
}

/// `unrelayed`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unrelayed {
    /// It is told, and the server runs.
    Report,
    /// It is told, and the server is ended, so that its agent starts it again.
    Restart,
}

/// `watch`.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// What to do with programs that look like agents and are on no list.
    pub unknown_agents: UnknownAgents,
    /// Agents besides the built-in ones.
    pub agents: Vec<AgentPattern>,
}

/// `watch.unknown_agents`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UnknownAgents {
    /// Put them on probation and learn those that speak MCP.
    Discover,
    /// Leave them alone.
    Ignore,
}

/// One entry of `watch.agents`. Where both globs are given, both must match.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentPattern {
    /// Name under which it is shown.
    pub name: String,
    /// Glob over the executable: over its whole path where the glob holds a slash, else over its base name.
    pub executable: Option<String>,
    /// Glob over the arguments, joined by single spaces.
    pub arguments: Option<String>,
}

/// `sensor`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensor {
    /// Bytes of the ring buffer between kernel and daemon: a power of two.
    pub ring_buffer: u32,
    /// Bytes that may wait to be judged.
    pub queue: usize,
    /// Longest message that is put together, in bytes; longer ones are counted and skipped.
    pub max_message: usize,
}

/// `admin`.
#[derive(Clone, Debug, PartialEq)]
pub struct Admin {
    /// Path of the Unix socket.
    pub socket: PathBuf,
    /// Members of this group see every user's data and may use the write verbs.
    pub group: String,
}

/// `metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsConfig {
    /// Address of the endpoint; none: no endpoint.
    pub listen: Option<SocketAddr>,
    /// Whether an address that other hosts reach is accepted.
    pub allow_remote: bool,
    /// Distinct server names on labels.
    pub max_servers: usize,
    /// Distinct tool names on labels.
    pub max_tools: usize,
}

/// `telemetry`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Telemetry {
    /// Loopback address of the OTLP/HTTP receiver; none: no receiver.
    pub listen: Option<SocketAddr>,
    /// Largest body of a request as it comes, in bytes.
    pub max_body: usize,
    /// Largest body once it is decompressed, in bytes.
    pub max_unpacked: usize,
    /// Requests a second of one user, in the long run.
    pub requests_per_second: usize,
    /// Bytes a second of one user, in the long run, as they come.
    pub bytes_per_second: usize,
}

/// `log`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Log {
    /// Least severe level that is written.
    pub level: tracing::level_filters::LevelFilter,
    /// Form of a line.
    pub format: LogFormat,
}

/// `log.format`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// For people and the journal.
    Text,
    /// One JSON object per line.
    Json,
}

/// `retention`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Retention {
    /// Findings older than this are deleted.
    pub findings: Duration,
    /// Findings kept per user.
    pub findings_per_user: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Observe,
            relay: RelayWhat::Known,
            unrelayed: Unrelayed::Report,
            watch: Watch {
                unknown_agents: UnknownAgents::Discover,
                agents: Vec::new(),
            },
            sensor: Sensor {
                ring_buffer: kams_host::RING_USUAL,
                queue: 768 << 20,
                max_message: 64 << 20,
            },
            admin: Admin {
                socket: PathBuf::from("/run/kams/kams.sock"),
                group: "kams".to_owned(),
            },
            metrics: MetricsConfig {
                listen: Some(SocketAddr::from(([127, 0, 0, 1], 9464))),
                allow_remote: false,
                max_servers: 200,
                max_tools: 400,
            },
            telemetry: Telemetry {
                listen: Some(SocketAddr::from(([127, 0, 0, 1], 4318))),
                max_body: 8 << 20,
                max_unpacked: 16 << 20,
                requests_per_second: 20,
                bytes_per_second: 4 << 20,
            },
            log: Log {
                level: tracing::level_filters::LevelFilter::INFO,
                format: LogFormat::Text,
            },
            state_dir: PathBuf::from("/var/lib/kams"),
            retention: Retention {
                findings: Duration::from_hours(30 * 24),
                findings_per_user: 10_000,
            },
            events: FeedLimits::default(),
        }
    }
}

/// A configuration with where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The checked configuration.
    pub config: Config,
    /// The files that were read, in the order in which they count.
    pub files: Vec<PathBuf>,
    origins: Vec<(&'static str, Origin)>,
}

/// Which line set a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Origin {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

impl Loaded {
    /// Which line set the key, such as `sensor.queue`; none where the built-in value holds.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.origins.iter().find(|(k, _)| *k == key).map(|(_, o)| o)
    }

    /// Keys whose values differ from `running` and take effect only at the next start.
    pub fn needs_restart(&self, running: &Config) -> Vec<&'static str> {
        let changed = |key: &&keys::Key| (key.show)(running) != (key.show)(&self.config);
        let at_start = keys::KEYS.iter().filter(|key| !key.reload);
        at_start.filter(changed).map(|key| key.path).collect()
    }
}

/// Reads and checks the configuration.
pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
    let mut problems = Vec::new();
    let files = source::read(sources, &mut problems);
    let mut root = tree::Node::empty_map();
    for (index, file) in files.iter().enumerate() {
        match tree::parse(&file.text, index) {
            Ok(node) => root.merge(node),
            Err(fault) => problems.push(file.problem(fault)),
        }
    }
    let mut faults = Vec::new();
    let (config, set) = keys::check(&root, &mut faults);
    for fault in faults {
        let place = fault.at.as_ref().map_or(0, |at| at.file);
        problems.push(match files.get(place) {
            Some(file) => file.problem(fault),
            None => Problem::bare(fault.message, fault.help),
        });
    }
    if !problems.is_empty() {
        problems.sort_by(|a, b| a.place().cmp(&b.place()));
        return Err(Problems(problems));
    }
    let origin = |(key, at): (&'static str, tree::Place)| {
        let file = files.get(at.file)?.path.clone();
        Some((key, Origin { file, line: at.line }))
    };
    Ok(Loaded {
        config,
        origins: set.into_iter().filter_map(origin).collect(),
        files: files.into_iter().map(|f| f.path).collect(),
    })
}

#[cfg(test)]
mod tests;
