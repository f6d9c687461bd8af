//! The process that is blocked: it does what it is told, line by line, over the socket that is its standard input.
//!
//! Answers are `ok`, `ok TEXT`, or the number of an error of the operating system.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use kams_host::netblock::{Blocks, Process};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn, SockaddrIn6, connect, sendto, socket,
};

use crate::rig::Actor;

/// What an actor keeps.
#[derive(Default)]
struct Kept {
    socket: Option<OwnedFd>,
    children: Vec<Actor>,
    blocks: Option<Blocks>,
}

/// Set for the program that a test starts.
pub(crate) const ACTOR: &str = "KAMS_TEST_ACTOR";
/// Where an orphan reports.
const PATH: &str = "KAMS_TEST_PATH";

/// The program that the other tests start; says nothing of its own.
#[test]
fn actor() {
    if std::env::var_os(ACTOR).is_none() {
        return;
    }
    let own = io::stdin().as_fd().try_clone_to_owned().expect("standard input");
    let mut answers = UnixStream::from(own);
    let questions = BufReader::new(answers.try_clone().expect("a copy"));
    let mut kept = Kept::default();
    for line in questions.lines() {
        let Ok(line) = line else { return };
        let answer = match act(&line, &mut kept) {
            Ok(text) if text.is_empty() => "ok".to_owned(),
            Ok(text) => format!("ok {text}"),
            Err(error) => error
                .raw_os_error()
                .map_or_else(|| error.to_string(), |number| number.to_string()),
        };
        if answers.write_all(format!("{answer}\n").as_bytes()).is_err() {
            return;
        }
    }
}

fn act(line: &str, kept: &mut Kept) -> io::Result<String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let words: Vec<&str> = rest.split(' ').collect();
    let number = |at: usize| -> io::Result<i32> {
        let word = words.get(at).copied().unwrap_or_default();
        word.parse().map_err(io::Error::other)
    };
    let port = || {
        words
            .first()
            .and_then(|word| word.parse::<u16>().ok())
            .unwrap_or_default()
    };
    let v4 = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let held = || {
        kept.socket
            .as_ref()
            .ok_or_else(|| io::Error::other("nothing kept"))
    };
    match verb {
        "pid" => Ok(std::process::id().to_string()),
        // A connection from scratch, kept.
        "tcp4" => {
            kept.socket = Some(TcpStream::connect(v4(port()))?.into());
            Ok(String::new())
        }
        "tcp6" => {
            kept.socket = Some(TcpStream::connect((Ipv6Addr::LOCALHOST, port()))?.into());
            Ok(String::new())
        }
        "socket" => raw_socket(number(0)?, number(1)?, number(2)?).map(|_closed| String::new()),
        // Sockets that are kept and do nothing yet.
        "keep-tcp4" => keep(kept, AddressFamily::Inet, SockType::Stream),
        "keep-tcp6" => keep(kept, AddressFamily::Inet6, SockType::Stream),
        "keep-udp4" => keep(kept, AddressFamily::Inet, SockType::Datagram),
        "keep-udp6" => keep(kept, AddressFamily::Inet6, SockType::Datagram),
        "keep-raw" => {
            kept.socket = Some(raw_socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)?);
            Ok(String::new())
        }
        "listen" => {
            let listener = std::net::TcpListener::bind(v4(0))?;
            let port = listener.local_addr()?.port();
            kept.socket = Some(listener.into());
            Ok(port.to_string())
        }
        // What is done with the kept one.
        "connect" => {
            let held = held()?;
            connect(held.as_raw_fd(), &SockaddrIn::from(v4(port())))?;
            Ok(String::new())
        }
        "connect6" => {
            let to = std::net::SocketAddrV6::new(Ipv6Addr::LOCALHOST, port(), 0, 0);
            connect(held()?.as_raw_fd(), &SockaddrIn6::from(to))?;
            Ok(String::new())
        }
        "uring" | "uring-worker" => {
            let mut ring = kams_tests_raw::Ring::new()?;
            ring.connect(held()?.as_fd(), v4(port()), verb == "uring-worker")?;
            Ok(String::new())
        }
        "fastopen" => {
            let flag = MsgFlags::from_bits_retain(libc::MSG_FASTOPEN);
            sendto(held()?.as_raw_fd(), b"x", &SockaddrIn::from(v4(port())), flag)?;
            Ok(String::new())
        }
        "send" => {
            sendto(
                held()?.as_raw_fd(),
                b"x",
                &SockaddrIn::from(v4(port())),
                MsgFlags::empty(),
            )?;
            Ok(String::new())
        }
        "send6" => {
            let to = std::net::SocketAddrV6::new(Ipv6Addr::LOCALHOST, port(), 0, 0);
            sendto(
                held()?.as_raw_fd(),
                b"x",
                &SockaddrIn6::from(to),
                MsgFlags::empty(),
            )?;
            Ok(String::new())
        }
        "write" => {
            let written = nix::unistd::write(held()?, b"x")?;
            Ok(written.to_string())
        }
        "read" => {
            let mut byte = [0];
            let read = nix::unistd::read(held()?, &mut byte)?;
            Ok(read.to_string())
        }
        "udp" => {
            let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            socket.send_to(b"x", v4(port()))?;
            Ok(String::new())
        }
        "resolve" => {
            let found = (words.first().copied().unwrap_or_default(), 80).to_socket_addrs()?;
            Ok(found.count().to_string())
        }
        "unix" => {
            let _pair = UnixStream::pair()?;
            let stream = UnixStream::connect(words.first().copied().unwrap_or_default())?;
            drop(stream);
            Ok(String::new())
        }
        // Connections until one succeeds or so many were refused.
        "hammer" => {
            for _ in 0..number(1)? {
                match TcpStream::connect(v4(port())) {
                    Ok(_) => return Ok("connected".to_owned()),
                    Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok("refused".to_owned())
        }
        // A process of its own does it.
        "child" => {
            let mut child = Actor::start();
            Ok(child.say(rest))
        }
        "start" => {
            let child = Actor::start();
            let pid = child.pid();
            kept.children.push(child);
            Ok(pid.to_string())
        }
        // A child that inherits the kept socket.
        "sharing-child" => {
            let held = held()?;
            let copy = nix::unistd::dup(held)?;
            let child = Actor::start();
            drop(copy);
            let pid = child.pid();
            kept.children.push(child);
            Ok(pid.to_string())
        }
        "tell" => {
            let child = kept
                .children
                .last_mut()
                .ok_or_else(|| io::Error::other("no child"))?;
            Ok(child.say(rest))
        }
        // A process that is nobody's child any more; its line is the socket at this path.
        "orphan" => orphan(words.first().copied().unwrap_or_default()),
        "block" => {
            let mut words = rest.split(' ');
            let mut next = || words.next().unwrap_or_default();
            let blocks = Blocks::new(Some(Path::new(next())));
            let root = Process {
                pid: next().parse().map_err(io::Error::other)?,
                start_ns: next().parse().map_err(io::Error::other)?,
            };
            let id = blocks.block(&[root]).map_err(io::Error::other)?;
            blocks.sweep(id);
            kept.blocks = Some(blocks);
            Ok(id.0.to_string())
        }
        other => Err(io::Error::other(format!("unknown: {other}"))),
    }
}

fn keep(kept: &mut Kept, family: AddressFamily, kind: SockType) -> io::Result<String> {
    kept.socket = Some(socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?);
    Ok(String::new())
}

fn raw_socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; a non-negative result is a new descriptor that nobody else owns.
    let fd: RawFd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Starts an actor through a shell that ends at once; waits until it has another parent.
fn orphan(path: &str) -> io::Result<String> {
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    let own = std::env::current_exe()?;
    // The shell's background child outlives it.
    let script = format!(
        "{} --exact actor::waits_at_a_path >/dev/null 2>&1 &",
        own.display()
    );
    let status = Command::new("sh")
        .args(["-c", &script])
        .env_remove(ACTOR)
        .env(PATH, path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(io::Error::other("the shell failed"));
    }
    let (stream, _) = listener.accept()?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    std::fs::remove_file(path)?;
    // Kept open for as long as this process lives: whoever asks talks over the second socket.
    std::mem::forget(stream);
    Ok(line.trim().to_owned())
}

/// The program that an orphan is; says nothing of its own.
#[test]
fn waits_at_a_path() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let mut first = UnixStream::connect(&path).expect("connected");
    let line = format!("{path}.line");
    let listener = std::os::unix::net::UnixListener::bind(&line).expect("bound");
    writeln!(first, "{}", std::process::id()).expect("told");
    let (mut answers, _) = listener.accept().expect("asked");
    let questions = BufReader::new(answers.try_clone().expect("a copy"));
    let mut kept = Kept::default();
    for line in questions.lines().map_while(Result::ok) {
        let answer = match act(&line, &mut kept) {
            Ok(text) => format!("ok {text}").trim().to_owned(),
            Err(error) => error.raw_os_error().unwrap_or(-1).to_string(),
        };
        writeln!(answers, "{answer}").expect("answered");
    }
}
