//! The byte-bounded queue between the ring reader and the engine.
//!
//! Payload counts against the bound for as long as the engine holds it, so that what waits for a judge is bounded too.
//!
//! The reader never waits: what does not fit is counted, and payload that does not fit becomes a gap of exactly
//! its stream. Exec, fork and exit events may use a quarter more than the bound, so that a burst of payload does
//! not hide a process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::clock;
use crate::event::{Chunk, LossReason, SensorEvent, StreamId, StreamKey};
use crate::losses::{QUEUE_LIFECYCLE, QUEUE_PAYLOAD, UserLosses};

/// Bytes an event is taken to use beside its payload.
const EVENT_OVERHEAD: usize = 256;

fn weight(event: &SensorEvent) -> usize {
    EVENT_OVERHEAD
        + match event {
            SensorEvent::Payload(chunk) => chunk.data.len(),
            SensorEvent::Exec(exec) => exec.filename.len() + exec.argv.len() + EVENT_OVERHEAD,
            _ => 0,
        }
}

/// Receiving end: the events, in order.
#[derive(Debug)]
pub struct SensorEvents {
    receiver: mpsc::UnboundedReceiver<SensorEvent>,
    used: Arc<AtomicUsize>,
}

impl SensorEvents {
    /// Waits for the next event; `None` after the sensor stopped. Cancel-safe.
    pub async fn recv(&mut self) -> Option<SensorEvent> {
        let event = self.receiver.recv().await?;
        Some(self.taken(event))
    }

    /// Waits for the next event outside an async runtime; `None` after the sensor stopped.
    ///
    /// # Panics
    /// When called from within an async runtime.
    pub fn blocking_recv(&mut self) -> Option<SensorEvent> {
        let event = self.receiver.blocking_recv()?;
        Some(self.taken(event))
    }

    /// The next event, if one is there.
    pub fn try_recv(&mut self) -> Option<SensorEvent> {
        let event = self.receiver.try_recv().ok()?;
        Some(self.taken(event))
    }

    fn taken(&self, event: SensorEvent) -> SensorEvent {
        let weight = weight(&event);
        match event {
            SensorEvent::Payload(chunk) => SensorEvent::Payload(Chunk {
                data: Bytes::from_owner(InUse {
                    data: chunk.data,
                    weight,
                    used: Arc::clone(&self.used),
                }),
                ..chunk
            }),
            other => {
                self.used.fetch_sub(weight, Ordering::AcqRel);
                other
            }
        }
    }
}

/// Payload on its way: it counts against the bound until the last of its bytes is let go, wherever they wait.
struct InUse {
    data: Bytes,
    weight: usize,
    used: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for InUse {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.used.fetch_sub(self.weight, Ordering::AcqRel);
    }
}

/// Bytes refused on a stream and not yet told.
#[derive(Debug, Default, Clone)]
struct Untold {
    bytes: u64,
    reasons: Vec<LossReason>,
}

/// Sending end, owned by the reader.
#[derive(Debug)]
pub(crate) struct EventSender {
    sender: mpsc::UnboundedSender<SensorEvent>,
    used: Arc<AtomicUsize>,
    bound: usize,
    losses: Arc<UserLosses>,
    payload_seen: u64,
    untold: HashMap<(StreamKey, StreamId), Untold>,
    untold_lifecycle: u64,
}

pub(crate) fn channel(
    bound: usize,
    losses: Arc<UserLosses>,
) -> (EventSender, SensorEvents, Arc<AtomicUsize>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let used = Arc::new(AtomicUsize::new(0));
    let events = SensorEvents {
        receiver,
        used: Arc::clone(&used),
    };
    let gauge = Arc::clone(&used);
    let sender = EventSender {
        sender,
        used,
        bound,
        losses,
        payload_seen: 0,
        untold: HashMap::new(),
        untold_lifecycle: 0,
    };
    (sender, events, gauge)
}

impl EventSender {
    /// Queues a lifecycle or other small event.
    pub(crate) fn lifecycle(&mut self, event: SensorEvent) {
        self.tell();
        if !self.push(event, self.bound.saturating_add(self.bound / 4)) {
            self.losses.queue_lifecycle.fetch_add(1, Ordering::Relaxed);
            self.untold_lifecycle += 1;
        }
    }

    /// Queues a chunk, or notes its bytes as a gap.
    pub(crate) fn payload(&mut self, chunk: Chunk) {
        self.tell();
        self.payload_seen += 1;
        let every = self.losses.force_queue.load(Ordering::Relaxed);
        let forced = every != 0 && self.payload_seen.is_multiple_of(every);
        let place = (chunk.key, chunk.stream);
        let bytes = u64::try_from(chunk.data.len()).unwrap_or(u64::MAX);
        // A gap of this stream that could not be told yet must not be overtaken.
        let behind_gap = self.untold.contains_key(&place);
        if forced || behind_gap || !self.push(SensorEvent::Payload(chunk), self.bound) {
            self.losses.queue_payload.fetch_add(1, Ordering::Relaxed);
            self.note_gap(place, bytes, &[QUEUE_PAYLOAD]);
        }
    }

    /// Tells a gap, now or as soon as there is room.
    pub(crate) fn gap(&mut self, key: StreamKey, stream: StreamId, bytes: u64, reasons: &[LossReason]) {
        self.note_gap((key, stream), bytes, reasons);
        self.tell();
    }

    fn note_gap(&mut self, place: (StreamKey, StreamId), bytes: u64, reasons: &[LossReason]) {
        let untold = self.untold.entry(place).or_default();
        untold.bytes = untold.bytes.saturating_add(bytes);
        for reason in reasons {
            if !untold.reasons.contains(reason) {
                untold.reasons.push(*reason);
            }
        }
    }

    /// Tells what was refused earlier, as far as there is room.
    pub(crate) fn tell(&mut self) {
        if self.untold_lifecycle > 0 {
            let records = self.untold_lifecycle;
            if self.push(
                SensorEvent::LifecycleLost {
                    records,
                    reason: QUEUE_LIFECYCLE,
                },
                self.bound,
            ) {
                self.untold_lifecycle = 0;
            }
        }
        if self.untold.is_empty() {
            return;
        }
        for ((key, stream), untold) in std::mem::take(&mut self.untold) {
            let event = SensorEvent::StreamGap {
                key,
                stream,
                lost_bytes: untold.bytes,
                reasons: untold.reasons.clone(),
                time_ns: clock::boot_ns(),
            };
            if !self.push(event, self.bound) {
                self.untold.insert((key, stream), untold);
            }
        }
    }

    /// Whether something waits to be told.
    pub(crate) fn has_untold(&self) -> bool {
        self.untold_lifecycle > 0 || !self.untold.is_empty()
    }

    /// Whether the receiver is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    fn push(&self, event: SensorEvent, bound: usize) -> bool {
        let weight = weight(&event);
        if self.used.load(Ordering::Acquire).saturating_add(weight) > bound {
            return false;
        }
        self.used.fetch_add(weight, Ordering::AcqRel);
        // A closed receiver means the sensor is being stopped: nobody is left to miss the event.
        self.sender.send(event).is_ok() || self.sender.is_closed()
    }
}
