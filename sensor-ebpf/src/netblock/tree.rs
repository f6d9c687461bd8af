//! Who belongs to a blocked tree: children are entered at their fork, before they run.

use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_probe_read_kernel};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use kams_sensor_abi::netblock::{LOST_MEMBER, PROBE};

use crate::maps::{NB_LOST, NB_MEMBERS, offset};
use crate::preempt;

/// Reads a plain value at a kernel address; 0 if the address is not mapped.
macro_rules! read {
    ($kind:ty, $address:expr) => {{
        let mut value: $kind = 0;
        let address: u64 = $address;
        // SAFETY: the destination is a local of the size given; the helper checks the source.
        unsafe {
            bpf_probe_read_kernel(
                (&raw mut value).cast(),
                size_of::<$kind>() as u32,
                address as *const _,
            )
        };
        value
    }};
}

#[inline(always)]
fn current() -> u32 {
    // SAFETY: no arguments, no effect.
    (unsafe { bpf_get_current_pid_tgid() } >> 32) as u32
}

/// `sched_process_fork(struct task_struct *parent, struct task_struct *child)`: the child has not run yet. Fires for
/// threads too.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn netblock_fork(ctx: RawTracePointContext) -> i32 {
    preempt::disable();
    fork(ctx.arg::<u64>(1));
    preempt::enable();
    0
}

#[inline(always)]
fn fork(child: u64) {
    let parent = current();
    let child = read!(u32, child + u64::from(offset!(task_tgid)));
    if child == parent || child == 0 {
        return;
    }
    // SAFETY: the value is copied.
    let block = unsafe { NB_MEMBERS.get(&parent) }.copied();
    match block {
        Some(block) if block != PROBE => {
            if NB_MEMBERS.insert(&child, &block, 0).is_err()
                && let Some(lost) = NB_LOST.get_ptr_mut(LOST_MEMBER)
            {
                // SAFETY: a valid value of the array. Two CPUs at once may count as one; that it grew is what matters.
                unsafe { *lost += 1 };
            }
        }
        _ => {
            // A former process of this number whose end was missed.
            let _absent_as_a_rule = NB_MEMBERS.remove(&child);
        }
    }
}

/// `sched_process_exit(struct task_struct *p)`: fires for each thread.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn netblock_exit(ctx: RawTracePointContext) -> i32 {
    preempt::disable();
    exit(ctx.arg::<u64>(0));
    preempt::enable();
    0
}

#[inline(always)]
fn exit(task: u64) {
    let pid = current();
    // SAFETY: nothing is read through the result.
    if unsafe { NB_MEMBERS.get(&pid) }.is_none() {
        return;
    }
    let signal = read!(u64, task + u64::from(offset!(task_signal)));
    // Threads of the group that have not begun to exit. An entry that stays is replaced when its number is used again.
    if signal == 0 || read!(u32, signal + u64::from(offset!(signal_live))) != 0 {
        return;
    }
    let _removed = NB_MEMBERS.remove(&pid);
}
