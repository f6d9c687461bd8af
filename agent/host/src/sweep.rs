//! Ends watches that nobody else ended: no stream table entry outlives its server and the agent's descriptor.
//!
//! A watch may not end with its server: the agent still reads what the server left in the pipe, and a launcher's
//! descendants may go on. It ends when the server's process is gone *and* no endpoint has the object open any more
//! (by inode number). A thread of its own looks, because procfs is slow and the ring must be drained.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use kams_sensor_abi::stream::{StreamKey as AbiKey, StreamValue};

use crate::clock;
use crate::event::{Marks, StreamId};
use crate::marks::MarkTable;
use crate::procs;
use crate::streams::{StreamTable, key_of};

/// Looks at every watch this often, for ends that were not reported.
const FULL_EVERY: Duration = Duration::from_secs(30);
/// Waits for more ends before it looks, so that many at once cost one look.
const GATHER: Duration = Duration::from_millis(100);
/// First and longest time between looks at a watch whose object is still open.
const RETRY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];
/// A watch without inode number cannot be looked up; it ends when it was unused for this long, ns.
const UNKNOWN_INO_IDLE_NS: u64 = 600 * 1_000_000_000;

/// Why to look.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hint {
    /// This server's process ended.
    ServerEnded(u32),
    /// Ends may have been missed.
    LookAtAll,
}

pub(crate) struct Sweeper {
    pub(crate) hints: Receiver<Hint>,
    pub(crate) streams: Arc<StreamTable>,
    pub(crate) marks: Arc<MarkTable>,
}

impl Sweeper {
    /// Runs until every sender of hints is gone.
    pub(crate) fn run(self) {
        let mut ended: HashSet<u32> = HashSet::new();
        let mut retry = RETRY[0];
        let mut next_full = Instant::now() + FULL_EVERY;
        loop {
            let wait = if ended.is_empty() { FULL_EVERY } else { retry };
            let until_full = next_full.saturating_duration_since(Instant::now());
            let mut all = false;
            match self.hints.recv_timeout(wait.min(until_full)) {
                Ok(hint) => {
                    retry = RETRY[0];
                    all |= note(hint, &mut ended);
                    let gathered = Instant::now() + GATHER;
                    while let Ok(hint) = self
                        .hints
                        .recv_timeout(gathered.saturating_duration_since(Instant::now()))
                    {
                        all |= note(hint, &mut ended);
                    }
                }
                Err(RecvTimeoutError::Timeout) => retry = (retry * 2).min(RETRY[1]),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if all || Instant::now() >= next_full {
                next_full = Instant::now() + FULL_EVERY;
                ended.extend(self.streams.all_values().iter().map(|(_, value)| value.server));
                ended.retain(|&server| !self.server_lives(server));
            }
            ended = self.end_watches(&ended);
        }
    }

    /// The mark tells a server from a later process with the same id.
    fn server_lives(&self, server: u32) -> bool {
        self.marks.get(server).contains(Marks::SERVER) && procs::is_alive(server, None)
    }

    /// Ends what can be ended of these servers' watches; returns the servers of which some remain.
    fn end_watches(&self, servers: &HashSet<u32>) -> HashSet<u32> {
        if servers.is_empty() {
            return HashSet::new();
        }
        let orphans: Vec<(AbiKey, StreamValue)> = self
            .streams
            .all_values()
            .into_iter()
            .filter(|(_, value)| servers.contains(&value.server))
            .collect();
        if orphans.is_empty() {
            return HashSet::new();
        }
        let open = self.open_at_endpoints(&orphans);
        let mut remaining = HashSet::new();
        for (key, value) in orphans {
            let in_use = if value.ino == 0 {
                let last = value.used_ns.max(value.since_ns);
                clock::boot_ns().saturating_sub(last) < UNKNOWN_INO_IDLE_NS
            } else {
                open.contains(&value.ino)
            };
            if in_use {
                remaining.insert(value.server);
            } else {
                // Only this very watch: the key may have been given to a new stream meanwhile.
                self.streams
                    .remove(key_of(key.object, key.op), Some(StreamId(value.id)));
            }
        }
        remaining
    }

    /// Inode numbers of the pipes and sockets that agents have open.
    fn open_at_endpoints(&self, orphans: &[(AbiKey, StreamValue)]) -> HashSet<u64> {
        let marked = self.marks.marked(procs::pid_max()).into_iter();
        let endpoints = marked
            .filter(|(_, marks)| marks.contains(Marks::ENDPOINT))
            .map(|(pid, _)| pid);
        let pids: HashSet<u32> = endpoints
            .chain(orphans.iter().map(|(_, value)| value.agent))
            .collect();
        pids.into_iter()
            .flat_map(procs::fd_links)
            .map(|link| link.ino)
            .filter(|&ino| ino != 0)
            .collect()
    }
}

fn note(hint: Hint, ended: &mut HashSet<u32>) -> bool {
    match hint {
        Hint::ServerEnded(pid) => {
            ended.insert(pid);
            false
        }
        Hint::LookAtAll => true,
    }
}
