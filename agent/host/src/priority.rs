//! Who gets the processor first.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Above the priority of the ring's reader.
const AHEAD: libc::c_int = 2;

/// How much the calling thread's nice value goes down.
const STEP: libc::c_int = 10;

/// Puts the calling thread, and the threads that it starts later, ahead of what runs at its present priority.
///
/// What the sensor tells of a process must be looked at while the process lives. When a hundred agents start at
/// once, threads of their own priority come too late for most of them, and their sessions go by unseen. Needs
/// CAP_SYS_NICE; an error changes nothing.
pub fn raise() -> io::Result<()> {
    // SAFETY: takes integers only. 0 is the calling thread: on Linux the value belongs to a thread.
    let now = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: as above.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, now - STEP) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets the calling thread, and none that it starts, run as soon as it has work: `SCHED_RR` at the lowest real-time
/// priority.
///
/// For the thread that empties the ring: the ring holds some milliseconds of what fast agents move, and on a host with
/// more work than processors a thread of any nice value waits longer than that. It copies, and does nothing else; the
/// kernel's own limit for real-time work (`sched_rt_runtime_us`) stands above it. Needs CAP_SYS_NICE; an error
/// changes nothing.
pub fn first_in_line() -> io::Result<()> {
    // SAFETY: all fields are integers.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = 1;
    // SAFETY: `param` lives through the call and is only read. 0 is the calling thread.
    let done =
        unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const param) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Calls that work on the kernel's maps are to be undisturbed.
static DISTURB: AtomicBool = AtomicBool::new(false);

/// From here on [`undisturbed`] does what it says. For kernels whose payload is read at perf's event (6.19 and later): a
/// map's call switches such events off on its processor until it is over, and where it is preempted what runs meanwhile is
/// not captured.
pub(crate) fn map_calls_disturb() {
    DISTURB.store(true, Ordering::Relaxed);
}

/// Runs `work`, a call or a few on the kernel's maps, ahead of every thread but those of higher real-time priorities;
/// the ring's reader is not one of them. Without the right to that, it is run as any other.
pub(crate) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let _ahead = DISTURB.load(Ordering::Relaxed).then(Ahead::now);
    work()
}

/// A thread's own policy, to which it returns on drop; none where it could not leave it.
struct Ahead(Option<(libc::c_int, libc::sched_param)>);

impl Ahead {
    fn now() -> Self {
        // SAFETY: all fields are integers.
        let mut own: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: takes an integer; 0 is the calling thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        // SAFETY: `own` is a valid local that the call writes.
        let known = unsafe { libc::sched_getparam(0, &raw mut own) } == 0 && policy >= 0;
        let mut param = own;
        param.sched_priority = AHEAD;
        let fifo = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        // SAFETY: `param` lives through the call and is only read.
        let done = known && unsafe { libc::sched_setscheduler(0, fifo, &raw const param) } == 0;
        Self(done.then_some((policy, own)))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some((policy, param)) = &self.0 {
            // SAFETY: as above. Going back to what it was before takes no right that it did not have.
            let _back = unsafe { libc::sched_setscheduler(0, *policy, param) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_itself_is_first_in_line() {
        // SAFETY: takes an integer; 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
        let asked = std::thread::spawn(move || {
            let done = first_in_line().is_ok();
            (
                done,
                policy(),
                std::thread::spawn(policy).join().expect("no panic"),
            )
        });
        let (done, own, started) = asked.join().expect("no panic");
        let expected = if done { libc::SCHED_RR } else { libc::SCHED_OTHER };
        assert_eq!(
            (own, started, policy()),
            (expected, libc::SCHED_OTHER, libc::SCHED_OTHER)
        );
    }

    #[test]
    fn a_thread_that_was_ahead_is_what_it_was_before() {
        // SAFETY: takes an integer; 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let asked = std::thread::spawn(move || {
            let stay: fn() -> io::Result<()> = || Ok(());
            for prepare in [stay, raise, first_in_line] {
                // Without the right to it, it stays as it is, and is looked at as such.
                let _forbidden = prepare();
                let before = (policy(), nice());
                let ahead = Ahead::now();
                let expected = if ahead.0.is_some() {
                    libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK
                } else {
                    before.0
                };
                assert_eq!(policy(), expected);
                drop(ahead);
                assert_eq!((policy(), nice()), before);
            }
        });
        asked.join().expect("no panic");
    }

    fn nice() -> i64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs");
        let after_name = stat.rsplit(") ").next().expect("a name");
        // Field 19 of proc_pid_stat(5); the name is field 2.
        after_name
            .split(' ')
            .nth(16)
            .expect("nice")
            .parse()
            .expect("a number")
    }

    #[test]
    fn a_thread_and_those_it_starts_go_first_and_no_others() {
        let before = nice();
        let raised = std::thread::spawn(|| {
            let done = raise().is_ok();
            (done, nice(), std::thread::spawn(nice).join().expect("no panic"))
        });
        let (done, own, started) = raised.join().expect("no panic");
        let expected = if done { (before - 10).max(-20) } else { before };
        assert_eq!((own, started, nice()), (expected, expected, before));
    }
}
