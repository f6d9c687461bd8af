//! The table of watched streams.

/// The endpoint reads from the object (server's standard output).
pub const OP_READ: u32 = 0;
/// The endpoint writes to the object (server's standard input).
pub const OP_WRITE: u32 = 1;

/// Key of a watched stream: the kernel object behind the agent's descriptor, and what the agent does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct StreamKey {
    /// What `file.private_data` of the agent's descriptor holds: a `pipe_inode_info` or a `socket`.
    pub object: u64,
    /// [`OP_READ`] or [`OP_WRITE`].
    pub op: u32,
    /// Always 0.
    pub pad: u32,
}

/// What the kernel side keeps about a watched stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct StreamValue {
    /// Number of this watch; no two watches of one sensor run have the same one. Tells a reused object apart.
    pub id: u64,
    /// Inode number of the object's file; 0 if unknown. An object at a reused address has another one.
    pub ino: u64,
    /// When the entry was made, CLOCK_BOOTTIME ns.
    pub since_ns: u64,
    /// Last call seen on the stream, CLOCK_BOOTTIME ns; 0 for none.
    pub used_ns: u64,
    /// Bytes that moved and were not carried to user space, since the entry was made.
    pub lost_bytes: u64,
    /// Process whose standard input or output the far end is.
    pub server: u32,
    /// Process that started the server.
    pub agent: u32,
    /// Reasons of the losses, an OR of [`crate::loss::Loss::bit`].
    pub lost_reasons: u32,
    /// Number of times something was lost.
    pub lost_count: u32,
}

#[cfg(feature = "user")]
// SAFETY: repr(C), one u64 and two u32 members, no padding, no pointers.
unsafe impl aya::Pod for StreamKey {}

#[cfg(feature = "user")]
// SAFETY: repr(C), five u64 members followed by four u32 members, no padding, no pointers.
unsafe impl aya::Pod for StreamValue {}
