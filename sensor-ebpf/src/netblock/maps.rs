//! Maps of the network backstop, and the offsets.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap};
use kams_sensor_abi::netblock::{Attempt, BLOCKS_MAX, BlockCounts, LOST_LEN, MEMBERS_MAX, SOCKETS_MAX};
use kams_sensor_abi::offsets::Offsets;

/// Structure offsets; the loader overwrites them before the programs are verified.
#[unsafe(no_mangle)]
pub static OFFSETS: Offsets = Offsets::UNRESOLVED;

/// Reads one member of the offsets; volatile, because the compiler would use the zeros of this object.
macro_rules! offset {
    ($member:ident) => {
        // SAFETY: a valid, aligned address of a static.
        unsafe { core::ptr::read_volatile(&raw const $crate::maps::OFFSETS.$member) }
    };
}
pub(crate) use offset;

/// Block by process. Allocated in advance, so that an insertion at a fork works in any context.
#[map]
pub static NB_MEMBERS: HashMap<u32, u64> = HashMap::with_max_entries(MEMBERS_MAX, 0);

/// Blocks in force. A process of a block that is not here is not blocked: taking the entry away ends it for all at once.
#[map]
pub static NB_BLOCKS: HashMap<u64, BlockCounts> = HashMap::with_max_entries(BLOCKS_MAX, 0);

/// Block by the cookie of a socket that a blocked process had open: it is refused whoever uses it. Kernel threads of
/// io_uring are no member of the tree before 5.12.
#[map]
pub static NB_SOCKETS: HashMap<u64, u64> = HashMap::with_max_entries(SOCKETS_MAX, 0);

/// First attempt by block, until somebody takes it.
#[map]
pub static NB_ATTEMPTS: HashMap<u64, Attempt> = HashMap::with_max_entries(BLOCKS_MAX, 0);

/// What found no room, by `LOST_*`.
#[map]
pub static NB_LOST: Array<u64> = Array::with_max_entries(LOST_LEN, 0);
