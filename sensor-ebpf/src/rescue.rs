//! A second program that does a first one's work where the kernel skipped it.
//!
//! A program that another task is in the middle of, on the same CPU, is not run again. Holding the CPU (`preempt`) keeps
//! others away while a program works, but the moment it lets go, and before the kernel knows that it is over, they may
//! come. So there is a second one at the same place, run after the first: each call of a thread leaves a note, which
//! the second takes away, and where it finds none the first was skipped.

use aya_ebpf::helpers::generated::bpf_get_current_pid_tgid;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use kams_sensor_abi::marks::MARKS_LEN;

/// One byte per thread id: the first program saw the present call.
#[map]
pub static NOTES: Array<[u8; MARKS_LEN]> = Array::with_max_entries(1, 0);

#[inline(always)]
fn note() -> Option<*mut u8> {
    let notes = NOTES.get_ptr_mut(0)?;
    // SAFETY: no arguments, no effect.
    let thread = unsafe { bpf_get_current_pid_tgid() } as usize & (MARKS_LEN - 1);
    // SAFETY: the index is below the length of the one value of the array.
    Some(unsafe { notes.cast::<u8>().add(thread) })
}

/// Leaves the note.
#[inline(always)]
pub fn done() {
    if let Some(note) = note() {
        // SAFETY: a valid byte, which only this thread's programs touch.
        unsafe { note.write_volatile(1) };
    }
}

/// Takes the note away; `true` if there was none.
#[inline(always)]
pub fn is_needed() -> bool {
    let Some(note) = note() else { return false };
    // SAFETY: as above.
    unsafe {
        let found = note.read_volatile();
        note.write_volatile(0);
        found == 0
    }
}
