//! Carries what one call moved to the ring: a walk over the caller's buffers, one step at a time.
//!
//! A step either takes up the next message or vector element, or copies one piece of at most [`CHUNK_DATA`] bytes.
//! All state is in a per-CPU value, so that a step is one function without arguments: `bpf_loop` can call it, and
//! a bounded loop can, on kernels without that helper.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use kams_sensor_abi::loss::{FORCE_READ, Loss};
use kams_sensor_abi::record::{
    CHUNK_CALL_LOSSY, CHUNK_DATA, CHUNK_FIRST, CHUNK_LAST, CHUNK_UNREADABLE, ChunkHeader,
};
use kams_sensor_abi::stream::{StreamKey, StreamValue};

use crate::emit;
use crate::kernel::{at_most, forced, read_user, unique};
use crate::maps::{CARRY, STREAMS};
use crate::streams;

/// Most steps of one call with `bpf_loop`: more than the kernel's limit of 2 GiB and 1,024 elements per call needs.
pub const STEPS_LOOP: u32 = 1 << 18;
/// Most steps of one call with the bounded loop: about 1 MiB in one buffer.
pub const STEPS_BOUNDED: u32 = 68;

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

/// The state of this CPU.
#[inline(always)]
pub fn state() -> Option<&'static mut Carry> {
    let pointer = CARRY.get_ptr_mut(0)?;
    // SAFETY: this CPU's value; only the payload program uses it and it does not interrupt itself.
    Some(unsafe { &mut *pointer })
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
pub fn finish(carry: &mut Carry) {
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
pub fn step() -> bool {
    let Some(carry) = state() else { return false };
    if carry.walk.left == 0 {
        return next_message(carry);
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

#[inline(always)]
fn next_vector(carry: &mut Carry) -> bool {
    let walk = &mut carry.walk;
    let element = if walk.vector_left == 0 {
        None
    } else {
        read_user::<Vector>(walk.vector)
    };
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
