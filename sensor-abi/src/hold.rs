//! Processes that are held at their exec.

/// Value of an entry in the map of held processes; the key is the process id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct HoldValue {
    /// Start of the process, CLOCK_BOOTTIME ns: tells it from a later process with the same id.
    pub start_ns: u64,
    /// When it was stopped, CLOCK_BOOTTIME ns.
    pub since_ns: u64,
}

/// Most processes that are held at once. An exec that finds no room is not held, and says so.
pub const HOLDS_MAX: u32 = 4096;

/// Longest age of the heartbeat with which a process is held, ns. Whoever answers holds beats ten times as often; a
/// busy host can delay it.
pub const HEARTBEAT_FRESH_NS: u64 = 1_000_000_000;

#[cfg(feature = "user")]
// SAFETY: repr(C), only u64 members, no padding, no pointers.
unsafe impl aya::Pod for HoldValue {}
