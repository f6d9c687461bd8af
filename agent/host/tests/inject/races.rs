//! What others do to a process while it is held.
//!
//! The agent is another process here: waiting for a child in the injector's own process would take its stops away.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kams_host::inject::{InjectorOptions, Outcome, Refusal, Target};
use kams_host::procs;

use crate::programs;
use crate::relay::{Passed, Relay};
use crate::rig::{AGENT, IGNORE, PATIENCE, RELEASE, Rig, arm, ended, is_root, rig};

/// A Python program that starts servers and tells of them, line by line.
struct Agent {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Agent {
    fn start(program: &str) -> Self {
        Self::start_as(AGENT, program)
    }

    fn start_as(name: &str, program: &str) -> Self {
        let mut child = Command::new("/usr/bin/python3")
            .arg0(name)
            .args(["-uc", program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("it tells more").expect("text")
    }

    fn number(&mut self) -> u32 {
        let line = self.line();
        line.parse().unwrap_or_else(|_| panic!("a number, not {line}"))
    }

    fn end(self) {
        assert!(ended(self.child).success());
    }
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: numbers only; the process is a test's own, and its parent has not waited for it.
    let _ended_already = unsafe { libc::kill(i32::try_from(pid).expect("fits"), signal) };
}

/// The outcome of a process that may have been killed; what passed where it was injected.
fn relayed(rig: &Rig, pid: u32) -> Option<Passed> {
    passed(rig.outcome(pid))
}

fn passed(outcome: Outcome) -> Option<Passed> {
    match outcome {
        Outcome::Injected(ends) => Some(Relay::start(*ends).join()),
        Outcome::Died { .. } | Outcome::Confined { .. } => None,
        Outcome::Refused { reason, .. } => {
            assert_eq!(reason, Refusal::Moved);
            None
        }
    }
}

#[test]
fn somebody_continues_it_again_and_again() {
    let Some(rig) = rig() else { return };
    // The child tells its number before its exec, so that the signals are there from the first moment on.
    let program = "
import os, subprocess, sys, time
def before():
    os.write(2, b'')
    os.write(told, b'%d\\n' % os.getpid())
    time.sleep(0.003)
for _ in range(40):
    told = os.dup(1)
    p = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=before)
    os.close(told)
    out = p.communicate()[0]
    print(out.decode().strip(), p.returncode)
";
    let program = program.replace("sys.argv[1]", &format!("{:?}", programs::first_write()));
    let mut agent = Agent::start(&program);
    let mut not_relayed = 0;
    for _ in 0..40 {
        let pid = agent.number();
        let done = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    kill(pid, libc::SIGCONT);
                }
            });
            let outcome = rig.try_outcome_at(pid);
            done.store(true, Ordering::Release);
            outcome
        });
        // Never silent: it is behind the relay from its first instruction on, or it is told that it is not.
        match passed(outcome.expect("an outcome").1) {
            Some(passed) => assert_eq!(passed.to_agent, programs::FIRST),
            None => not_relayed += 1,
        }
        assert_eq!(agent.line(), "first 0");
    }
    println!("{not_relayed} of 40 ran before they could be traced");
    agent.end();
}

/// Starts servers and sends each a signal at once; all end by it.
fn signalled(signal: &str, number: i32) {
    let Some(rig) = rig() else { return };
    let program = format!(
        "
import signal, subprocess
for _ in range(150):
    p = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.send_signal(signal.{signal})
    print(p.pid)
    print(p.wait(30))
"
    );
    let mut agent = Agent::start(&program);
    for _ in 0..150 {
        let pid = agent.number();
        assert_eq!(agent.line(), format!("-{number}"));
        // Before, during or after the injection.
        drop(rig.outcome(pid));
    }
    agent.end();
}

#[test]
fn a_signal_during_the_hold_is_not_lost() {
    signalled("SIGTERM", libc::SIGTERM);
}

#[test]
fn a_kill_during_the_hold_leaves_nothing() {
    signalled("SIGKILL", libc::SIGKILL);
}

#[test]
fn a_stop_by_somebody_else_stays() {
    let Some(rig) = rig() else { return };
    let program = "
import subprocess
p = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(p.pid)
print(p.communicate(b'x')[0].decode(), p.returncode)
";
    let mut agent = Agent::start(program);
    let pid = agent.number();
    let Outcome::Injected(ends) = rig.outcome(pid) else {
        panic!("not injected");
    };
    kill(pid, libc::SIGSTOP);
    wait_until(|| procs::stat(pid).expect("lives").state == b'T', "it stops");
    let relay = Relay::start(*ends);
    kill(pid, libc::SIGCONT);
    assert_eq!(agent.line(), "x 0");
    assert_eq!(relay.join().to_server, b"x");
    agent.end();
}

/// A server that is held, and about which nobody has said anything yet; a group of processes of its own, so that a stop
/// by the terminal's signal has an effect.
fn held() -> Child {
    let child = Command::new("/bin/cat")
        .arg0(IGNORE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("starts");
    let pid = child.id();
    wait_until(|| procs::stat(pid).expect("lives").state == b'T', "it is held");
    child
}

/// Others stop it while it is held: it runs only when they continue it.
fn stopped_meanwhile(signal: i32, rig: &Rig, go_on: impl FnOnce(Target)) {
    let mut server = held();
    let pid = server.id();
    kill(pid, signal);
    let start_ns = procs::stat(pid).expect("lives").start_ticks * kams_host::clock::NS_PER_TICK;
    go_on(Target {
        pid,
        start_ns,
        parent: std::process::id(),
        far_ino: [0; 2],
        relay: true,
        confine: None,
        follow: false,
    });
    let relay = match rig.knows(pid).then(|| rig.outcome(pid)) {
        Some(Outcome::Injected(ends)) => Some(Relay::start(*ends)),
        _ => None,
    };
    // It has taken the stop of the others. Until then it runs for a moment, so that it must have nothing to do yet.
    wait_until(
        || !waits(pid, signal) && procs::stat(pid).expect("lives").state == b'T',
        "it is stopped",
    );
    let mut input = server.stdin.take().expect("piped");
    writeln!(input, "x").expect("written");
    drop(input);
    kill(pid, libc::SIGCONT);
    let mut said = String::new();
    let mut output = server.stdout.take().expect("piped");
    std::io::Read::read_to_string(&mut output, &mut said).expect("text");
    assert_eq!(said, "x\n");
    assert!(ended(server).success());
    if let Some(relay) = relay {
        assert_eq!(relay.join().to_server, b"x\n");
    }
}

#[test]
fn a_stop_during_the_hold_is_not_lost() {
    let Some(rig) = rig() else { return };
    for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU, libc::SIGSTOP] {
        // With a relay.
        stopped_meanwhile(signal, rig, |target| {
            let pid = target.pid;
            rig.injector.inject(target);
            wait_until(|| rig.knows(pid), "an outcome");
        });
        // Without.
        stopped_meanwhile(signal, rig, |target| {
            rig.injector.release(target.pid, target.start_ns);
        });
    }
}

/// Whether a signal waits to be taken.
fn waits(pid: u32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("lives");
    let line = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let set = u64::from_str_radix(line.expect("a set").trim(), 16).expect("a number");
    set & (1 << (signal - 1)) != 0
}

#[test]
fn a_parent_that_asks_for_stops() {
    let Some(rig) = rig() else { return };
    // Such a parent may see the hold (README); it is over by itself, and nothing else is different.
    let program = "
import os, subprocess
for _ in range(40):
    p = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    print(p.pid)
    p.stdin.write(b'x'); p.stdin.close()
    stops = 0
    while True:
        pid, status = os.waitpid(p.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status): break
        stops += 1
    print(stops, p.stdout.read().decode(), status)
";
    let mut agent = Agent::start(program);
    let mut stops = 0;
    for _ in 0..40 {
        let pid = agent.number();
        assert_eq!(relayed(rig, pid).expect("relayed").to_server, b"x");
        let line = agent.line();
        let (seen, rest) = line.split_once(' ').expect("a count");
        assert_eq!(rest, "x 0");
        let seen: u32 = seen.parse().expect("a count");
        assert!(seen <= 1);
        stops += seen;
    }
    println!("{stops} of 40 holds were seen by their parent");
    agent.end();
}

fn wait_until(mut there: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !there() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// A process that does not stop: it waits, uninterruptibly, for a child that never ends.
struct Stuck {
    process: Child,
}

impl Stuck {
    fn start() -> Self {
        let process = Command::new(programs::stuck())
            .arg0(RELEASE)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        let this = Self { process };
        let pid = this.pid();
        wait_until(|| procs::stat(pid).expect("lives").state == b'D', "it sleeps");
        this
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    fn inject(&self, rig: &Rig) {
        let pid = self.pid();
        let start_ns = procs::stat(pid).expect("lives").start_ticks * kams_host::clock::NS_PER_TICK;
        rig.injector.inject(Target {
            pid,
            start_ns,
            parent: std::process::id(),
            far_ino: [0; 2],
            relay: true,
            confine: None,
            follow: false,
        });
        wait_until(|| self.is_traced(), "it is traced");
    }

    /// From here on it moves.
    fn free(&self) {
        for child in procs::children(self.pid()) {
            kill(child, libc::SIGKILL);
        }
    }

    fn is_traced(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("lives");
        !status.lines().any(|line| line == "TracerPid:\t0")
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ended_already = self.process.kill();
        let _reaped = self.process.wait();
    }
}

#[test]
fn a_target_that_does_not_stop_holds_up_no_other() {
    if !is_root() {
        return;
    }
    // With time without end, whoever waits for the stuck one has no outcome; how fast this machine is plays no part.
    let rig = Rig::start(InjectorOptions {
        deadline: Duration::from_hours(1),
        ..InjectorOptions::default()
    });
    let program = "
import subprocess
print('ready')
input()
servers = [subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(10)]
for p in servers: print(p.pid)
input()
for p in servers: print(p.communicate(b'x')[0].decode(), p.returncode)
";
    let mut agent = Agent::start_as(RELEASE, program);
    assert_eq!(agent.line(), "ready");
    arm(&rig.control, agent.child.id());
    let stuck = Stuck::start();
    stuck.inject(&rig);
    let mut to_agent = agent.child.stdin.take().expect("piped");
    writeln!(to_agent).expect("written");
    let mut relays = Vec::new();
    for _ in 0..10 {
        relays.push(Relay::start(rig.ends(agent.number())));
    }
    writeln!(to_agent).expect("written");
    drop(to_agent);
    for relay in relays {
        assert_eq!(agent.line(), "x 0");
        assert_eq!(relay.join().to_server, b"x");
    }
    agent.end();
    assert!(
        stuck.is_traced() && !rig.knows(stuck.pid()),
        "the others did not wait for it"
    );
    stuck.free();
    assert_eq!(rig.refusal(stuck.pid()), Refusal::Moved, "it had run long before");
}

#[test]
fn a_target_that_does_not_stop_is_given_up_and_let_go_when_it_moves() {
    let Some(rig) = rig() else { return };
    let stuck = Stuck::start();
    stuck.inject(rig);
    assert_eq!(rig.refusal(stuck.pid()), Refusal::Late);
    stuck.free();
    wait_until(|| !stuck.is_traced(), "it is let go");
}
