//! Process trees that are cut off the network: what the kernel side looks at, and what it counts.
//!
//! These maps belong to an object of their own (`kams-netblock.bpf.o`): they are pinned and outlive the daemon.

/// Most processes in blocked trees. A fork that finds no room is counted in [`LOST_MEMBER`].
pub const MEMBERS_MAX: u32 = 64 * 1024;
/// Most blocks at once.
pub const BLOCKS_MAX: u32 = 8 * 1024;
/// Most sockets that were open when their process was blocked.
pub const SOCKETS_MAX: u32 = 16 * 1024;

/// A block of this number refuses nothing and counts: the loader proves each program with it.
pub const PROBE: u64 = u64::MAX;

/// Place in the array of losses: a fork whose child could not be entered.
pub const LOST_MEMBER: u32 = 0;
/// Length of the array of losses.
pub const LOST_LEN: u32 = 1;

/// A stream or datagram socket was to be connected.
pub const HOOK_CONNECT: u32 = 0;
/// A datagram was to be sent to an address.
pub const HOOK_SEND: u32 = 1;
/// A socket was to be made.
pub const HOOK_SOCKET: u32 = 2;
/// Number of hooks.
pub const HOOKS: usize = 3;

/// What a block has refused so far, by hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BlockCounts {
    /// Refusals by [`HOOK_CONNECT`], [`HOOK_SEND`], [`HOOK_SOCKET`].
    pub refused: [u64; HOOKS],
}

/// One refused attempt: the first since somebody last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Attempt {
    /// When, CLOCK_BOOTTIME ns.
    pub time_ns: u64,
    /// Process that tried.
    pub pid: u32,
    /// One of the hooks.
    pub hook: u32,
    /// Address family.
    pub family: u32,
    /// Socket type (`SOCK_STREAM` ...).
    pub kind: u32,
    /// Protocol (`IPPROTO_TCP` ...).
    pub protocol: u32,
    /// Port in host order; 0 where there is none.
    pub port: u32,
    /// Address in network order, as it lies in memory; of IPv4 the first word. Zero for [`HOOK_SOCKET`].
    pub address: [u32; 4],
}

#[cfg(feature = "user")]
// SAFETY: repr(C), only u64 members, no padding, no pointers.
unsafe impl aya::Pod for BlockCounts {}
#[cfg(feature = "user")]
// SAFETY: repr(C), one u64 and ten u32, no padding, no pointers.
unsafe impl aya::Pod for Attempt {}
