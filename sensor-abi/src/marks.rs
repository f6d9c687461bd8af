//! The mark byte that every process of the host has in one shared array.

/// Number of mark bytes: one per possible process id. `PID_MAX_LIMIT` of a 64-bit kernel is 4,194,304.
pub const MARKS_LEN: usize = 4 * 1024 * 1024;

/// Process belongs to an agent's tree. Inherited on fork and kept on exec.
pub const TREE: u8 = 1 << 0;

/// Process holds the agent's end of MCP streams: its calls on watched objects are captured. Inherited on fork,
/// cleared on exec.
pub const ENDPOINT: u8 = 1 << 1;

/// The endpoint mark is a trial: set for a process that is no known agent. Inherited and cleared like
/// [`ENDPOINT`].
pub const PROBATION: u8 = 1 << 2;

/// The process used io_uring while it was an endpoint; set by the kernel side so that this is told once.
pub const URING_SEEN: u8 = 1 << 3;

/// The process is the server of a watched stream: its end is reported. Not inherited, kept on exec.
pub const SERVER: u8 = 1 << 4;

/// With [`ENDPOINT`]: what this process starts is to be held at its exec: a child of server shape is stopped before its
/// first instruction, while the heartbeat is fresh. Inherited and cleared like [`ENDPOINT`].
///
/// Without [`ENDPOINT`]: this process launches a server, and each image that it or a fork of it runs is held before its
/// first instruction, whatever its descriptors are. Inherited on fork and kept on exec, until the user side clears it.
pub const ARMED: u8 = 1 << 5;

/// A relay stands between this process and the agent: its streams are the relay's, it is neither watched nor held when
/// it runs another image. Not inherited, kept on exec.
pub const RELAYED: u8 = 1 << 6;

/// Bits that a forked child takes over from its parent.
pub const INHERITED_ON_FORK: u8 = TREE | ENDPOINT | PROBATION | ARMED;

/// Bits that stay when a process runs a new image.
pub const KEPT_ON_EXEC: u8 = TREE | SERVER | RELAYED;
