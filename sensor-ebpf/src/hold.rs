//! Holding a process at its exec, until the user side has put a relay before it or lets it go.

use aya_ebpf::helpers::generated::bpf_send_signal;
use kams_sensor_abi::hold::{HEARTBEAT_FRESH_NS, HoldValue};

use crate::kernel::now;
use crate::maps::{HEARTBEAT, HOLDS};

const SIGSTOP: u32 = 19;

/// Whether somebody is there who would let a held process go.
#[inline(always)]
fn answered() -> bool {
    let Some(beat) = HEARTBEAT.get_ptr(0) else {
        return false;
    };
    // SAFETY: a valid, aligned value that the user side writes whole.
    let beat = unsafe { beat.read_volatile() };
    let now = now();
    beat != 0 && now.wrapping_sub(beat) < HEARTBEAT_FRESH_NS
}

/// Stops the current process before it returns to user mode. In the map first: from the signal on, a process that
/// nobody knows of would stay stopped for good.
#[inline(always)]
pub fn hold(pid: u32, start_ns: u64) -> bool {
    if !answered() {
        return false;
    }
    let value = HoldValue {
        start_ns,
        since_ns: now(),
    };
    if HOLDS.insert(pid, value, 0).is_err() {
        return false;
    }
    // SAFETY: takes a number only.
    let sent = unsafe { bpf_send_signal(SIGSTOP) } == 0;
    if !sent {
        forget(pid);
    }
    sent
}

/// A process is held no more.
#[inline(always)]
pub fn forget(pid: u32) {
    // An entry that is not there is the common case.
    let _absent = HOLDS.remove(pid);
}
