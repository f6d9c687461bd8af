//! The stream table as the kernel side uses it.

use kams_sensor_abi::loss::{FORCE_MAP, Loss};
use kams_sensor_abi::stream::{StreamKey, StreamValue};

use crate::kernel::{count, forced, now, unique};
use crate::maps::STREAMS;

/// Begins to watch. An entry for the same object, inode and server stays (a server that runs several images in turn);
/// any other entry at this key belongs to a freed object and is replaced.
#[inline(always)]
pub fn insert(object: u64, op: u32, ino: u64, server: u32, agent: u32) -> bool {
    let key = StreamKey { object, op, pad: 0 };
    if let Some(old) = STREAMS.get_ptr(key) {
        // SAFETY: the entry lives at least as long as this program runs (RCU), and was allocated in advance.
        let same = unsafe { (*old).ino == ino && (*old).server == server };
        if same {
            return true;
        }
    }
    let value = StreamValue {
        id: unique(),
        ino,
        since_ns: now(),
        used_ns: 0,
        lost_bytes: 0,
        server,
        agent,
        lost_reasons: 0,
        lost_count: 0,
    };
    let done = !forced(FORCE_MAP) && STREAMS.insert(key, value, 0).is_ok();
    if !done {
        count(Loss::MapStreams);
    }
    done
}

/// Notes a loss on a stream and in the counters.
#[inline(always)]
pub fn lose(value: *mut StreamValue, loss: Loss, bytes: u64) {
    // SAFETY: `value` is a valid entry of the table, checked by the verifier. `lost_bytes` is added to atomically;
    // the other members are plain stores that two CPUs may race on: a count that misses one of two simultaneous
    // losses still grows, and that is what the reader looks for.
    unsafe {
        add(&raw mut (*value).lost_bytes, bytes);
        (*value).lost_reasons |= loss.bit();
        (*value).lost_count += 1;
    }
    // Last, because a change of the counter makes the reader look at the stream.
    count(loss);
}

/// Adds atomically, without needing the old value: every kernel with BPF atomics has this one.
///
/// # Safety
/// `target` must be valid and aligned.
#[inline(always)]
unsafe fn add(target: *mut u64, amount: u64) {
    // SAFETY: by the caller's promise.
    unsafe {
        core::arch::asm!("lock *(u64 *)({target} + 0) += {amount}", target = in(reg) target, amount = in(reg) amount);
    }
}
