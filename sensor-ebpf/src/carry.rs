//! Carries what one call moved to the ring: a walk over the caller's buffers, one step at a time.
//!
//! A step either takes up the next message or vector element, or copies one piece of at most [`CHUNK_DATA`] bytes.
//! All state is in a per-CPU value of the program (its *slot*: programs of different slots may interrupt each other),
//! so that a step takes nothing else: `bpf_loop` can call it, and a bounded loop can, on kernels without that helper.

use aya_ebpf::helpers::generated::{bpf_loop, bpf_probe_read_user};
use kams_sensor_abi::loss::{FORCE_READ, Loss};
use kams_sensor_abi::record::{
    CHUNK_CALL_LOSSY, CHUNK_DATA, CHUNK_FIRST, CHUNK_LAST, CHUNK_UNREADABLE, ChunkHeader, KIND_CHUNK,
    RecordHeader,
};
use kams_sensor_abi::stream::{StreamKey, StreamValue};

use crate::emit;
use crate::kernel::{at_most, forced, now, read, read_user, unique};
use crate::maps::{CARRY, STREAMS};
use crate::streams;

/// Most steps of one call with `bpf_loop`: more than the kernel's limit of 2 GiB and 1,024 elements per call needs.
pub const STEPS_LOOP: u32 = 1 << 18;
/// Most steps of one call with the bounded loop: a little more than 16 MiB in one buffer.
pub const STEPS_BOUNDED: u32 = 1_040;

const PAGE: u64 = 4096;
/// Longest chunk record, bytes.
const MOST_RECORD: i32 = (size_of::<ChunkHeader>() + CHUNK_DATA) as i32;

/// The chunk under construction, then the walk.
#[repr(C)]
pub struct Carry {
    /// Header and data lie together as they go to the ring.
    pub header: ChunkHeader,
    data: [u8; CHUNK_DATA],
    pub walk: Walk,
}

/// Where the walk is.
#[repr(C)]
pub struct Walk {
    /// Rest of the present buffer, in the caller's memory.
    pub base: u64,
    pub base_left: u64,
    /// Next vector element.
    pub vector: u64,
    pub vector_left: u64,
    /// The vector is in kernel memory.
    pub vector_in_kernel: u64,
    /// Bytes to go back from `vector` and `skip` to where the call began; see `functions`.
    pub rewind: u64,
    /// Bytes of the next vector element that were there before the call.
    pub skip: u64,
    /// The call must have begun at the start of an element; if not, where it began is not known.
    pub begins_element: u64,
    /// Next `mmsghdr`, for calls with several messages.
    pub message: u64,
    pub message_left: u64,
    /// Bytes of the present message not yet covered.
    pub left: u64,
}

/// `struct iovec`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Vector {
    base: u64,
    len: u64,
}

/// `struct user_msghdr`, as far as it is needed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct MessageHeader {
    name: u64,
    name_len: u64,
    pub vector: u64,
    pub vector_len: u64,
}

/// Position of `msg_len` in `struct mmsghdr`, and its size.
const MMSG_LEN_AT: u64 = 56;
const MMSG_SIZE: u64 = 64;

impl Walk {
    /// A walk over nothing, of `left` bytes.
    #[inline(always)]
    pub fn reset(&mut self, left: u64) {
        self.base = 0;
        self.base_left = 0;
        self.vector = 0;
        self.vector_left = 0;
        self.vector_in_kernel = 0;
        self.rewind = 0;
        self.skip = 0;
        self.begins_element = 0;
        self.message = 0;
        self.message_left = 0;
        self.left = left;
    }
}

/// Slot of the program at the exit of system calls. The others are in `functions`.
pub const SLOT_SYSTEM_CALL: u32 = 0;

/// The state of this CPU in a slot.
#[inline(always)]
pub fn state(slot: u32) -> Option<&'static mut Carry> {
    let pointer = CARRY.get_ptr_mut(slot)?;
    // SAFETY: this CPU's value; only the slot's program uses it and it does not interrupt itself.
    Some(unsafe { &mut *pointer })
}

/// Carries the prepared walk with `bpf_loop`.
#[inline(always)]
pub fn run_loop(slot: u32) {
    let mut slot = slot;
    // SAFETY: the callback has the signature that the helper wants, and its context outlives the call.
    unsafe { bpf_loop(STEPS_LOOP, step_callback as *mut _, (&raw mut slot).cast(), 0) };
    if let Some(carry) = state(slot) {
        finish(carry);
    }
}

/// The same with a bounded loop.
#[inline(always)]
pub fn run_bounded(slot: u32) {
    for _ in 0..STEPS_BOUNDED {
        if carry_step(slot) == 0 {
            break;
        }
    }
    if let Some(carry) = state(slot) {
        finish(carry);
    }
}

extern "C" fn step_callback(_index: u64, context: *mut core::ffi::c_void) -> i64 {
    // SAFETY: the context of `run_loop`.
    let slot = unsafe { context.cast::<u32>().read_volatile() };
    // 1 ends the loop.
    if step(slot) { 0 } else { 1 }
}

/// A global function: the verifier looks at it once and not at each turn of the bounded loop, which may be long then.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn carry_step(slot: u32) -> u32 {
    u32::from(step(slot))
}

/// Notes whose call and which stream the chunks are of.
#[inline(always)]
pub fn begin(carry: &mut Carry, call: &Moved, value: *mut StreamValue) {
    let header = &mut carry.header;
    header.header = RecordHeader {
        kind: KIND_CHUNK,
        pid: (call.id >> 32) as u32,
        time_ns: now(),
    };
    header.tid = call.id as u32;
    header.op = call.op;
    header.object = call.object;
    header.call = unique();
    header.offset = 0;
    header.total = call.bytes;
    // SAFETY: the caller found the entry in the table.
    unsafe {
        header.stream = (*value).id;
        header.lost_bytes = (*value).lost_bytes;
        header.lost_reasons = (*value).lost_reasons;
        header.lost_count = (*value).lost_count;
    }
    header.flags = 0;
    header.syscall = call.number;
    carry.walk.reset(call.bytes);
}

/// A call that moved bytes on a watched stream.
pub struct Moved {
    /// Thread group id and thread id.
    pub id: u64,
    /// Object and direction of the stream.
    pub object: u64,
    pub op: u32,
    /// System call number; 0 where it is not known.
    pub number: u32,
    pub bytes: u64,
}

/// The present stream's entry; gone if it was removed meanwhile.
#[inline(always)]
fn stream(header: &ChunkHeader) -> Option<*mut StreamValue> {
    STREAMS.get_ptr_mut(StreamKey {
        object: header.object,
        op: header.op,
        pad: 0,
    })
}

#[inline(always)]
fn lose(header: &mut ChunkHeader, loss: Loss, bytes: u64) {
    header.flags |= CHUNK_CALL_LOSSY;
    if let Some(value) = stream(header) {
        streams::lose(value, loss, bytes);
        // SAFETY: a valid entry, as above.
        unsafe {
            header.lost_bytes = (*value).lost_bytes;
            header.lost_reasons = (*value).lost_reasons;
            header.lost_count = (*value).lost_count;
        }
    }
}

/// What is left when the walk ends early: counted and marked.
#[inline(always)]
fn finish(carry: &mut Carry) {
    if carry.walk.left > 0 {
        let loss = if carry.walk.base_left > 0 {
            Loss::CutBytes
        } else {
            Loss::CutVectors
        };
        let left = carry.walk.left;
        carry.walk.left = 0;
        lose(&mut carry.header, loss, left);
    } else if carry.walk.message_left > 0 {
        lose(&mut carry.header, Loss::CutVectors, 0);
    }
}

/// One step; `false` when there is nothing left to do.
#[inline(always)]
fn step(slot: u32) -> bool {
    let Some(carry) = state(slot) else { return false };
    if carry.walk.left == 0 {
        return next_message(carry);
    }
    if carry.walk.rewind > 0 {
        rewind(carry);
        return true;
    }
    if carry.walk.base_left == 0 {
        return next_vector(carry);
    }
    copy(carry);
    true
}

#[inline(always)]
fn next_message(carry: &mut Carry) -> bool {
    let walk = &mut carry.walk;
    if walk.message_left == 0 {
        return false;
    }
    let at = walk.message;
    walk.message += MMSG_SIZE;
    walk.message_left -= 1;
    let (Some(message), Some(len)) = (read_user::<MessageHeader>(at), read_user::<u32>(at + MMSG_LEN_AT))
    else {
        lose(&mut carry.header, Loss::ReadVector, 0);
        return true;
    };
    walk.vector = message.vector;
    walk.vector_left = message.vector_len;
    walk.base_left = 0;
    walk.left = u64::from(len);
    carry.header.call = unique();
    carry.header.offset = 0;
    carry.header.total = u64::from(len);
    true
}

/// Goes back towards where the call began: by the rest of an element, or to the one before.
#[inline(always)]
fn rewind(carry: &mut Carry) {
    let walk = &mut carry.walk;
    if walk.rewind <= walk.skip {
        walk.skip -= walk.rewind;
        walk.rewind = 0;
        if walk.skip != 0 && walk.begins_element != 0 {
            let left = walk.left;
            walk.left = 0;
            lose(&mut carry.header, Loss::ReadVector, left);
        }
        return;
    }
    walk.rewind -= walk.skip;
    walk.vector -= size_of::<Vector>() as u64;
    walk.vector_left += 1;
    let Some(element) = read::<Vector>(walk.vector) else {
        let left = walk.left;
        walk.left = 0;
        lose(&mut carry.header, Loss::ReadVector, left);
        return;
    };
    walk.skip = element.len;
}

#[inline(always)]
fn next_vector(carry: &mut Carry) -> bool {
    let walk = &mut carry.walk;
    let mut element = if walk.vector_left == 0 {
        None
    } else if walk.vector_in_kernel != 0 {
        read::<Vector>(walk.vector)
    } else {
        read_user::<Vector>(walk.vector)
    };
    if let Some(element) = &mut element {
        let skip = if walk.skip < element.len {
            walk.skip
        } else {
            element.len
        };
        element.base += skip;
        element.len -= skip;
        walk.skip = 0;
    }
    let Some(element) = element else {
        // The vector is shorter than the bytes that moved (changed meanwhile), or unreadable.
        let left = walk.left;
        walk.left = 0;
        lose(&mut carry.header, Loss::ReadVector, left);
        return true;
    };
    walk.vector += size_of::<Vector>() as u64;
    walk.vector_left -= 1;
    walk.base = element.base;
    walk.base_left = if element.len < walk.left {
        element.len
    } else {
        walk.left
    };
    true
}

#[inline(always)]
fn copy(carry: &mut Carry) {
    let mut len = carry.walk.base_left;
    if len > CHUNK_DATA as u64 {
        len = CHUNK_DATA as u64;
    }
    let mut readable = read_into(&mut carry.data, len, carry.walk.base);
    if !readable {
        // Only the page that cannot be read is to be lost: go on page by page.
        let in_page = PAGE - (carry.walk.base & (PAGE - 1));
        if in_page < len {
            len = in_page;
            readable = read_into(&mut carry.data, len, carry.walk.base);
        }
    }
    let header = &mut carry.header;
    header.flags &= CHUNK_CALL_LOSSY;
    if header.offset == 0 {
        header.flags |= CHUNK_FIRST;
    }
    if carry.walk.left == len {
        header.flags |= CHUNK_LAST;
    }
    header.covered = len as u32;
    if readable {
        header.data_len = len as u32;
    } else {
        header.data_len = 0;
        header.flags |= CHUNK_UNREADABLE;
        lose(header, Loss::ReadBuffer, len);
    }
    let data_len = u64::from(header.data_len);
    let sent = emit::payload::<_, { MOST_RECORD }>(
        &raw const carry.header,
        size_of::<ChunkHeader>() as u64 + data_len,
    );
    if !sent {
        lose(&mut carry.header, Loss::RingPayload, data_len);
    }
    carry.header.offset += len;
    carry.walk.base += len;
    carry.walk.base_left -= len;
    carry.walk.left -= len;
}

#[inline(always)]
fn read_into(data: &mut [u8; CHUNK_DATA], len: u64, base: u64) -> bool {
    if forced(FORCE_READ) {
        return false;
    }
    let len = at_most::<{ CHUNK_DATA as i32 }>(len);
    // SAFETY: `len` is at most the length of `data`; the helper checks the source.
    unsafe { bpf_probe_read_user(data.as_mut_ptr().cast(), len as u32, base as *const _) == 0 }
}
