//! Servers of every kind run on behind a relay as if it were not there.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::programs::{self, FIRST};
use crate::rig::{Rig, before_exec, rig};

fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::piped()).stdout(Stdio::piped())
}

/// What a server got and gave must have passed the relay, every byte.
fn assert_relayed(rig: &Rig, command: &mut Command, input: &[u8], answer: &[u8]) {
    let child = piped(command).spawn().expect("starts");
    let seen = rig.converse(child, input);
    assert!(seen.status.success(), "{:?}", seen.status);
    assert_eq!(
        String::from_utf8_lossy(&seen.answer),
        String::from_utf8_lossy(answer)
    );
    assert_eq!(seen.passed.to_server, input);
    assert_eq!(seen.passed.to_agent, answer);
}

#[test]
fn the_first_instruction_is_behind_the_relay() {
    let Some(rig) = rig() else { return };
    let program = programs::first_write();
    for _ in 0..300 {
        assert_relayed(rig, &mut Command::new(&program), b"", FIRST);
    }
}

#[test]
fn dynamic_programs_and_shells() {
    let Some(rig) = rig() else { return };
    let line = b"{\"jsonrpc\":\"2.0\"}\n";
    assert_relayed(rig, &mut Command::new("cat"), line, line);
    assert_relayed(rig, Command::new("sh").args(["-c", "cat"]), line, line);
    // The shell runs another program in its place: one relay, not two.
    assert_relayed(rig, Command::new("sh").args(["-c", "exec cat"]), line, line);
    assert_relayed(
        rig,
        Command::new("sh").args(["-c", "cat; echo done"]),
        b"x\n",
        b"x\ndone\n",
    );
}

#[test]
fn large_streams_pass_whole() {
    let Some(rig) = rig() else { return };
    let bytes: Vec<u8> = (0..1_000_003u32).map(|at| (at % 251) as u8).collect();
    assert_relayed(rig, &mut Command::new("cat"), &bytes, &bytes);
}

#[test]
fn a_script_by_its_first_line() {
    let Some(rig) = rig() else { return };
    let script = programs::install(
        "script",
        b"#!/usr/bin/env sh\nread line; echo \"got $line\"\n",
        0o755,
    );
    assert_relayed(rig, &mut Command::new(script), b"it\n", b"got it\n");
}

#[test]
fn a_server_of_another_user() {
    let Some(rig) = rig() else { return };
    assert_relayed(rig, Command::new("cat").uid(65_534).gid(65_534), b"x\n", b"x\n");
}

#[test]
fn a_set_uid_server_keeps_its_user() {
    let Some(rig) = rig() else { return };
    let id = std::fs::read("/usr/bin/id").expect("installed");
    let program = programs::install("id-setuid", &id, 0o4755);
    let mut command = Command::new(program);
    assert_relayed(rig, command.args(["-u"]).uid(65_534).gid(65_534), b"", b"0\n");
}

#[test]
fn a_server_with_threads() {
    let Some(rig) = rig() else { return };
    let program = "
import sys, threading
def turn(): pass
threads = [threading.Thread(target=turn) for _ in range(10)]
[t.start() for t in threads]; [t.join() for t in threads]
for line in sys.stdin: print(len(threads), line, end='', flush=True)
";
    assert_relayed(
        rig,
        Command::new("python3").args(["-c", program]),
        b"x\n",
        b"10 x\n",
    );
}

#[test]
fn a_server_that_is_process_1_of_new_namespaces() {
    let Some(rig) = rig() else { return };
    // The thread that makes namespaces can start processes in them, but no more threads.
    let start = || {
        let new = libc::CLONE_NEWPID
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS;
        // SAFETY: takes a number; changes this thread, which ends with the process started.
        assert_eq!(unsafe { libc::unshare(new) }, 0);
        let mut command = Command::new("sh");
        // SAFETY: numbers only.
        before_exec(
            &mut command,
            || unsafe { libc::unshare(libc::CLONE_NEWUSER) } == 0,
        );
        piped(command.args(["-c", "read line; echo $$ $line"]))
            .spawn()
            .expect("starts")
    };
    let child = std::thread::spawn(start).join().expect("no panic");
    let seen = rig.converse(child, b"x\n");
    assert!(seen.status.success(), "{:?}", seen.status);
    assert_eq!(seen.answer, b"1 x\n");
    assert_eq!(seen.passed.to_agent, b"1 x\n");
}

#[test]
fn a_server_with_a_filter_against_the_very_calls() {
    let Some(rig) = rig() else { return };
    let mut command = Command::new("cat");
    before_exec(&mut command, forbid_injected_calls);
    assert_relayed(rig, &mut command, b"x\n", b"x\n");
}

/// pipe2, socketpair, dup3 and close_range end the process that calls them.
pub(crate) fn forbid_injected_calls() -> bool {
    let op = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt,
        jf,
        k,
    };
    let number = |call: libc::c_long| u32::try_from(call).unwrap_or(0);
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut filter = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        op(equals, number(libc::SYS_pipe2), 4, 0),
        op(equals, number(libc::SYS_socketpair), 3, 0),
        op(equals, number(libc::SYS_dup3), 2, 0),
        op(equals, number(libc::SYS_close_range), 1, 0),
        op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: 7,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: numbers only.
    let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its filter live through the call.
    let done = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    set == 0 && done == 0
}
