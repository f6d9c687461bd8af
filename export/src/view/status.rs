//! `kams status`.

use serde::{Deserialize, Serialize};

use super::Time;

/// What the daemon does about findings.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Findings only.
    #[default]
    Observe,
    /// Calls can be refused.
    Enforce,
    /// A word that this version does not know.
    #[serde(other)]
    Unknown,
}

/// The daemon's state in one page.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct StatusView {
    /// [`super::SCHEMA`].
    pub schema: u32,
    /// Version of the daemon.
    pub version: String,
    /// Differs for each start of the daemon.
    pub instance: String,
    /// Process id of the worker.
    pub pid: u32,
    /// When it started.
    pub started: Time,
    /// Seconds since then, by a clock that does not jump.
    pub uptime_seconds: u64,
    /// Observe or enforce.
    pub mode: Mode,
    /// False after `kams off`.
    pub enabled: bool,
    /// Kernel release.
    pub kernel: String,
    /// `host` where the reader sees everything, else `own`: counts below are then the reader's own.
    pub scope: String,
    /// What is watched and what is not.
    pub coverage: Vec<CoverageView>,
    /// Each kernel probe.
    pub probes: Vec<ProbeView>,
    /// Whether payload is being read now, and why or why not.
    pub payload: PayloadView,
    /// What was lost since start, by stage and reason; only non-zero entries.
    pub losses: Vec<LossView>,
    /// Agents that live now.
    pub agents_live: u64,
    /// Servers that live now.
    pub servers_live: u64,
    /// Tool calls since start.
    pub calls: u64,
    /// Findings since start.
    pub findings: u64,
    /// Anything a person should know or do, one sentence each.
    pub notes: Vec<String>,
}

/// One class of traffic, and whether it is watched.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct CoverageView {
    /// What it is, such as `stdio servers` or `servers reached over HTTP`.
    pub what: String,
    /// Whether Kams sees it.
    pub covered: bool,
    /// How many are there now, where that is known.
    pub count: Option<u64>,
    /// Why not, or with which limits.
    pub detail: String,
}

/// One kernel probe.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ProbeView {
    /// Name, such as `sched_process_exec`; also the metric label.
    pub name: String,
    /// Whether it is attached now.
    pub attached: bool,
    /// Proved by an event that the daemon itself provoked.
    pub proved: bool,
    /// Why it is not attached, or what it serves.
    pub detail: String,
}

/// State of the payload probe.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PayloadView {
    /// Attached now.
    pub attached: bool,
    /// `fexit`, `tracepoint`, or `fexit and tracepoint`; empty while nothing is loaded.
    pub backend: String,
    /// Why it is attached or not, in words.
    pub reason: String,
}

/// One loss counter.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LossView {
    /// Where, such as `kernel`, `ring`, `frame`, `feed`.
    pub stage: String,
    /// Why, such as `reserve_failed`.
    pub reason: String,
    /// How often since start.
    pub count: u64,
}
