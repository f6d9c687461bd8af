//! Waking a thread that waits in `waitpid`: by a signal that does nothing but interrupt.

use std::io;
use std::ptr;

extern "C" fn nothing(_signal: libc::c_int) {}

fn signal() -> libc::c_int {
    // Of the real-time signals, one that neither the C library nor common runtimes use.
    libc::SIGRTMIN() + 11
}

/// Gives the signal its handler, for the whole process; threads that get it are named each time.
pub(super) fn install_handler() -> io::Result<()> {
    // SAFETY: zero is a valid sigaction: no flags (the wait must be interrupted, not restarted), an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    // SAFETY: `action` is valid; the old one is not asked for. The handler does nothing, which is safe anywhere.
    let returned = unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) };
    if returned == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The calling thread's id.
pub(super) fn own_thread() -> libc::pid_t {
    // SAFETY: no arguments, no effect.
    unsafe { libc::gettid() }
}

/// Interrupts a thread of this process. One that is about to wait misses it: the ticking [`Ticker`] bounds that.
pub(super) fn interrupt(thread: libc::pid_t) {
    let process = std::process::id();
    // SAFETY: takes numbers only; the signal has a handler that does nothing. A thread that has ended gets none.
    let _ended = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal()) };
}

/// A timer that interrupts the thread that made it, again and again while it is on.
#[derive(Debug)]
pub(super) struct Ticker {
    timer: libc::timer_t,
    on: bool,
}

/// Nanoseconds between two ticks.
const TICK_NS: libc::c_long = 2_000_000;

impl Ticker {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: every member is an integer or a pointer, for which zero is valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = own_thread();
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: both are valid locals; the timer is deleted on drop.
        let returned = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        if returned == 0 {
            Ok(Self { timer, on: false })
        } else {
            Err(io::Error::last_os_error())
        }
    }

    pub(super) fn set(&mut self, on: bool) {
        if on == self.on {
            return;
        }
        let every = libc::timespec {
            tv_sec: 0,
            tv_nsec: if on { TICK_NS } else { 0 },
        };
        let setting = libc::itimerspec {
            it_interval: every,
            it_value: every,
        };
        // SAFETY: the timer is ours and the setting valid; the old one is not asked for.
        let returned = unsafe { libc::timer_settime(self.timer, 0, &raw const setting, ptr::null_mut()) };
        self.on = on && returned == 0;
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // SAFETY: made in `new`, deleted once.
        let _deleted = unsafe { libc::timer_delete(self.timer) };
    }
}
