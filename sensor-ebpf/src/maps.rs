//! Every map, and the offsets.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, PerCpuArray, RingBuf};
use kams_sensor_abi::function::SLOTS;
use kams_sensor_abi::hold::{HOLDS_MAX, HoldValue};
use kams_sensor_abi::loss::{FORCE_LEN, LOSS_KINDS};
use kams_sensor_abi::offsets::Offsets;
use kams_sensor_abi::record::ExecRecord;
use kams_sensor_abi::stream::{StreamKey, StreamValue};

use crate::carry::Carry;

/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;

/// Structure offsets; the loader overwrites them before the programs are verified.
#[unsafe(no_mangle)]
pub static OFFSETS: Offsets = Offsets::UNRESOLVED;

/// Reads one member of the offsets.
///
/// Volatile, because the compiler would use the zeros of this object; the kernel's verifier sees frozen read-only
/// data and turns the load into a constant.
macro_rules! offset {
    ($member:ident) => {
        // SAFETY: a valid, aligned address of a static.
        unsafe { core::ptr::read_volatile(&raw const $crate::maps::OFFSETS.$member) }
    };
}
pub(crate) use offset;

/// Everything that goes to the user side. The loader sets its size.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(1024 * 1024, 0);

/// Watched streams. Allocated in advance, so that an insertion in any context works. The loader sets its size.
#[map]
pub static STREAMS: HashMap<StreamKey, StreamValue> = HashMap::with_max_entries(16 * 1024, 0);

/// Loss counters, by `Loss`.
#[map]
pub static LOSSES: PerCpuArray<u64> = PerCpuArray::with_max_entries(LOSS_KINDS, 0);

/// Forced losses for tests: every n-th operation of a stage fails.
#[map]
pub static FORCE: Array<u64> = Array::with_max_entries(FORCE_LEN, 0);

/// Per CPU: [0] numbers given out, [1..] operations per forced stage.
#[map]
pub static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(1 + FORCE_LEN, 0);

/// The exec record under construction: too large for the stack.
#[map]
pub static EXEC_SCRATCH: PerCpuArray<ExecRecord> = PerCpuArray::with_max_entries(1, 0);

/// The chunk under construction and the state of the walk over the call's buffers, by slot.
#[map]
pub static CARRY: PerCpuArray<Carry> = PerCpuArray::with_max_entries(SLOTS, 0);

/// Processes held at their exec, by process id. Pinned, so that whoever comes after a crash can resume them.
#[map]
pub static HOLDS: HashMap<u32, HoldValue> = HashMap::with_max_entries(HOLDS_MAX, 0);

/// When whoever answers holds was last seen alive, CLOCK_BOOTTIME ns; 0 while nobody does. Mapped into the user side's
/// memory.
#[map]
pub static HEARTBEAT: Array<u64> = Array::with_max_entries(1, MMAPABLE);
