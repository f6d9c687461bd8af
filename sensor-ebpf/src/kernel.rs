//! Reading kernel and user memory, numbers, clocks.

use aya_ebpf::helpers::generated::{
    bpf_get_smp_processor_id, bpf_ktime_get_boot_ns, bpf_probe_read_kernel, bpf_probe_read_user,
};

use crate::maps::{COUNTERS, FORCE, LOSSES};
use kams_sensor_abi::loss::Loss;

/// Reads a plain value at a kernel address; `None` if the address is not mapped.
#[inline(always)]
pub fn read<T: Copy>(address: u64) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: the destination is a local of the size given; the helper checks the source.
    let failed = unsafe {
        bpf_probe_read_kernel(
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
            address as *const _,
        )
    };
    if failed != 0 {
        return None;
    }
    // SAFETY: the helper wrote every byte; only plain integers and structures of them are read.
    Some(unsafe { value.assume_init() })
}

/// Reads a plain value at an address of the calling process.
#[inline(always)]
pub fn read_user<T: Copy>(address: u64) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: as in `read`.
    let failed = unsafe {
        bpf_probe_read_user(
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
            address as *const _,
        )
    };
    if failed != 0 {
        return None;
    }
    // SAFETY: as in `read`.
    Some(unsafe { value.assume_init() })
}

/// A pointer member of a structure; 0 if the structure is null or unreadable.
#[inline(always)]
pub fn pointer(structure: u64, offset: u32) -> u64 {
    if structure == 0 {
        return 0;
    }
    read::<u64>(structure + u64::from(offset)).unwrap_or(0)
}

/// A 32-bit member of a structure; 0 if the structure is null or unreadable.
#[inline(always)]
pub fn word(structure: u64, offset: u32) -> u32 {
    if structure == 0 {
        return 0;
    }
    read::<u32>(structure + u64::from(offset)).unwrap_or(0)
}

/// `value`, at most `MOST`, in a way that the verifiers of 5.10 and 6.1 can follow.
///
/// They forget the bounds of a number that is put aside on the stack, and the compiler may test one copy of a number
/// and use another. To be called right before the use.
#[inline(always)]
pub fn at_most<const MOST: i32>(value: u64) -> u64 {
    let mut bounded = value;
    // SAFETY: touches nothing but its own register.
    unsafe {
        core::arch::asm!(
            "if {value} <= {most} goto +1",
            "{value} = {most}",
            value = inout(reg) bounded,
            most = const MOST,
        );
    }
    bounded
}

/// CLOCK_BOOTTIME, ns.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: no arguments, no effect.
    unsafe { bpf_ktime_get_boot_ns() }
}

/// A number that no other call of this function returns while the programs are loaded: the CPU in the high bits
/// (from 1), a count of that CPU below.
#[inline(always)]
pub fn unique() -> u64 {
    // SAFETY: no arguments, no effect.
    let cpu = u64::from(unsafe { bpf_get_smp_processor_id() }) + 1;
    let Some(counter) = COUNTERS.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: a per-CPU value; an interrupting program on this CPU can at worst take the same number, and only
    // lifecycle programs, which do not interrupt each other, and the payload program, which none of them
    // interrupts, come here.
    let count = unsafe {
        *counter += 1;
        *counter
    };
    cpu << 48 | count
}

/// Counts a loss.
#[inline(always)]
pub fn count(loss: Loss) {
    if let Some(counter) = LOSSES.get_ptr_mut(loss as u32) {
        // SAFETY: a valid per-CPU value.
        unsafe { *counter += 1 };
    }
}

/// Whether this operation of a stage (index in `FORCE`) is to fail for a test.
#[inline(always)]
pub fn forced(stage: u32) -> bool {
    let Some(every) = FORCE.get(stage) else {
        return false;
    };
    let every = *every;
    if every == 0 {
        return false;
    }
    let Some(counter) = COUNTERS.get_ptr_mut(1 + stage) else {
        return false;
    };
    // SAFETY: a valid per-CPU value.
    let count = unsafe {
        *counter += 1;
        *counter
    };
    count % every == 0
}
