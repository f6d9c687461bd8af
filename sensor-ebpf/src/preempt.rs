//! Keeps other tasks away from this CPU while a program works.
//!
//! Programs at functions (5.12 and later) and at tracepoints (7.x) can be preempted. Another task that then comes to
//! the same program on this CPU finds it running, and the kernel skips its run: what it moved or did would be lost.
//!
//! The two calls are placeholders: calls of helpers that do not exist, which the loader replaces by calls of the
//! kernel's own functions `bpf_preempt_disable` and `bpf_preempt_enable` (6.10 and later), or by nothing.

use kams_sensor_abi::placeholder::{PREEMPT_DISABLE, PREEMPT_ENABLE};

macro_rules! placeholder {
    ($word:expr) => {
        // SAFETY: a call that changes the scratch registers, as declared, and nothing else of ours.
        unsafe {
            core::arch::asm!(
                ".quad {word}",
                word = const $word as i64,
                out("r0") _,
                out("r1") _,
                out("r2") _,
                out("r3") _,
                out("r4") _,
                out("r5") _,
            );
        }
    };
}

/// From here to [`enable`] nothing else runs on this CPU, where the kernel can do that. To be called first.
#[inline(always)]
pub fn disable() {
    placeholder!(PREEMPT_DISABLE);
}

/// Ends what [`disable`] began. The verifier insists on it.
#[inline(always)]
pub fn enable() {
    placeholder!(PREEMPT_ENABLE);
}
