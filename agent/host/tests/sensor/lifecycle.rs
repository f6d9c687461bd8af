//! Exec, fork and exit reports, marks, and that nothing stays behind.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use kams_host::{ExecReport, FdKind, Marks, SensorEvent, SensorOptions};

use crate::rig::{Arrived, PATIENCE, Rig};

/// Short-lived servers in the default run; set the variable for the full 100,000.
const CHURN_ENV: &str = "KAMS_CHURN";
const CHURN_DEFAULT: u32 = 1_500;

fn piped(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts")
}

fn exec_of(rig: &mut Rig, pid: u32) -> ExecReport {
    rig.wait_for(|event| match event {
        SensorEvent::Exec(exec) if exec.pid == pid => Some(*exec),
        _ => None,
    })
}

#[test]
fn an_exec_report_tells_the_truth() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let mut command = Command::new("/bin/sh");
    let mut child = piped(
        command
            .args(["-c", "read line; exit 0", "an argument", ""])
            .uid(65_534)
            .gid(65_533),
    );
    let pid = child.id();
    let exec = exec_of(&mut rig, pid);
    let facts = kams_host::procs::facts(pid).expect("it waits for a line");
    writeln!(child.stdin.as_ref().expect("piped")).expect("write");
    child.wait().expect("ends");

    assert_eq!(
        (exec.ppid, exec.uid, exec.gid),
        (std::process::id(), 65_534, 65_533)
    );
    assert_eq!(exec.filename, "/bin/sh");
    let args: Vec<Vec<u8>> = exec.args().iter().map(|arg| arg.to_vec()).collect();
    assert_eq!(args, facts.argv);
    assert!(!exec.argv_cut && !exec.filename_cut);
    assert_eq!(
        exec.start_ns / kams_host::clock::NS_PER_TICK,
        facts.stat.start_ticks
    );
    assert_eq!(
        [exec.fds[0].kind, exec.fds[1].kind, exec.fds[2].kind],
        [FdKind::Pipe, FdKind::Pipe, FdKind::Chr]
    );
    assert!(exec.candidate && exec.watched && !exec.stdin_inherited);
    assert!(
        !exec.marks.contains(Marks::ENDPOINT),
        "the new image is no endpoint"
    );
    assert!(exec.marks.contains(Marks::TREE), "but still in the tree");
    let wall = kams_host::clock::to_wall(exec.time_ns);
    let age = std::time::SystemTime::now()
        .duration_since(wall)
        .expect("in the past");
    assert!(age < PATIENCE, "{age:?}");
}

#[test]
fn long_arguments_and_names_are_cut_and_said_so() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let folder = tempfile::tempdir().expect("folder");
    let mut path = folder.path().to_path_buf();
    for _ in 0..4 {
        path.push("x".repeat(200));
    }
    std::fs::create_dir_all(&path).expect("folders");
    path.push("server");
    std::os::unix::fs::symlink("/bin/cat", &path).expect("link");
    let mut command = Command::new(&path);
    // cat fails on the unknown file, which is all right.
    let mut child = piped(command.arg("/nonexistent/".repeat(500)));
    let exec = exec_of(&mut rig, child.id());
    drop(child.stdin.take());
    child.wait().expect("ends");
    assert!(exec.filename_cut && exec.argv_cut);
    assert_eq!(exec.argv.len(), 1024);
    assert!(
        path.to_str()
            .expect("text")
            .as_bytes()
            .starts_with(&exec.filename)
    );
    assert!(exec.filename.len() >= 500);
}

#[test]
fn a_process_without_marked_parent_is_reported_and_not_watched() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    rig.control
        .unmark(std::process::id(), Marks::TREE.with(Marks::ENDPOINT));
    let mut child = piped(&mut Command::new("cat"));
    let exec = exec_of(&mut rig, child.id());
    drop(child.stdin.take());
    child.wait().expect("ends");
    assert!(exec.candidate && !exec.watched);
    assert!(exec.marks.is_empty() && exec.parent_marks.is_empty());
    assert_eq!(rig.control.streams(), []);
}

#[test]
fn the_first_line_of_a_hasty_agent_is_captured() {
    hasty_agent(SensorOptions::default());
}

#[test]
fn the_first_line_of_a_hasty_agent_is_captured_without_sched_prepare_exec() {
    hasty_agent(SensorOptions {
        force_bounded: true,
        ..SensorOptions::default()
    });
}

fn hasty_agent(options: SensorOptions) {
    let Some(mut rig) = Rig::start(options) else {
        return;
    };
    // The library waits for a descriptor that the child's exec closes and the next statement writes: about as early as
    // an agent can.
    for round in 0..50 {
        let mut child = piped(&mut Command::new("cat"));
        let (mut input, mut output) = (
            child.stdin.take().expect("piped"),
            child.stdout.take().expect("piped"),
        );
        let line = format!("line {round}\n");
        input.write_all(line.as_bytes()).expect("write");
        drop(input);
        let mut echoed = String::new();
        output.read_to_string(&mut echoed).expect("read");
        child.wait().expect("ends");
        let exec = exec_of_and_payload(&mut rig, child.id(), 2 * line.len());
        assert_eq!(exec.0, line.as_bytes(), "round {round}, to the server");
        assert_eq!(exec.1, line.as_bytes(), "round {round}, from the server");
    }
}

/// Payload to and from the server, which comes after its exec report.
fn exec_of_and_payload(rig: &mut Rig, pid: u32, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut to, mut from) = (Vec::new(), Vec::new());
    let mut keys = None;
    rig.wait_for(|event| {
        match event {
            SensorEvent::Exec(exec) if exec.pid == pid => keys = exec.far_keys(),
            SensorEvent::Payload(chunk) if keys.is_none() => {
                panic!("payload before the exec report of {pid}: {chunk:?}")
            }
            SensorEvent::Payload(chunk) => match chunk.key.op {
                kams_host::Op::Write => to.extend_from_slice(&chunk.data),
                kams_host::Op::Read => from.extend_from_slice(&chunk.data),
            },
            _ => {}
        }
        (keys.is_some() && to.len() + from.len() >= bytes).then_some(())
    });
    (to, from)
}

#[test]
fn a_launcher_chain_is_one_stream_pair() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    // sh stays as the parent; the server is its child and execs twice.
    let mut command = Command::new("sh");
    let mut child = piped(command.args(["-c", "env cat; true"]));
    let pid = child.id();
    child
        .stdin
        .as_mut()
        .expect("piped")
        .write_all(b"through a chain\n")
        .expect("write");
    let mut echoed = [0; 16];
    child
        .stdout
        .as_mut()
        .expect("piped")
        .read_exact(&mut echoed)
        .expect("read");
    let streams = rig.control.streams();
    assert_eq!(streams.len(), 2, "{streams:?}");
    assert!(streams.iter().all(|stream| stream.watch.server == pid));
    drop(child.stdin.take());
    child.wait().expect("ends");
    let mut to_server = Arrived::default();
    let key = streams
        .iter()
        .map(|stream| stream.watch.key)
        .find(|key| key.op == kams_host::Op::Write);
    while to_server.accounted() < 16 {
        to_server.take(rig.next(), key.expect("one of each"));
    }
    assert_eq!(to_server.data, b"through a chain\n");
}

#[test]
fn exit_is_reported_once_with_all_threads_gone_and_clears_the_marks() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let mut command = Command::new("sh");
    let mut child = piped(command.args(["-c", "read line"]));
    let pid = child.id();
    assert!(rig.control.marks(pid).contains(Marks::TREE.with(Marks::SERVER)));
    drop(child.stdin.take());
    child.wait().expect("ends");
    let mut exits = 0;
    let mut marker = piped(&mut Command::new("true"));
    let marker_pid = marker.id();
    marker.wait().expect("ends");
    rig.wait_for(|event| match event {
        SensorEvent::Exit {
            pid: exited, marks, ..
        } if exited == pid => {
            assert!(marks.contains(Marks::SERVER));
            exits += 1;
            None
        }
        SensorEvent::Exit { pid: exited, .. } if exited == marker_pid => Some(()),
        _ => None,
    });
    assert_eq!(exits, 1);
    assert!(rig.control.marks(pid).is_empty());
}

#[test]
fn marking_a_process_that_is_gone_or_another_one_does_nothing() {
    let Some(rig) = Rig::with_defaults() else { return };
    let mut child = piped(&mut Command::new("true"));
    let pid = child.id();
    child.wait().expect("ends");
    assert!(!rig.control.mark(pid, None, Marks::TREE).expect("in range"));
    assert!(rig.control.marks(pid).is_empty());
    let own = std::process::id();
    assert!(
        !rig.control
            .mark(own, Some(1), Marks::PROBATION)
            .expect("in range")
    );
    assert!(!rig.control.marks(own).contains(Marks::PROBATION));
    assert!(rig.control.mark(u32::MAX, None, Marks::TREE).is_err());
}

#[test]
fn short_lived_servers_leave_nothing_behind() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let rounds: u32 = std::env::var(CHURN_ENV)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(CHURN_DEFAULT);
    for round in 0..rounds {
        // Both streams are watched at each exec.
        let mut child = piped(&mut Command::new("/bin/true"));
        child.wait().expect("ends");
        if round % 64 == 0 {
            while rig.try_next().is_some() {}
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while !rig.control.streams().is_empty() {
        assert!(
            Instant::now() < deadline,
            "{} streams are left",
            rig.control.streams().len()
        );
        std::thread::yield_now();
    }
    let own = std::process::id();
    let others: Vec<_> = rig
        .control
        .marked()
        .into_iter()
        .filter(|(pid, _)| *pid != own)
        .collect();
    assert_eq!(others, []);
    assert_eq!(rig.losses(), []);

    let mut stream = rig.pipe(kams_host::Op::Write);
    stream.agent.write_all(b"still capturing").expect("write");
    assert_eq!(rig.arrived(stream.key, 15).data, b"still capturing");
}
