//! The mark byte of every process: the first thing that a program looks at, and the only one that all others pay for.
//!
//! The loader creates the table and writes its address into the programs in place of a placeholder. A lookup of the
//! map's one value would be a dozen instructions more for everyone who passes.

use aya_ebpf::helpers::generated::bpf_get_current_pid_tgid;
use kams_sensor_abi::marks::{ENDPOINT, MARKS_LEN};
use kams_sensor_abi::placeholder::MARKS_HALF;

/// The table's first byte.
#[inline(always)]
fn table() -> *mut u8 {
    let address: u64;
    // SAFETY: loads a constant.
    unsafe {
        core::arch::asm!(
            "{address} = {placeholder} ll",
            address = out(reg) address,
            placeholder = const (MARKS_HALF as i64) << 32 | MARKS_HALF as i64,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    address as *mut u8
}

/// The mark byte of a process.
#[inline(always)]
pub fn mark_of(pid: u32) -> *mut u8 {
    // SAFETY: the index is below the length of the table.
    unsafe { table().add(pid as usize & (MARKS_LEN - 1)) }
}

/// Reads a mark byte.
#[inline(always)]
pub fn mark(pid: u32) -> u8 {
    // SAFETY: a valid byte of the table.
    unsafe { mark_of(pid).read_volatile() }
}

/// Whether this process is an endpoint. Everyone who comes here pays for this, and for nothing else.
#[inline(always)]
pub fn is_endpoint() -> bool {
    // SAFETY: no arguments, no effect.
    let id = unsafe { bpf_get_current_pid_tgid() };
    mark((id >> 32) as u32) & ENDPOINT != 0
}

/// Thread group id and thread id, and the mark byte, if this process is an endpoint.
#[inline(always)]
pub fn endpoint() -> Option<(u64, *mut u8)> {
    // SAFETY: no arguments, no effect.
    let id = unsafe { bpf_get_current_pid_tgid() };
    let byte = mark_of((id >> 32) as u32);
    // SAFETY: a valid byte of the table.
    (unsafe { byte.read_volatile() } & ENDPOINT != 0).then_some((id, byte))
}
