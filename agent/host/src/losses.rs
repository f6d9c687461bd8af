//! Loss counters by stage and reason, and the switch that forces losses.

use std::sync::atomic::{AtomicU64, Ordering};

use kams_sensor_abi::loss::Loss;

use crate::event::{LossReason, LossStage};

/// One row of the loss table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossCount {
    /// Stage and reason.
    pub reason: LossReason,
    /// Losses since the sensor started. Never decreases.
    pub count: u64,
}

/// Which stage [`crate::SensorControl::force_loss`] makes fail. For tests: proves that a loss shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForcedStage {
    /// Output of payload to the ring.
    Ring,
    /// Insertion of streams.
    Map,
    /// Reading of the caller's memory.
    Read,
    /// The queue towards the engine.
    Queue,
}

/// Label values of a kernel-side loss.
pub(crate) const fn reason_of(loss: Loss) -> LossReason {
    use LossStage as S;
    let (stage, reason) = match loss {
        Loss::RingPayload => (S::Ring, "payload"),
        Loss::RingLifecycle => (S::Ring, "lifecycle"),
        Loss::MapStreams => (S::Map, "streams_full"),
        Loss::MapStale => (S::Map, "stale"),
        Loss::ReadBuffer => (S::Read, "buffer"),
        Loss::ReadVector => (S::Read, "vector"),
        Loss::CutBytes => (S::Cut, "bytes"),
        Loss::CutVectors => (S::Cut, "vectors"),
        Loss::UnsupportedSplice => (S::Unsupported, "splice"),
        Loss::UnsupportedUring => (S::Unsupported, "io_uring"),
        Loss::UnsupportedCompat => (S::Unsupported, "compat"),
        Loss::UnsupportedOob => (S::Unsupported, "oob"),
        Loss::ReadKernel => (S::Read, "kernel"),
    };
    LossReason { stage, reason }
}

/// Reasons named by a mask of [`Loss::bit`]s.
pub(crate) fn reasons_of(mask: u32) -> Vec<LossReason> {
    Loss::ALL
        .iter()
        .filter(|loss| mask & loss.bit() != 0)
        .map(|&loss| reason_of(loss))
        .collect()
}

/// The queue refused payload.
pub(crate) const QUEUE_PAYLOAD: LossReason = LossReason {
    stage: LossStage::Queue,
    reason: "payload",
};
/// The queue refused exec, fork or exit events.
pub(crate) const QUEUE_LIFECYCLE: LossReason = LossReason {
    stage: LossStage::Queue,
    reason: "lifecycle",
};
/// A record in the ring was not understood.
pub(crate) const RING_RECORD: LossReason = LossReason {
    stage: LossStage::Ring,
    reason: "record",
};
/// The kernel skipped a program because it was already running on that CPU.
pub(crate) const PROGRAM_RECURSION: LossReason = LossReason {
    stage: LossStage::Program,
    reason: "recursion",
};

/// Counters of the user side.
#[derive(Debug, Default)]
pub(crate) struct UserLosses {
    pub(crate) queue_payload: AtomicU64,
    pub(crate) queue_lifecycle: AtomicU64,
    pub(crate) ring_record: AtomicU64,
    /// Every n-th payload event is refused by the queue; 0: none.
    pub(crate) force_queue: AtomicU64,
}

impl UserLosses {
    pub(crate) fn rows(&self) -> [LossCount; 3] {
        let row = |reason, counter: &AtomicU64| LossCount {
            reason,
            count: counter.load(Ordering::Relaxed),
        };
        [
            row(QUEUE_PAYLOAD, &self.queue_payload),
            row(QUEUE_LIFECYCLE, &self.queue_lifecycle),
            row(RING_RECORD, &self.ring_record),
        ]
    }
}
