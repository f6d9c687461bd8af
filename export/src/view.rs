//! What the admin API serves and the CLI renders.
//!
//! All types are flat and carry no payload: names, counts, sizes, times and codes only. Readers must ignore
//! fields they do not know; enums read an unknown word as `Unknown`, so an older CLI can talk to a newer daemon.

mod doctor;
mod event;
mod finding;
mod server;
mod status;
mod time;

pub use doctor::{CheckResult, CheckView, DoctorView};
pub use event::{Direction, EventKind, EventView, Outcome};
pub use finding::{FindingContext, FindingRecord, evidence};
pub use server::{AgentView, NetworkView, SeccompView, ServerState, ServerView, ToolView, Transport};
pub use status::{CoverageView, LossView, Mode, PayloadView, ProbeView, StatusView};
pub use time::{BadTime, Time};

use serde::{Deserialize, Serialize};

/// Version of the wire forms in this module. Raised only when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// One line of the record stream: what `kams events -o json`, `kams findings -o json` and `kams replay` print.
/// The member `type` tells which one it is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Record {
    /// Something that happened on the host.
    Event(EventView),
    /// Something that a detector saw.
    Finding(FindingRecord),
    /// First line of a followed stream: which daemon instance speaks, and where its numbers stand.
    Hello {
        /// Differs for each start of the daemon.
        instance: String,
        /// Number that the next record will get.
        next_seq: u64,
    },
    /// The reader was too slow: this many records of its selection were left out here.
    Missed {
        /// How many.
        count: u64,
    },
    /// Sent at least every few seconds on a quiet stream, so that both sides notice a dead peer.
    Alive,
    /// A kind of record that this version does not know.
    #[serde(other)]
    Unknown,
}

impl Record {
    /// The user whose data this is; none for the stream's own lines.
    pub fn uid(&self) -> Option<u32> {
        match self {
            Self::Event(e) => Some(e.uid),
            Self::Finding(f) => Some(f.uid),
            _ => None,
        }
    }

    /// Its number in the daemon's stream; none for the stream's own lines.
    pub fn seq(&self) -> Option<u64> {
        match self {
            Self::Event(e) => Some(e.seq),
            Self::Finding(f) => Some(f.seq),
            _ => None,
        }
    }

    /// Gives the record its number. The feed does this, once, on publication.
    pub fn set_seq(&mut self, seq: u64) {
        match self {
            Self::Event(e) => e.seq = seq,
            Self::Finding(f) => f.seq = seq,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
