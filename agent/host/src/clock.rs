//! Kernel time and wall-clock time.
//!
//! Every time in an event is CLOCK_BOOTTIME in nanoseconds: it counts from boot, never steps, and goes on while
//! the machine sleeps. `/proc/PID/stat` uses the same clock in units of 1/100 s.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds in one unit of `/proc/PID/stat` times (USER_HZ is 100 on every supported machine).
pub const NS_PER_TICK: u64 = 10_000_000;

/// CLOCK_BOOTTIME now, ns.
pub fn boot_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Wall-clock time of a CLOCK_BOOTTIME value, by the present difference of the two clocks.
///
/// After the wall clock was set, old events get times of the new setting.
pub fn to_wall(boot_time_ns: u64) -> SystemTime {
    let wall_now = read(libc::CLOCK_REALTIME);
    let boot_now = boot_ns();
    let wall = wall_now
        .saturating_sub(boot_now.saturating_sub(boot_time_ns))
        .saturating_add(
            // An event time in the future (another CPU's clock) stays in the future.
            boot_time_ns.saturating_sub(boot_now),
        );
    UNIX_EPOCH + Duration::from_nanos(wall)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec to write to; the call has no other effect.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if result != 0 {
        // Both clocks exist on every kernel since 2.6.39; the zero time of a failure is still a valid value.
        return 0;
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
