//! Who gets the processor first.

use std::io;

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

#[cfg(test)]
mod tests {
    use super::*;

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
