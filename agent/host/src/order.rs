//! Keeps the promised order: the exec report of a server comes before what passes on its streams.
//!
//! The kernel side watches a new server's streams shortly before its exec is complete, so that an agent's first line
//! is not missed; that line can then be in the ring before the exec report. It is held back here until the report
//! comes, which takes some hundred microseconds, at most [`PATIENCE`].

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::event::{SensorEvent, StreamId};
use crate::record::Record;

/// A watched child that never runs a new image is taken as it is after this time.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most streams remembered as checked; beyond that they are checked again, which costs one look at the table each.
const CHECKED_MAX: usize = 64 * 1024;

struct Held {
    server: u32,
    stream: StreamId,
    since: Instant,
    record: Record,
}

/// Streams whose server's exec report has not come yet, and what waits for it.
#[derive(Default)]
pub(crate) struct Order {
    /// Servers whose exec report came and whose end did not.
    servers: HashSet<u32>,
    /// Servers that ended lately: agents read what they left after their end.
    ended: VecDeque<(u32, Instant)>,
    /// Streams that need no look any more.
    checked: HashSet<StreamId>,
    held: Vec<Held>,
}

/// The stream a record belongs to.
fn stream_of(record: &Record) -> Option<StreamId> {
    match record {
        Record::Chunk { chunk, .. } => Some(chunk.stream),
        Record::Gap { stream, .. } | Record::Event(SensorEvent::StreamEof { stream, .. }) => Some(*stream),
        Record::Event(_) => None,
    }
}

impl Order {
    /// Holds `record` back or returns what is to be delivered now, in order. `server_of` tells the server of a
    /// stream's present watch, if the watch still exists and was made by the kernel side.
    pub(crate) fn pass(
        &mut self,
        record: Record,
        server_of: impl FnOnce(&Record) -> Option<u32>,
    ) -> Vec<Record> {
        if let Some(stream) = stream_of(&record) {
            let server = self
                .held
                .iter()
                .find(|held| held.stream == stream)
                .map(|held| held.server);
            let server = server.or_else(|| self.unreported_server(stream, &record, server_of));
            return match server {
                Some(server) => {
                    self.held.push(Held {
                        server,
                        stream,
                        since: Instant::now(),
                        record,
                    });
                    Vec::new()
                }
                None => vec![record],
            };
        }
        match &record {
            Record::Event(SensorEvent::Exec(exec)) if exec.watched => {
                let pid = exec.pid;
                self.servers.insert(pid);
                let mut all = vec![record];
                all.extend(self.release(|held| held.server == pid));
                all
            }
            Record::Event(SensorEvent::Exit { pid, .. }) => {
                let pid = *pid;
                if self.servers.remove(&pid) {
                    self.ended.push_back((pid, Instant::now()));
                }
                let mut all = self.release(|held| held.server == pid);
                all.push(record);
                all
            }
            _ => vec![record],
        }
    }

    /// What waited too long.
    pub(crate) fn overdue(&mut self) -> Vec<Record> {
        let now = Instant::now();
        let late: HashSet<StreamId> = self
            .held
            .iter()
            .filter(|held| now.duration_since(held.since) >= PATIENCE)
            .map(|held| held.stream)
            .collect();
        self.release(|held| late.contains(&held.stream))
    }

    /// Whether something waits.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    fn unreported_server(
        &mut self,
        stream: StreamId,
        record: &Record,
        server_of: impl FnOnce(&Record) -> Option<u32>,
    ) -> Option<u32> {
        if self.checked.contains(&stream) {
            return None;
        }
        let now = Instant::now();
        while self
            .ended
            .front()
            .is_some_and(|(_, at)| now.duration_since(*at) >= PATIENCE)
        {
            self.ended.pop_front();
        }
        let reported = |server: &u32| {
            self.servers.contains(server) || self.ended.iter().any(|(ended, _)| ended == server)
        };
        let server = server_of(record).filter(|server| !reported(server));
        if server.is_none() {
            self.remember(stream);
        }
        server
    }

    fn remember(&mut self, stream: StreamId) {
        if self.checked.len() >= CHECKED_MAX {
            self.checked.clear();
        }
        self.checked.insert(stream);
    }

    fn release(&mut self, which: impl Fn(&Held) -> bool) -> Vec<Record> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let (out, stay): (Vec<Held>, Vec<Held>) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|held| which(held));
        self.held = stay;
        out.into_iter()
            .map(|held| {
                self.remember(held.stream);
                held.record
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Marks;
    use crate::record::LostTotals;

    fn gap(stream: u64, object: u64) -> Record {
        Record::Gap {
            object,
            op: 0,
            stream: StreamId(stream),
            lost: LostTotals::default(),
        }
    }

    fn exit(pid: u32) -> Record {
        Record::Event(SensorEvent::Exit {
            pid,
            start_ns: 0,
            marks: Marks::NONE,
            time_ns: 0,
        })
    }

    fn objects(records: &[Record]) -> Vec<u64> {
        let object = |record: &Record| match record {
            Record::Gap { object, .. } => *object,
            _ => 0,
        };
        records.iter().map(object).collect()
    }

    #[test]
    fn early_records_wait_in_order_and_others_pass() {
        let mut order = Order::default();
        assert!(order.pass(gap(1, 11), |_| Some(7)).is_empty());
        assert!(
            order
                .pass(gap(1, 12), |_| unreachable!("known to wait"))
                .is_empty()
        );
        assert_eq!(objects(&order.pass(gap(2, 21), |_| None)), [21]);
        assert!(order.holds());
        // The end of the server releases them, before itself.
        assert_eq!(objects(&order.pass(exit(7), |_| None)), [11, 12, 0]);
        assert!(!order.holds());
        assert_eq!(
            objects(&order.pass(gap(1, 13), |_| unreachable!("checked"))),
            [13]
        );
    }

    #[test]
    fn what_a_server_left_is_read_after_its_end() {
        let mut order = Order::default();
        order.servers.insert(7);
        order.pass(exit(7), |_| None);
        assert_eq!(objects(&order.pass(gap(3, 31), |_| Some(7))), [31]);
    }

    #[test]
    fn nothing_is_overdue_at_once() {
        let mut order = Order::default();
        assert!(order.pass(gap(1, 11), |_| Some(7)).is_empty());
        assert!(order.overdue().is_empty());
    }
}
