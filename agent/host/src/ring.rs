//! The reader: drains the ring buffer as fast as it fills and turns losses into gaps of their streams.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use aya::maps::{MapData, PerCpuArray, RingBuf};
use kams_sensor_abi::loss::Loss;

use crate::control::SensorControl;
use crate::event::{Marks, SensorEvent, StreamId, StreamKey};
use crate::loader::KernelLog;
use crate::losses::{PROGRAM_RECURSION, UserLosses, reason_of, reasons_of};
use crate::order::Order;
use crate::priority::undisturbed;
use crate::queue::EventSender;
use crate::record::{LostTotals, Record, parse};
use crate::streams::{StreamTable, is_user_id, key_of};
use crate::sweep::Hint;

/// Time between looks at the counters while something may have to be told without a ring record.
const TICK: Duration = Duration::from_millis(250);
/// Longest sleep while nothing happens.
const IDLE: Duration = Duration::from_mins(1);

/// What the reader thread owns.
pub(crate) struct Reader {
    pub(crate) ring: RingBuf<MapData>,
    pub(crate) sender: EventSender,
    pub(crate) streams: Arc<StreamTable>,
    pub(crate) counters: Arc<PerCpuArray<MapData, u64>>,
    pub(crate) losses: Arc<UserLosses>,
    /// Readable when the thread is to look at `stop` or at new conditions.
    pub(crate) wake: OwnedFd,
    pub(crate) stop: Arc<AtomicBool>,
    /// Payload probes are attached: losses may occur.
    pub(crate) payload_on: Arc<AtomicBool>,
    pub(crate) told: Told,
    pub(crate) hints: Sender<Hint>,
    pub(crate) order: Order,
    pub(crate) kernel_log: Option<KernelLog>,
    pub(crate) skipped: SkippedRuns,
}

/// Runs of programs that the kernel skipped. It does not say whose they were: any watched stream can miss bytes.
pub(crate) struct SkippedRuns {
    control: SensorControl,
    told: u64,
}

impl SkippedRuns {
    pub(crate) const fn new(control: SensorControl) -> Self {
        Self { control, told: 0 }
    }

    /// Whether there were any since the last time.
    fn news(&mut self) -> bool {
        let now = self.control.0.programs.recursion_misses();
        std::mem::replace(&mut self.told, now) < now
    }
}

/// Losses already told, per watch.
#[derive(Debug, Default)]
pub(crate) struct Told {
    streams: HashMap<(StreamKey, StreamId), LostTotals>,
    lifecycle: u64,
    /// Sum of every counter when the table was last looked at.
    all: u64,
}

impl Told {
    /// What `now` has more than was told, if anything.
    fn news(&mut self, key: StreamKey, stream: StreamId, now: LostTotals) -> Option<LostTotals> {
        let last = self.streams.entry((key, stream)).or_default();
        // Records of two CPUs can come out of order by a little: only growth is news.
        if now.count <= last.count && now.bytes <= last.bytes {
            return None;
        }
        let news = LostTotals {
            bytes: now.bytes.saturating_sub(last.bytes),
            reasons: now.reasons,
            count: now.count.saturating_sub(last.count),
        };
        *last = LostTotals {
            bytes: now.bytes.max(last.bytes),
            reasons: now.reasons,
            count: now.count.max(last.count),
        };
        Some(news)
    }
}

impl Reader {
    /// Runs until stopped or until nobody receives any more.
    pub(crate) fn run(mut self) {
        let mut looked = Instant::now();
        // Something arrived since the last look at the counters, so losses may have.
        let mut active = true;
        while !self.stop.load(Ordering::Acquire) && !self.sender.is_closed() {
            active |= self.drain();
            if let Some(flush) = &mut self.kernel_log {
                flush();
            }
            active |= self.payload_on.load(Ordering::Acquire) || self.sender.has_untold();
            active |= self.order.holds();
            if active && looked.elapsed() >= TICK {
                self.look_for_untold();
                for record in self.order.overdue() {
                    self.deliver_now(record);
                }
                looked = Instant::now();
                // What is held back becomes overdue without any record coming in.
                active = self.order.holds();
            }
            self.wait(if active { TICK } else { IDLE });
        }
    }

    /// Delivers what is there; whether there was anything.
    fn drain(&mut self) -> bool {
        // One record at a time: its ring space is free again before the next is parsed.
        let mut any = false;
        while let Some(record) = self.next_record() {
            self.deliver(record);
            any = true;
        }
        any
    }

    /// The next record that is understood; others are counted.
    pub(crate) fn next_record(&mut self) -> Option<Record> {
        loop {
            let item = self.ring.next()?;
            if let Some(record) = parse(&item) {
                return Some(record);
            }
            self.losses.ring_record.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Delivers a record, and what waited for it.
    pub(crate) fn deliver(&mut self, record: Record) {
        let streams = &self.streams;
        for record in self
            .order
            .pass(record, |record| kernel_watch_server(record, streams))
        {
            self.deliver_now(record);
        }
    }

    fn deliver_now(&mut self, record: Record) {
        match record {
            Record::Event(event) => {
                if let SensorEvent::Exit { pid, marks, .. } = &event
                    && marks.contains(Marks::SERVER)
                {
                    self.hint(Hint::ServerEnded(*pid));
                }
                self.sender.lifecycle(event);
            }
            Record::Gap {
                object,
                op,
                stream,
                lost,
            } => {
                self.tell_gap(key_of(object, op), stream, lost);
            }
            Record::Chunk { chunk, lost } => {
                self.tell_gap(chunk.key, chunk.stream, lost);
                if !chunk.data.is_empty() {
                    self.sender.payload(chunk);
                }
            }
        }
    }

    fn hint(&self, hint: Hint) {
        // The sweeper lives as long as a sender does; it can only be gone if it panicked, and its panic was told.
        let _sweeper_gone = self.hints.send(hint);
    }

    fn tell_gap(&mut self, key: StreamKey, stream: StreamId, lost: LostTotals) {
        if lost.count == 0 {
            return;
        }
        if let Some(news) = self.told.news(key, stream, lost) {
            self.sender
                .gap(key, stream, news.bytes, &reasons_of(news.reasons));
        }
    }

    /// Tells losses that no later record carried.
    fn look_for_untold(&mut self) {
        self.sender.tell();
        let lifecycle = self.counter(Loss::RingLifecycle);
        if lifecycle > self.told.lifecycle {
            let records = lifecycle - self.told.lifecycle;
            self.told.lifecycle = lifecycle;
            self.hint(Hint::LookAtAll);
            self.sender.lifecycle(SensorEvent::LifecycleLost {
                records,
                reason: reason_of(Loss::RingLifecycle),
            });
        }
        if self.skipped.news() {
            self.hint(Hint::LookAtAll);
            for (key, value) in self.streams.all_values() {
                let key = key_of(key.object, key.op);
                self.sender.gap(key, StreamId(value.id), 0, &[PROGRAM_RECURSION]);
            }
        }
        let all = Loss::ALL.iter().map(|&loss| self.counter(loss)).sum();
        if all == self.told.all && self.told.streams.len() < 4096 {
            return;
        }
        self.told.all = all;
        let streams = self.streams.all_values();
        let mut living = HashMap::with_capacity(streams.len().min(self.told.streams.len()));
        for (key, value) in streams {
            let place = (key_of(key.object, key.op), StreamId(value.id));
            let totals = LostTotals {
                bytes: value.lost_bytes,
                reasons: value.lost_reasons,
                count: value.lost_count,
            };
            self.tell_gap(place.0, place.1, totals);
            if let Some(told) = self.told.streams.get(&place) {
                living.insert(place, *told);
            }
        }
        // Watches that ended leave nothing behind.
        self.told.streams = living;
    }

    fn counter(&self, loss: Loss) -> u64 {
        undisturbed(|| self.counters.get(&(loss as u32), 0)).map_or(0, |values| values.iter().sum())
    }

    /// Waits for a record or a wake-up, at most `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let timeout_ms = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
        let mut fds = [
            libc::pollfd {
                fd: self.ring.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            },
            libc::pollfd {
                fd: self.wake.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            },
        ];
        // SAFETY: `fds` is a valid array of two entries whose descriptors are open; poll writes only `revents`.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, timeout_ms) };
        if ready > 0 && fds[1].revents != 0 {
            let mut count = 0u64;
            // SAFETY: reads at most eight bytes into a u64 from our own eventfd, which is non-blocking.
            let _drained = unsafe { libc::read(self.wake.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
    }
}

/// Server of the watch that a payload record belongs to, if the kernel side made it and it still exists.
fn kernel_watch_server(record: &Record, streams: &StreamTable) -> Option<u32> {
    let (key, stream) = match record {
        Record::Chunk { chunk, .. } => (chunk.key, chunk.stream),
        Record::Gap {
            object, op, stream, ..
        } => (key_of(*object, *op), *stream),
        Record::Event(SensorEvent::StreamEof { key, stream, .. }) => (*key, *stream),
        Record::Event(_) => return None,
    };
    if is_user_id(stream) {
        return None;
    }
    streams
        .get(key)
        .filter(|watched| watched.id == stream)
        .map(|watched| watched.watch.server)
}
