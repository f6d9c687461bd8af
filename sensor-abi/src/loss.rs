//! Where and why something was lost: the indexes of the per-CPU loss counters.

/// One cause of loss. The numeric value is the index in the kernel side's `LOSSES` array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Loss {
    /// Payload chunk found no room in the ring buffer.
    RingPayload = 0,
    /// Exec, fork or exit record found no room in the ring buffer.
    RingLifecycle = 1,
    /// The stream table was full.
    MapStreams = 2,
    /// A watched object was freed and its address used again; its entry was dropped before any byte was taken.
    MapStale = 3,
    /// The caller's buffer could not be read (page not present).
    ReadBuffer = 4,
    /// A vector, message header or similar array of the caller could not be read.
    ReadVector = 5,
    /// A call moved more bytes than the program's bound lets it carry.
    CutBytes = 6,
    /// A call had more vector elements or messages than the program's bound lets it walk.
    CutVectors = 7,
    /// A call moved bytes in a form that cannot be read: splice, tee, vmsplice, sendfile.
    UnsupportedSplice = 8,
    /// An endpoint used io_uring; what it moved with it is not seen.
    UnsupportedUring = 9,
    /// A 32-bit call moved bytes on a watched object.
    UnsupportedCompat = 10,
    /// Out-of-band data on a watched socket.
    UnsupportedOob = 11,
    /// A kernel structure could not be read where one was expected.
    ReadKernel = 12,
}

/// Number of kinds of [`Loss`], and the length of the `LOSSES` array.
pub const LOSS_KINDS: u32 = 13;

impl Loss {
    /// Every kind, in index order.
    pub const ALL: [Self; LOSS_KINDS as usize] = [
        Self::RingPayload,
        Self::RingLifecycle,
        Self::MapStreams,
        Self::MapStale,
        Self::ReadBuffer,
        Self::ReadVector,
        Self::CutBytes,
        Self::CutVectors,
        Self::UnsupportedSplice,
        Self::UnsupportedUring,
        Self::UnsupportedCompat,
        Self::UnsupportedOob,
        Self::ReadKernel,
    ];

    /// This kind's bit in a stream's mask of reasons.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Index in the `FORCE` array: every n-th ring output fails (0: none).
pub const FORCE_RING: u32 = 0;
/// Index in the `FORCE` array: every n-th stream insert fails.
pub const FORCE_MAP: u32 = 1;
/// Index in the `FORCE` array: every n-th read of the caller's memory fails.
pub const FORCE_READ: u32 = 2;
/// Length of the `FORCE` array.
pub const FORCE_LEN: u32 = 3;
