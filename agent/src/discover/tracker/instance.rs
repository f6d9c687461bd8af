//! One server process chain, from its first exec to the exit of its last holder.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};

use kams_host::clock::NS_PER_TICK;

use crate::discover::agents::AgentName;
use crate::discover::candidate::{Candidate, ObjectId};
use crate::discover::identity::{Resolved, ServerIdentity};
use crate::discover::opening::{NotMcp, Opening};

/// Nanoseconds since boot (CLOCK_BOOTTIME), as exec reports carry them.
pub type Nanos = u64;

/// A process that cannot be mistaken for a later one with the same number.
///
/// Two keys are equal when their starts fall into the same clock tick: of what runs already procfs tells no more, and
/// exec, fork and exit reports tell nanoseconds. No kernel hands out a process number twice within a tick.
#[derive(Clone, Copy, Debug)]
pub struct ProcKey {
    /// Thread group id in the initial pid namespace.
    pub pid: u32,
    /// Start time of the thread group leader, in nanoseconds since boot.
    pub start: Nanos,
}

impl ProcKey {
    const fn resolved(&self) -> (u32, u64) {
        (self.pid, self.start / NS_PER_TICK)
    }
}

impl PartialEq for ProcKey {
    fn eq(&self, other: &Self) -> bool {
        self.resolved() == other.resolved()
    }
}

impl Eq for ProcKey {}

impl Hash for ProcKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.resolved().hash(state);
    }
}

/// Names an instance across restarts of the daemon.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct InstanceKey {
    /// The kernel's boot id.
    pub boot: [u8; 16],
    /// The first process of the chain: the one the agent started.
    pub proc: ProcKey,
}

/// Number of an instance within one tracker; never reused.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct InstanceId(pub u64);

/// How a server was known before it spoke.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KnownBy {
    /// A client configuration file of the user names this command.
    Configuration,
    /// The same user ran this server before.
    Fingerprint,
}

/// Why a candidate was turned down.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Rejection {
    /// The agent closed its end before a line came: helpers get their input closed at once.
    Eof,
    /// The first line is not MCP's.
    NotMcp(NotMcp),
    /// Nothing came within the time limit.
    Time,
    /// More candidates than the limits allow; the oldest goes.
    Limit,
}

impl Rejection {
    /// Stable word for logs and metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eof => "eof",
            Self::NotMcp(why) => why.name(),
            Self::Time => "time",
            Self::Limit => "limit",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why an instance ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum GoneReason {
    /// Its last process exited, or took other streams.
    Exited,
    /// Nobody holds the agent's end any more.
    AgentExited,
    /// One of its kernel objects turned up elsewhere: its end was missed.
    ObjectReused,
    /// Evicted by the limit on instances.
    Limit,
}

/// Where an instance stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// Shaped like a server; nothing decisive was read. The time is when it is given up; none for known servers.
    Candidate(Option<Nanos>),
    /// MCP was spoken.
    Confirmed,
    /// Turned down; kept only so that its children are not looked at again.
    Rejected(Rejection),
}

/// A server or a candidate for one.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Stable name.
    pub key: InstanceKey,
    /// The user it runs as.
    pub uid: u32,
    /// The agent that talks to it; none while its holder is on probation.
    pub agent: Option<AgentName>,
    /// The process that holds the agent's end.
    pub holder: ProcKey,
    /// Its streams.
    pub streams: Candidate,
    /// What it is called; may become better known until the server first writes.
    pub identity: ServerIdentity,
    /// Known before it spoke.
    pub known: Option<KnownBy>,
    /// It was running before it was first seen.
    pub adopted: bool,
    /// A relay stands before it: its processes hold other objects than `streams` says.
    pub relayed: bool,
    /// Where it stands.
    pub state: State,
    pub(super) launcher: bool,
    /// The process whose image gave the name.
    pub(super) named_by: ProcKey,
    pub(super) frozen: bool,
    pub(super) opening: Opening,
    pub(super) members: HashSet<ProcKey>,
    pub(super) untracked_members: bool,
}

impl Instance {
    /// Whether the program that serves has been reached: no launcher that may have to install it first.
    pub const fn has_arrived(&self) -> bool {
        !self.launcher || self.frozen
    }

    /// The processes that hold the server's ends, in no order.
    pub fn members(&self) -> impl Iterator<Item = ProcKey> + '_ {
        self.members.iter().copied()
    }

    /// The objects that lead to this instance.
    pub(super) fn objects(&self) -> [ObjectId; 4] {
        let s = &self.streams;
        [s.stdin, s.stdout, s.agent_writes, s.agent_reads]
    }

    /// Takes what a later image of the chain is called. Returns the former identity when it changed.
    ///
    /// Only a launcher's successor may rename, and the process that gave the name: a server's own helpers inherit its
    /// streams too. After the server has written, the name stays, since findings were filed under it.
    pub(super) fn refine(&mut self, later: &Resolved, proc: ProcKey) -> Option<ServerIdentity> {
        if self.frozen || !(self.launcher || proc == self.named_by) {
            return None;
        }
        self.named_by = proc;
        self.launcher = later.launcher.is_some();
        if !self.identity.refined_by(&later.identity) {
            return None;
        }
        if self.identity == later.identity {
            if later.identity.version.is_some() {
                self.identity.version.clone_from(&later.identity.version);
            }
            return None;
        }
        Some(std::mem::replace(&mut self.identity, later.identity.clone()))
    }
}
