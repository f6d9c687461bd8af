//! Output to the ring buffer.

use aya_ebpf::helpers::generated::bpf_ringbuf_output;
use kams_sensor_abi::loss::{FORCE_RING, Loss};

use crate::kernel::{at_most, count, forced};
use crate::maps::EVENTS;

/// `BPF_RB_AVAIL_DATA`: bytes not yet consumed.
const AVAILABLE_DATA: u64 = 0;
/// `BPF_RB_RING_SIZE`.
const RING_SIZE: u64 = 1;

#[inline(always)]
fn output(record: *const u8, len: u64) -> bool {
    // SAFETY: `record` points to at least `len` readable bytes: the verifier checks each caller.
    unsafe {
        bpf_ringbuf_output(
            (&raw const EVENTS).cast_mut().cast(),
            record.cast_mut().cast(),
            len,
            0,
        ) == 0
    }
}

/// Outputs an exec, fork or exit record.
#[inline(always)]
pub fn lifecycle<T>(record: *const T, len: u64) -> bool {
    let done = output(record.cast(), len);
    if !done {
        count(Loss::RingLifecycle);
    }
    done
}

/// Outputs a payload record. A sixteenth of the ring is left to lifecycle records, so that a burst of payload does
/// not hide a process. The caller counts and marks the failure. `MOST` bytes at `record` can be read.
#[inline(always)]
pub fn payload<T, const MOST: i32>(record: *const T, len: u64) -> bool {
    if forced(FORCE_RING) {
        return false;
    }
    let size = EVENTS.query(RING_SIZE);
    if EVENTS.query(AVAILABLE_DATA) + len + (size >> 4) > size {
        return false;
    }
    output(record.cast(), at_most::<MOST>(len))
}
