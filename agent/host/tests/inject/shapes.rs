//! Every shape that a server's streams come in.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use kams_host::inject::Kind;

use crate::relay::Relay;
use crate::rig::{AGENT, PATIENCE, before_exec, ended, exchange, is_installed, rig};

#[test]
fn pipes_stay_pipes_and_keep_their_size() {
    let Some(rig) = rig() else { return };
    let (reader, writer) = std::io::pipe().expect("pipe");
    // SAFETY: numbers only.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 18) };
    assert_eq!(size, 1 << 18);
    let program = "import fcntl,os,stat; print(stat.S_ISFIFO(os.fstat(0).st_mode), fcntl.fcntl(0, 1032))";
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", program]).stdin(reader).stdout(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    drop(command);
    let ends = rig.ends(child.id());
    assert_eq!(
        (ends.stdin, ends.stdout, ends.one_socket),
        (Kind::Pipe, Kind::Pipe, false)
    );
    let relay = Relay::start(ends);
    let mut answer = String::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut answer)
        .expect("text");
    assert_eq!(answer, "True 262144\n");
    drop(writer);
    assert!(ended(child).success());
    relay.join();
}

#[test]
fn the_agents_ends_stay_blocking() {
    let Some(rig) = rig() else { return };
    let child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let ends = rig.ends(child.id());
    let is_nonblocking = |fd: i32| {
        // SAFETY: numbers only.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        flags & libc::O_NONBLOCK != 0
    };
    for ours in [
        &ends.from_agent,
        &ends.to_agent,
        &ends.to_server,
        &ends.from_server,
    ] {
        assert!(is_nonblocking(ours.as_raw_fd()));
    }
    assert!(!is_nonblocking(child.stdin.as_ref().expect("piped").as_raw_fd()));
    assert!(!is_nonblocking(child.stdout.as_ref().expect("piped").as_raw_fd()));
    let pid = child.id();
    for fd in [0, 1] {
        let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).expect("lives");
        let flags = info
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .expect("there");
        let flags = i32::from_str_radix(flags.trim(), 8).expect("octal");
        assert_eq!(flags & libc::O_NONBLOCK, 0, "the server's descriptor {fd}");
    }
    let links = kams_host::procs::fd_links(pid);
    // Whoever started this test may have left it descriptors that every child inherits.
    let inherited = kams_host::procs::fd_links(std::process::id());
    let is_left_over = |link: &&kams_host::procs::FdLink| {
        let known = inherited.iter().any(|own| own.ino == link.ino);
        link.fd > 2 && link.kind == kams_host::FdKind::Pipe && !known
    };
    let left_over = links.iter().filter(is_left_over);
    assert_eq!(left_over.count(), 0, "{links:?}");
    assert_eq!(ends.exe, kams_host::procs::exe(pid).expect("lives"));
    let relay = Relay::start(ends);
    let (answer, _) = exchange(child, b"x");
    assert_eq!(answer, b"x");
    relay.join();
}

/// A server with one socket as input and output, or two.
fn on_sockets(one: bool) -> (Child, UnixStream, UnixStream) {
    let (agent_in, server_in) = UnixStream::pair().expect("pair");
    let (agent_out, server_out) = if one {
        (
            agent_in.try_clone().expect("copy"),
            server_in.try_clone().expect("copy"),
        )
    } else {
        UnixStream::pair().expect("pair")
    };
    let child = Command::new("cat")
        .stdin(OwnedFd::from(server_in))
        .stdout(OwnedFd::from(server_out))
        .spawn()
        .expect("starts");
    (child, agent_in, agent_out)
}

#[test]
fn sockets_stay_sockets() {
    let Some(rig) = rig() else { return };
    for one in [false, true] {
        let (child, mut writes, mut reads) = on_sockets(one);
        let ends = rig.ends(child.id());
        assert_eq!(
            (ends.stdin, ends.stdout, ends.one_socket),
            (Kind::Socket, Kind::Socket, one)
        );
        let link = std::fs::read_link(format!("/proc/{}/fd/0", child.id())).expect("lives");
        assert!(link.to_string_lossy().starts_with("socket:"), "{link:?}");
        let relay = Relay::start(ends);
        writes.write_all(b"over a socket").expect("written");
        writes.shutdown(std::net::Shutdown::Write).expect("half closed");
        let mut answer = Vec::new();
        reads.read_to_end(&mut answer).expect("read");
        assert_eq!(answer, b"over a socket", "one socket: {one}");
        assert!(ended(child).success());
        assert_eq!(relay.join().to_server, b"over a socket");
    }
}

#[test]
fn standard_error_on_standard_output_is_no_way_around() {
    let Some(rig) = rig() else { return };
    let (mut reader, writer) = std::io::pipe().expect("pipe");
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo out; echo err >&2"])
        .stdin(Stdio::piped())
        .stderr(writer.try_clone().expect("copy"))
        .stdout(writer);
    let child = command.spawn().expect("starts");
    drop(command);
    let ends = rig.ends(child.id());
    assert!(ends.stderr_shared);
    let relay = Relay::start(ends);
    let mut answer = String::new();
    reader.read_to_string(&mut answer).expect("text");
    assert_eq!(answer, "out\nerr\n");
    assert!(ended(child).success());
    assert_eq!(relay.join().to_agent, b"out\nerr\n");
}

#[test]
fn standard_error_of_its_own_stays() {
    let Some(rig) = rig() else { return };
    let mut child = Command::new("sh")
        .args(["-c", "echo out; echo err >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stderr = child.stderr.take().expect("piped");
    let seen = rig.converse(child, b"");
    assert_eq!(seen.passed.to_agent, b"out\n");
    let mut err = String::new();
    stderr.read_to_string(&mut err).expect("text");
    assert_eq!(err, "err\n");
}

fn copy_std(from: i32, to: i32) -> bool {
    // SAFETY: numbers only.
    unsafe { libc::dup2(from, to) == to }
}

#[test]
fn inherited_copies_are_replaced_as_well() {
    let Some(rig) = rig() else { return };
    let mut command = Command::new("sh");
    command
        .args(["-c", "read line <&8; echo through-9-$line >&9"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    before_exec(&mut command, || copy_std(0, 8) && copy_std(1, 9));
    let child = command.spawn().expect("starts");
    let ends = rig.ends(child.id());
    assert_eq!(ends.copies, 2);
    let relay = Relay::start(ends);
    let (answer, status) = exchange(child, b"x\n");
    assert!(status.success());
    assert_eq!(answer, b"through-9-x\n");
    let passed = relay.join();
    assert_eq!(passed.to_server, b"x\n");
    assert_eq!(passed.to_agent, b"through-9-x\n");
}

#[test]
fn a_target_without_room_for_descriptors_gets_it_for_the_moment() {
    let Some(rig) = rig() else { return };
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -Sn; cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    before_exec(&mut command, || {
        let few = libc::rlimit {
            rlim_cur: 4,
            rlim_max: 64,
        };
        // SAFETY: the limit is a valid local.
        let returned = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) };
        returned == 0
    });
    let child = command.spawn().expect("starts");
    let seen = rig.converse(child, b"");
    assert!(
        seen.answer.starts_with(b"4\n"),
        "{:?}",
        String::from_utf8_lossy(&seen.answer)
    );
    assert_eq!(seen.passed.to_agent, seen.answer);
}

#[test]
fn a_server_closes_and_the_agent_notices() {
    let Some(rig) = rig() else { return };
    // The server ends with its input open: the agent reads the end, and its writes fail.
    let mut child = Command::new("sh")
        .args(["-c", "echo bye"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let relay = Relay::start(rig.ends(child.id()));
    let mut answer = Vec::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_end(&mut answer)
        .expect("read");
    assert_eq!(answer, b"bye\n");
    let mut stdin = child.stdin.take().expect("piped");
    assert!(ended(child).success());
    relay.join();
    // A process that another test is about to start may hold a copy for a moment.
    let deadline = std::time::Instant::now() + PATIENCE;
    let error = loop {
        if let Err(error) = stdin.write_all(b"late") {
            break error;
        }
        assert!(std::time::Instant::now() < deadline, "nobody reads");
    };
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn an_agent_closes_and_the_server_notices() {
    let Some(rig) = rig() else { return };
    let mut child = Command::new("sh")
        .args(["-c", "while echo line; do :; done"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let relay = Relay::start(rig.ends(child.id()));
    drop(child.stdout.take());
    let stdin = child.stdin.take();
    let status = ended(child);
    // As without a relay: by the signal, or by the shell's own error.
    assert!(
        status.signal() == Some(libc::SIGPIPE) || status.code().is_some_and(|code| code != 0),
        "{status:?}"
    );
    drop(stdin);
    relay.join();
}

/// A node program as the agent: it starts a server when it reads a line, and prints what the server answered.
fn node_agent(server: &str) -> Child {
    let host = format!(
        "const {{spawn}} = require('child_process');
process.stdin.once('data', () => {{
  const server = spawn({server}, {{stdio: ['pipe', 'pipe', 'inherit']}});
  server.stdout.once('data', answer => {{ process.stdout.write(server.pid + ' ' + answer); server.stdin.end(); }});
  server.on('exit', () => process.exit(0));
  server.stdin.write('hello\\n');
}});"
    );
    Command::new("node")
        .arg0(AGENT)
        .args(["-e", &host])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts")
}

#[test]
fn node_as_the_agent_with_a_chain_of_launchers() {
    let Some(rig) = rig() else { return };
    if !is_installed("node") {
        return;
    }
    for server in [
        "'cat', []",
        "'sh', ['-c', 'cat']",
        "'node', ['-e', \"require('child_process').spawn('sh', ['-c', 'cat; :'], {stdio: 'inherit'})\"]",
    ] {
        let mut agent = node_agent(server);
        agent
            .stdin
            .as_mut()
            .expect("piped")
            .write_all(b"go\n")
            .expect("written");
        let pid = child_of(agent.id());
        let ends = rig.ends(pid);
        assert_eq!(ends.stdin, Kind::Socket, "node's pipes are sockets");
        let relay = Relay::start(ends);
        let (answer, status) = exchange(agent, b"");
        assert!(status.success());
        assert_eq!(
            String::from_utf8_lossy(&answer),
            format!("{pid} hello\n"),
            "{server}"
        );
        let passed = relay.join();
        assert_eq!(passed.to_server, b"hello\n");
        assert_eq!(passed.to_agent, b"hello\n");
    }
}

/// The one child that a process has, or will have.
fn child_of(pid: u32) -> u32 {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let children = kams_host::procs::children(pid);
        if let [child] = children[..] {
            return child;
        }
        assert!(std::time::Instant::now() < deadline, "children: {children:?}");
        std::thread::yield_now();
    }
}
