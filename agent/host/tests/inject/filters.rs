//! Filters that keep servers off the network: what they refuse, what works on, and what they cost a server.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kams_host::inject::{Confined, Ends};
use libseccomp::{ScmpNotifReq, ScmpNotifResp, ScmpNotifRespFlags};

use crate::programs;
use crate::relay::Relay;
use crate::rig::{ASK, DENY, FOLLOW, Rig, before_exec, ended, is_installed, rig};

const PROBE: &str = include_str!("probe.py");

/// The probe as a file: a report tells only the beginning of long arguments.
fn probe() -> PathBuf {
    programs::install("probe.py", PROBE.as_bytes(), 0o644)
}

fn python(word: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg(probe()).arg(word);
    command
}

/// Starts it from a thread in a network namespace of its own: nothing of these tests leaves the machine.
fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    std::thread::scope(|scope| {
        let apart = scope.spawn(|| {
            // SAFETY: takes a number; changes this thread, which ends with the process started.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            command.spawn().expect("starts")
        });
        apart.join().expect("no panic")
    })
}

/// A server and its relay; it answers each line by one.
struct Server {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
    relay: Relay,
    listener: Option<OwnedFd>,
}

impl Server {
    fn start(rig: &Rig, command: &mut Command) -> Self {
        let child = start(command);
        let ends = rig.ends(child.id());
        Self::with(child, ends)
    }

    fn with(mut child: Child, mut ends: Ends) -> Self {
        let listener = match ends.confined.take() {
            Some(Confined::Filtered { listener, .. }) => listener,
            Some(Confined::Failed(error)) => panic!("no filter: {error}"),
            None => None,
        };
        Self {
            answers: BufReader::new(child.stdout.take().expect("piped")),
            relay: Relay::start(ends),
            child,
            listener,
        }
    }

    fn ask(&mut self) -> String {
        writeln!(self.child.stdin.as_ref().expect("piped"), "?").expect("written");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("read");
        line
    }

    fn probe(&mut self) -> serde_json::Value {
        let line = self.ask();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        let status = ended(self.child);
        assert!(status.success(), "{status:?}");
        self.relay.join();
    }
}

/// What a filter that refuses leaves: `refused` and `child` are what sockets of other families get.
fn assert_confined(ways: &serde_json::Value, refused: &str, child: &str) {
    let of = |way: &str| ways[way].as_str().map(str::to_owned).unwrap_or_default();
    for way in [
        "tcp4",
        "tcp6",
        "udp",
        "raw",
        "packet",
        "vsock",
        "smc",
        "alg",
        "netlink_generic",
        "fast_open",
    ] {
        assert_eq!(of(way), refused, "{way}: {ways}");
    }
    for way in ["unix", "unix_pair", "netlink_route", "interfaces"] {
        assert_eq!(of(way), "ok", "{way}: {ways}");
    }
    assert_eq!(of("child"), child, "{ways}");
    assert_never(ways);
}

/// What a filter refuses in both kinds.
fn assert_never(ways: &serde_json::Value) {
    assert_eq!(ways["io_uring"], "ENOSYS", "{ways}");
    assert_eq!(ways["pidfd_getfd"], "EPERM", "{ways}");
    assert_eq!(ways["x32"], -libc::SIGSYS, "{ways}");
}

#[test]
fn a_refusing_filter_leaves_what_is_on_the_list() {
    let Some(rig) = rig() else { return };
    let mut without = Server::start(rig, &mut python("test-no-filter"));
    let ways = without.probe();
    assert_eq!(ways["tcp4"], "ok", "{ways}");
    assert_eq!(ways["child"], "ok", "{ways}");
    without.end();
    let mut server = Server::start(rig, &mut python(DENY));
    assert!(server.listener.is_none());
    let ways = server.probe();
    assert_confined(&ways, "EACCES", "13");
    // Root needs no such promise, so what a root server starts keeps its privileges.
    assert_eq!(ways["no_new_privs"], "0", "{ways}");
    server.end();
}

#[test]
fn a_server_of_another_user_gets_no_new_privileges() {
    let Some(rig) = rig() else { return };
    let id = std::fs::read("/usr/bin/id").expect("installed");
    let program = programs::install("id-setuid-filter", &id, 0o4755);
    let text = "while read line; do \"$1\" -u; done";
    for (word, expected) in [("test-no-filter", "0\n"), (DENY, "65534\n")] {
        let mut command = Command::new("sh");
        command.args(["-c", text, word]).arg(&program);
        let mut server = Server::start(rig, unprivileged(&mut command));
        assert_eq!(server.ask(), expected, "{word}");
        server.end();
    }
}

fn unprivileged(command: &mut Command) -> &mut Command {
    command.uid(65_534).gid(65_534)
}

#[test]
fn the_filter_is_there_for_a_process_of_another_user() {
    let Some(rig) = rig() else { return };
    // The interpreter of root's own folder is closed to others.
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        println!("skipped: no python for every user");
        return;
    }
    let mut command = Command::new(python);
    command.arg(probe()).arg(DENY);
    let mut server = Server::start(rig, unprivileged(&mut command));
    let ways = server.probe();
    assert_confined(&ways, "EACCES", "13");
    assert_eq!(ways["no_new_privs"], "1", "{ways}");
    server.end();
}

#[test]
fn programs_for_32_bits_are_ended() {
    let Some(rig) = rig() else { return };
    let program = programs::first_write_32();
    let text = "while read line; do \"$1\"; echo \"status $?\"; done";
    let mut command = Command::new("sh");
    command
        .args(["-c", text, DENY])
        .arg(program)
        .stderr(Stdio::null());
    let mut server = Server::start(rig, &mut command);
    assert_eq!(server.ask(), format!("status {}\n", 128 + libc::SIGSYS));
    server.end();
}

#[test]
fn a_server_under_a_filter_that_forbids_these_very_calls() {
    let Some(rig) = rig() else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "while read line; do echo \"got $line\"; done", DENY]);
    before_exec(&mut command, crate::images::forbid_injected_calls);
    let mut server = Server::start(rig, &mut command);
    assert_eq!(server.ask(), "got ?\n");
    assert_eq!(status(server.child.id(), "Seccomp_filters:"), Some(2));
    server.end();
}

#[test]
fn a_server_installs_a_filter_of_its_own() {
    let Some(rig) = rig() else { return };
    let own = "
import ctypes
own = ctypes.CDLL(None, use_errno=True)
rule = ctypes.create_string_buffer(bytes([6, 0, 0, 0, 0, 0, 0xff, 0x7f]), 8)
class Program(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
allow_all = Program(1, ctypes.addressof(rule))
assert own.prctl(38, 1, 0, 0, 0) == 0
assert own.syscall(317, 1, 0, ctypes.byref(allow_all)) == 0, ctypes.get_errno()
";
    let program = programs::install("own-filter.py", format!("{own}\n{PROBE}").as_bytes(), 0o644);
    let mut server = Server::start(rig, Command::new("python3").arg(program).arg(DENY));
    assert_confined(&server.probe(), "EACCES", "13");
    assert_eq!(status(server.child.id(), "Seccomp_filters:"), Some(2));
    server.end();
}

fn status(pid: u32, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

#[test]
fn a_launcher_keeps_the_network_and_its_server_has_none() {
    let Some(rig) = rig() else { return };
    let before = "import socket; socket.socket(); print('launched', flush=True)";
    // The word for the filter is no argument of the shell: it is for what the shell runs last.
    let text = format!("python3 -c \"$1\"; exec env python3 \"$2\" {DENY}");
    let mut command = Command::new("sh");
    command.args(["-c", &text, FOLLOW, before]).arg(probe());
    let child = start(&mut command);
    let pid = child.id();
    let ends = rig.ends(pid);
    assert!(ends.confined.is_none(), "{:?}", ends.confined);
    assert!(ends.server_ino.iter().all(|ino| *ino != 0));
    let mut server = Server::with(child, ends);
    let mut line = String::new();
    server.answers.read_line(&mut line).expect("read");
    assert_eq!(line, "launched\n");
    assert!(matches!(
        rig.confined(pid),
        Confined::Filtered {
            listener: None,
            no_new_privs: false
        }
    ));
    assert_confined(&server.probe(), "EACCES", "13");
    assert!(!rig.control.marks(pid).contains(kams_host::Marks::ARMED));
    server.end();
}

/// Waits for a question; false once nobody is left who could ask. Kernels before 6.11 tell that to `poll` only: to
/// receive would wait for ever.
fn is_asked(listener: i32) -> bool {
    let mut poll = libc::pollfd {
        fd: listener,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry; poll writes only `revents`.
    unsafe { libc::poll(&raw mut poll, 1, -1) };
    poll.revents & libc::POLLIN != 0
}

#[test]
fn a_filter_that_asks_is_answered_by_whoever_holds_it() {
    let Some(rig) = rig() else { return };
    let mut server = Server::start(rig, &mut python(ASK));
    let listener = server.listener.take().expect("a filter that asks has one");
    // The server cannot answer its own questions.
    let links = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).expect("lives");
    let held = links
        .filter_map(|link| std::fs::read_link(link.ok()?.path()).ok())
        .any(|link| link.to_string_lossy().contains("seccomp"));
    assert!(!held);
    let allowed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let seen = std::sync::Arc::clone(&allowed);
    let fd = listener.as_raw_fd();
    let answers = std::thread::spawn(move || {
        let mut asked = 0u32;
        while is_asked(fd) {
            // One whose asker has ended is no question any more.
            let Ok(question) = ScmpNotifReq::receive(fd) else {
                continue;
            };
            asked += 1;
            let answer = if seen.load(std::sync::atomic::Ordering::Acquire) {
                ScmpNotifResp::new_continue(question.id, ScmpNotifRespFlags::empty())
            } else {
                ScmpNotifResp::new_error(question.id, -libc::EACCES, ScmpNotifRespFlags::empty())
            };
            // One whose asker has ended wants no answer.
            let _ended = answer.respond(fd);
        }
        asked
    });
    let ways = server.probe();
    assert_eq!(ways["tcp4"], "ok", "{ways}");
    assert_eq!(ways["child"], "ok", "{ways}");
    assert_never(&ways);
    allowed.store(false, std::sync::atomic::Ordering::Release);
    assert_confined(&server.probe(), "EACCES", "13");
    server.end();
    assert!(answers.join().expect("no panic") > 10);
    drop(listener);
}

#[test]
fn a_server_that_may_not_run_without_its_filter_does_not_run() {
    let Some(rig) = rig() else { return };
    // A process has one listener at most; this one has its own already, and keeps it through the exec.
    let mut command = Command::new("sh");
    command.args(["-c", "read line; echo ran", ASK]);
    before_exec(&mut command, own_listener);
    let mut child = start(&mut command);
    assert_eq!(rig.refusal(child.id()), kams_host::inject::Refusal::Unfiltered);
    let mut answer = String::new();
    let mut output = child.stdout.take().expect("piped");
    std::io::Read::read_to_string(&mut output, &mut answer).expect("read");
    // Its end of the pipe is closed, so it has ended. How is not told here: in this process the tracer is the parent, too,
    // and may have waited for it.
    let _by_whom = child.wait();
    assert_eq!(answer, "");
}

/// A filter that allows everything, with a listener that stays open.
fn own_listener() -> bool {
    let mut allow = libc::sock_filter {
        code: 6,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut allow,
    };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: the program and its filter live through the call.
    let listener = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    let Ok(listener) = i32::try_from(listener) else {
        return false;
    };
    // SAFETY: numbers only.
    listener >= 0 && unsafe { libc::fcntl(listener, libc::F_SETFD, 0) } == 0
}

#[test]
fn without_a_listener_every_question_fails() {
    let Some(rig) = rig() else { return };
    let mut server = Server::start(rig, &mut python(ASK));
    drop(server.listener.take());
    assert_confined(&server.probe(), "ENOSYS", "38");
    server.end();
}

#[test]
fn node_serves_under_a_filter() {
    let Some(rig) = rig() else { return };
    let program = "
const net = require('net'), dns = require('dns'), os = require('os');
require('readline').createInterface({input: process.stdin}).on('line', () => {
  const interfaces = Object.keys(os.networkInterfaces()).length >= 0;
  net.connect(9, '127.0.0.1').on('error', (tcp) => {
    require('fs').readFile('/etc/hostname', () => {
      const child = require('child_process').spawn('sh', ['-c', 'echo child']);
      child.stdout.on('data', (text) => console.log(JSON.stringify([interfaces, tcp.code, String(text).trim()])));
    });
  });
});
";
    if !is_installed("node") {
        return;
    }
    let mut command = Command::new("node");
    command.args(["-e", program, "--", DENY]);
    let mut server = Server::start(rig, &mut command);
    assert_eq!(server.ask(), "[true,\"EACCES\",\"child\"]\n");
    server.end();
}
