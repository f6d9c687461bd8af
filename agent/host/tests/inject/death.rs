//! The process that holds others is killed, at any moment: nothing stays stopped.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kams_host::inject::{Injector, InjectorOptions};
use kams_host::{Sensor, SensorEvent, SensorOptions, hold, procs};

use crate::rig::{IGNORE, PATIENCE, RELEASE, arm, is_root, target};

/// Names the folder to pin in; a test process with it is a worker.
const WORKER: &str = "KAMS_TEST_WORKER_PIN";
/// What the worker does with what it holds.
const ANSWERS: &str = "KAMS_TEST_WORKER_ANSWERS";

/// Not a test by itself: the worker that other tests kill.
#[test]
fn as_worker() {
    let Some(folder) = std::env::var_os(WORKER) else {
        return;
    };
    let answers = std::env::var_os(ANSWERS).is_some();
    let options = SensorOptions {
        pin: Some(PathBuf::from(folder)),
        ..SensorOptions::default()
    };
    let (sensor, mut events) = Sensor::start(options).expect("the sensor starts");
    let control = sensor.control();
    let forever = InjectorOptions {
        unclaimed: Duration::from_hours(1),
        ..InjectorOptions::default()
    };
    // The ends are dropped: the servers read their end and are gone.
    let injector = Injector::start(&control, forever, drop).expect("the injector starts");
    let mut line = String::new();
    println!("ready");
    std::io::stdin().read_line(&mut line).expect("read");
    arm(&control, line.trim().parse().expect("a process id"));
    println!("armed");
    while let Some(event) = events.blocking_recv() {
        if let SensorEvent::Exec(report) = event
            && report.held
            && answers
        {
            injector.inject(target(&report, report.ppid));
        }
    }
}

struct Worker {
    child: Child,
    folder: PathBuf,
}

/// The folder for the map, of this test alone.
fn folder(name: &str) -> PathBuf {
    hold::mount_bpf_filesystem().expect("a BPF filesystem");
    hold::folder(&format!("kams-test-{name}-{}", std::process::id()))
}

impl Worker {
    /// Starts a worker that arms the process `agent`.
    fn start(name: &str, answers: bool, agent: u32) -> Self {
        let folder = folder(name);
        let mut command = Command::new(std::env::current_exe().expect("own program"));
        command
            .arg0(RELEASE)
            .args(["--exact", "death::as_worker", "--nocapture", "--test-threads=1"])
            .env(WORKER, &folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        if answers {
            command.env(ANSWERS, "1");
        }
        let mut child = command.spawn().expect("starts");
        writeln!(child.stdin.as_ref().expect("piped"), "{agent}").expect("written");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let armed = stdout
            .lines()
            .map_while(Result::ok)
            .any(|line| line.ends_with("armed"));
        assert!(armed, "the worker is ready");
        Self { child, folder }
    }

    /// Kills it, and does what its parent would do.
    fn kill_and_heal(mut self) -> usize {
        self.child.kill().expect("own child");
        self.child.wait().expect("own child");
        let healed = hold::heal(&self.folder);
        remove(&self.folder);
        healed
    }
}

fn remove(folder: &Path) {
    std::fs::remove_dir_all(folder).expect("removed");
}

/// A program that starts servers one after the other when told to; itself not held by anybody.
fn agent(servers: u32) -> Child {
    let program = format!(
        "
import subprocess, sys
sys.stdin.readline()
servers = []
for _ in range({servers}):
    servers.append(subprocess.Popen(['{IGNORE}'], executable='/bin/cat', stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    print(servers[-1].pid, flush=True)
for s in servers:
    try: s.communicate(b'x', timeout=30)
    except BrokenPipeError: s.wait(30)
print('all ended', flush=True)
"
    );
    Command::new("/usr/bin/python3")
        .arg0(RELEASE)
        .args(["-c", &program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts")
}

#[test]
fn held_processes_run_again_after_a_common_death() {
    if !is_root() {
        return;
    }
    let mut agent = agent(5);
    let worker = Worker::start("held", false, agent.id());
    let mut stdin = agent.stdin.take().expect("piped");
    writeln!(stdin, "go").expect("written");
    let mut stdout = BufReader::new(agent.stdout.take().expect("piped"));
    let mut pids = Vec::new();
    for _ in 0..5 {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("read");
        pids.push(line.trim().parse::<u32>().expect("a process id"));
    }
    let deadline = Instant::now() + PATIENCE;
    let stopped = |pid: &u32| procs::stat(*pid).is_some_and(|stat| stat.state == b'T');
    while !pids.iter().all(stopped) {
        assert!(Instant::now() < deadline, "they are held");
        std::thread::yield_now();
    }
    // The worker alone: nothing resumes what nobody traced; the map does.
    assert_eq!(worker.kill_and_heal(), 5);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "all ended\n");
    assert!(agent.wait().expect("own child").success());
}

#[test]
fn a_worker_killed_at_any_moment_leaves_nothing_stopped() {
    if !is_root() {
        return;
    }
    // From before the first hold to after the last, in steps that meet every phase.
    for round in 0..12u64 {
        let mut agent = agent(30);
        let worker = Worker::start(&format!("any{round}"), true, agent.id());
        let mut stdin = agent.stdin.take().expect("piped");
        writeln!(stdin, "go").expect("written");
        let mut stdout = BufReader::new(agent.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("read");
        // The moment of the kill is what is varied.
        std::thread::sleep(Duration::from_micros(round * round * 150));
        worker.kill_and_heal();
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).expect("text");
        assert!(rest.ends_with("all ended\n"), "round {round}: {rest}");
        assert!(agent.wait().expect("own child").success());
    }
}

#[test]
fn after_a_death_nothing_is_held_any_more() {
    if !is_root() {
        return;
    }
    let mut agent = agent(3);
    let worker = Worker::start("after", false, agent.id());
    worker.kill_and_heal();
    let mut stdin = agent.stdin.take().expect("piped");
    writeln!(stdin, "go").expect("written");
    let mut rest = String::new();
    agent
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut rest)
        .expect("text");
    assert!(rest.ends_with("all ended\n"), "{rest}");
    assert!(agent.wait().expect("own child").success());
}

#[test]
fn healing_where_nothing_is_pinned() {
    assert_eq!(hold::heal(Path::new("/sys/fs/bpf/kams-no-such-folder")), 0);
}
