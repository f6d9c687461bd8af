//! What gets no relay runs as it would have, and is told.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use kams_host::inject::Refusal;

use crate::programs::{self, FIRST};
use crate::rig::{IGNORE, OWN_PARENT, RELEASE, before_exec, exchange, rig};

fn cat() -> Command {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

#[test]
fn a_32_bit_image() {
    let Some(rig) = rig() else { return };
    let mut command = Command::new(programs::first_write_32());
    let child = match command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        // This kernel runs none, so none can be refused.
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => return,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(rig.refusal(child.id()), Refusal::Foreign);
    let (answer, status) = exchange(child, b"");
    assert!(status.success(), "{status:?}");
    assert_eq!(answer, FIRST);
}

#[test]
fn a_traced_process() {
    let Some(rig) = rig() else { return };
    let mut command = cat();
    // SAFETY: numbers only.
    before_exec(
        &mut command,
        || unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } == 0,
    );
    let child = command.spawn().expect("starts");
    assert_eq!(rig.refusal(child.id()), Refusal::Traced);
    let pid = i32::try_from(child.id()).expect("fits");
    let mut status = 0;
    // SAFETY: a valid int to write to.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) }, pid);
    assert!(libc::WIFSTOPPED(status));
    // SAFETY: numbers only; the process is stopped and traced by this thread.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0) }, 0);
    let (answer, status) = exchange(child, b"x\n");
    assert!(status.success(), "{status:?}");
    assert_eq!(answer, b"x\n");
}

#[test]
fn a_process_with_its_parents_standard_input() {
    let Some(rig) = rig() else { return };
    let child = cat().arg0(OWN_PARENT).spawn().expect("starts");
    assert_eq!(rig.refusal(child.id()), Refusal::StdinOfParent);
    let (answer, status) = exchange(child, b"x\n");
    assert!(status.success());
    assert_eq!(answer, b"x\n");
}

#[test]
fn a_process_that_nobody_answers_for() {
    let Some(rig) = rig() else { return };
    let child = cat().arg0(IGNORE).spawn().expect("starts");
    assert_eq!(rig.refusal(child.id()), Refusal::Unclaimed);
    let (answer, _) = exchange(child, b"x\n");
    assert_eq!(answer, b"x\n");
}

#[test]
fn a_process_that_is_let_go() {
    if rig().is_none() {
        return;
    }
    let child = cat().arg0(RELEASE).spawn().expect("starts");
    let (answer, _) = exchange(child, b"x\n");
    assert_eq!(answer, b"x\n");
}

#[test]
fn other_shapes_are_not_held() {
    let Some(rig) = rig() else { return };
    // The agent's own input, no pipe, and a process that no agent started: nothing is asked, nothing is slowed.
    let output = Command::new("sh")
        .args(["-c", "echo x | cat"])
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    assert_eq!(output.stdout, b"x\n");
    let child = cat()
        .arg0(RELEASE)
        .arg("/dev/null")
        .stdin(Stdio::inherit())
        .spawn()
        .expect("starts");
    let pid = child.id();
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success());
    assert!(!rig.control.held().iter().any(|hold| hold.pid == pid));
}
