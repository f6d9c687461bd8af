//! The pool: a real process of it, its workers, what they are and what they hold.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use kams_relay::wire::{FromRelay, Meta};
use kams_relay::{Ends, FailMode, RelayHandle, RelayPool};
use rustix::event::{PollFd, PollFlags, poll};

use super::rig::{accepted, listener};

fn pool(engine: &Path) -> RelayPool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kams-relay"));
    command.arg("pool");
    RelayPool::spawn(command, engine).unwrap()
}

/// The agent's and the server's own ends.
struct Outer {
    agent_out: std::io::PipeWriter,
    agent_in: BufReader<std::io::PipeReader>,
    server_in: BufReader<std::io::PipeReader>,
    server_out: std::io::PipeWriter,
}

fn start(pool: &RelayPool) -> (RelayHandle, Outer) {
    let (from_agent, agent_out) = std::io::pipe().unwrap();
    let (agent_in, to_agent) = std::io::pipe().unwrap();
    let (server_in, to_server) = std::io::pipe().unwrap();
    let (from_server, server_out) = std::io::pipe().unwrap();
    let ends = Ends {
        from_agent: from_agent.into(),
        to_agent: to_agent.into(),
        to_server: to_server.into(),
        from_server: from_server.into(),
        sole: true,
    };
    let meta = Meta {
        relay: "pooled".into(),
        uid: 1234,
        server: "npm:x".into(),
        ..Meta::default()
    };
    let handle = pool.start(ends, meta, FailMode::Open).unwrap();
    let outer = Outer {
        agent_out,
        agent_in: BufReader::new(agent_in),
        server_in: BufReader::new(server_in),
        server_out,
    };
    (handle, outer)
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line
}

/// Waits for the end of a process.
fn ended(pidfd: &OwnedFd) {
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None).unwrap();
}

fn echo(outer: &mut Outer, text: &str) {
    outer.agent_out.write_all(text.as_bytes()).unwrap();
    assert_eq!(line(&mut outer.server_in), text);
    outer.server_out.write_all(text.as_bytes()).unwrap();
    assert_eq!(line(&mut outer.agent_in), text);
}

#[test]
fn a_worker_serves_holds_nothing_of_others_and_outlives_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = folder.path().join("engine");
    let engines = listener(&path);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let pool = pool(&path);
    // More than are ready at once.
    let mut all: Vec<(RelayHandle, Outer)> = (0..8).map(|_| start(&pool)).collect();
    let mut judges = Vec::new();
    for _ in 0..8 {
        let mut engine = accepted(&engines);
        let Some((FromRelay::Hello(hello), _)) = engine.hear() else {
            panic!("no greeting")
        };
        assert_eq!((hello.meta.relay.as_str(), hello.meta.uid), ("pooled", 1234));
        judges.push(engine.pass_all());
    }
    for (n, (_, outer)) in all.iter_mut().enumerate() {
        echo(outer, &format!("{{\"id\":{n}}}\n"));
    }
    // An end arrives although other workers were started since: nobody else holds these streams.
    let (handle, mut outer) = all.remove(0);
    drop(outer.agent_out);
    assert_eq!(outer.server_in.read_to_end(&mut Vec::new()).unwrap(), 0);
    drop(outer.server_out);
    assert_eq!(outer.agent_in.read_to_end(&mut Vec::new()).unwrap(), 0);
    ended(&handle.pidfd);
    // The pool goes; who serves goes on, large messages too.
    drop(pool);
    for (_, outer) in &mut all {
        echo(
            outer,
            &format!("{{\"id\":1,\"pad\":\"{}\"}}\n", "x".repeat(40_000)),
        );
    }
    let (handle, outer) = all.remove(0);
    if rustix::process::geteuid().is_root() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", handle.pid)).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let uid = kams_relay::identity::uid().to_string();
        assert!(field("Uid:").split_whitespace().all(|id| id == uid), "{status}");
        assert_eq!(field("Groups:"), "");
        assert_eq!(field("CapPrm:").trim_start_matches('0'), "");
        assert_eq!(
            (field("NoNewPrivs:"), field("Seccomp:")),
            ("1".into(), "2".into())
        );
    }
    drop(outer);
    ended(&handle.pidfd);
}

#[test]
fn a_start_does_not_fail_for_workers_that_died_idle() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(&folder.path().join("nobody"));
    for _ in 0..2 {
        let mut all: Vec<(RelayHandle, Outer)> = (0..3).map(|_| start(&pool)).collect();
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", pool.pid())).unwrap();
        let idle = children.split_whitespace().map(|pid| pid.parse().unwrap());
        for pid in idle.filter(|pid: &u32| all.iter().all(|(handle, _)| handle.pid != *pid)) {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            // It may have been handed out or have ended since.
            let _ended_already = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        all.push(start(&pool));
        for (handle, mut outer) in all {
            echo(&mut outer, "{\"id\":1,\"method\":\"ping\"}\n");
            drop(outer);
            ended(&handle.pidfd);
        }
    }
}

#[test]
fn without_an_engine_a_worker_passes_what_its_mode_lets_pass() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(&folder.path().join("nobody"));
    let (handle, mut outer) = start(&pool);
    echo(&mut outer, "{\"id\":1,\"method\":\"ping\"}\n");
    drop(outer);
    ended(&handle.pidfd);
}
