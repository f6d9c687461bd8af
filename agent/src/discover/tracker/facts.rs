//! What the tracker is told, and what it answers.

use super::instance::{GoneReason, Instance, InstanceId, Nanos, ProcKey, Rejection};
use super::memory::ProgramKey;
use crate::discover::agents::AgentName;
use crate::discover::candidate::{Candidate, ObjectId, Reason};
use crate::discover::identity::{Resolved, ServerIdentity};

pub(super) const SECOND: Nanos = 1_000_000_000;

/// Whether a candidate of a program that is no known agent is looked at (`watch.unknown_agents`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UnknownAgents {
    /// Watch such a program for a short time; if it speaks MCP it is learned as an agent.
    #[default]
    Discover,
    /// Only configured and built-in agents count.
    Ignore,
}

/// Bounds. All counts are at least 1 in effect.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a candidate of a known agent may stay silent.
    pub candidate_time: Nanos,
    /// How long an unknown program stays on probation after its latest candidate.
    pub probation_time: Nanos,
    /// Unknown programs on probation at once.
    pub probation: usize,
    /// Wrong suspicions after which a program is left alone.
    pub doubts: u32,
    /// How long it is left alone.
    pub doubt_time: Nanos,
    /// Open candidates of one holder.
    pub candidates_per_holder: usize,
    /// Open candidates on the host.
    pub candidates: usize,
    /// Instances in any state on the host.
    pub instances: usize,
    /// Processes followed per instance, and forks followed per agent.
    pub members: usize,
    /// Learned agents remembered.
    pub learned: usize,
    /// Servers remembered.
    pub fingerprints: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            candidate_time: 60 * SECOND,
            probation_time: 20 * SECOND,
            probation: 64,
            doubts: 3,
            doubt_time: 3600 * SECOND,
            candidates_per_holder: 256,
            candidates: 1024,
            instances: 8192,
            members: 512,
            learned: 512,
            fingerprints: 4096,
        }
    }
}

/// The process that holds the agent's end of a candidate.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The process.
    pub proc: ProcKey,
    /// What the agent table says about it.
    pub agent: Option<AgentName>,
    /// What it runs.
    pub program: ProgramKey,
}

/// What is known at an exec.
#[derive(Clone, Debug)]
pub struct Exec {
    /// When.
    pub time: Nanos,
    /// The process.
    pub proc: ProcKey,
    /// Its parent.
    pub parent: ProcKey,
    /// The user it runs as.
    pub uid: u32,
    /// What it is, or will start.
    pub resolved: Resolved,
    /// A client configuration of the user names this command.
    pub configured: bool,
    /// Objects behind fd 0 and fd 1 ([`super::candidate::stdio`]).
    pub stdio: Option<(ObjectId, ObjectId)>,
    /// Verdict on the shape ([`super::candidate::judge`]).
    pub shape: Result<Candidate, Reason>,
    /// Holder of the agent's end; needed for a candidate.
    pub holder: Option<Holder>,
    /// It was running before: its first line is past.
    pub adopted: bool,
}

/// What an exec turned out to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seen {
    /// A new candidate.
    Candidate(InstanceId),
    /// A further process of a chain that is followed already: no new server.
    SameChain(InstanceId),
    /// Not shaped like a server.
    NotShaped(Reason),
    /// The holder is no known agent, and unknown ones are ignored, doubted, or too many at present.
    UnknownAgent,
}

/// What the caller has to do or record.
#[derive(Clone, Debug)]
pub enum Action {
    /// Watch this unknown program's end of its streams, until [`Action::ProbationEnded`].
    ProbationStarted(ProcKey),
    /// Stop watching it, unless it was learned.
    ProbationEnded {
        /// The process.
        proc: ProcKey,
        /// It speaks MCP.
        learned: bool,
    },
    /// A program is an agent; from now on recognise it at exec with [`Tracker::is_learned`].
    AgentLearned(ProgramKey),
    /// MCP is spoken.
    Confirmed(InstanceId),
    /// A server of this user is known from now on; a later tracker is told with [`Tracker::recall_server`].
    ServerLearned(u32, ServerIdentity),
    /// No server after all.
    Rejected(InstanceId, Rejection),
    /// The chain reached a program that names the server better.
    Renamed {
        /// The instance.
        id: InstanceId,
        /// What it was called until now.
        from: ServerIdentity,
    },
    /// The instance ended; its state is handed out.
    Gone(InstanceId, Box<Instance>, GoneReason),
}

/// What limits dropped, since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Candidates given up because there were too many.
    pub candidates_evicted: u64,
    /// Instances given up because there were too many.
    pub instances_evicted: u64,
    /// Candidates of unknown programs not looked at because too many were on probation.
    pub probation_full: u64,
    /// Candidates of programs that are left alone after wrong suspicions.
    pub doubted: u64,
    /// Processes of an instance or forks of an agent that were not followed.
    pub members_dropped: u64,
}

impl Counters {
    /// The same as reasons, label values of `kams_discovery_limited_total`.
    pub const fn rows(&self) -> [(&'static str, u64); 5] {
        [
            ("candidates_evicted", self.candidates_evicted),
            ("instances_evicted", self.instances_evicted),
            ("probation_full", self.probation_full),
            ("doubted", self.doubted),
            ("members_dropped", self.members_dropped),
        ]
    }
}
