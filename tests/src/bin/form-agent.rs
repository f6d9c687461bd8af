//! An agent that talks to one MCP server in a form of the table.
//!
//! `form-agent CASE SERVER [ARGS...]`: opens the session plainly, makes three calls in the form of the case and two
//! plain ones, closes, and ends with 0 when every call was answered.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use kams_tests::forms::{Body, Case, Receive, Send, Wire, messages, receive, send, start_like_an_agent};
use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::pipe2;

/// Calls in the form of the case.
const CALLS: usize = 3;

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let name = args.next().context("first argument: the case")?;
    let case = name
        .to_str()
        .and_then(Case::named)
        .with_context(|| format!("no case {}", name.display()))?;
    let server = args.next().context("second argument: the server")?;
    start_like_an_agent();
    let mut command = Command::new(server);
    command.args(args);
    let (write_end, read_end, mut child) = start(case.wire, &mut command)?;

    let plain = |message: Vec<u8>| send::all(Send::Write, &write_end, &[message]);
    let answer = |lines| receive::lines(Receive::Read(64 << 10), &read_end, lines);
    plain(messages::initialize(case))?;
    answer(1).context("answer to initialize")?;
    plain(messages::initialized())?;

    let calls: Vec<_> = (1..=CALLS).map(|n| messages::call(case, n)).collect();
    let in_one_go = matches!(
        case.send,
        Send::Together | Send::Astride | Send::TwoThreads | Send::TwoProcesses
    );
    let step = if in_one_go { CALLS } else { 1 };
    for group in calls.chunks(step) {
        send::all(case.send, &write_end, group).context("send")?;
        let answers = receive::lines(case.receive, &read_end, step).context("receive")?;
        let asked: usize = group.iter().map(Vec::len).sum();
        ensure!(
            case.body == Body::Batch || answers.len() > asked / 2,
            "the echo is short"
        );
    }
    // After a loss a reader may need the end of one line to find its place again.
    for id in ["next", "last"] {
        plain(messages::plain(case, id))?;
        answer(1).with_context(|| format!("answer to the {id} call"))?;
    }
    drop((write_end, read_end));
    let status = child.wait()?;
    ensure!(status.success(), "the server ended with {status}");
    Ok(())
}

/// Starts the server; our writing end, our reading end, and the child.
fn start(wire: Wire, command: &mut Command) -> Result<(OwnedFd, OwnedFd, Child)> {
    let pair = || {
        socketpair(
            AddressFamily::Unix,
            SockType::Stream,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .context("socketpair")
    };
    let (write_end, stdin, read_end, stdout) = match wire {
        Wire::Pipes => {
            let (stdin, write_end) = pipe2(OFlag::O_CLOEXEC)?;
            let (read_end, stdout) = pipe2(OFlag::O_CLOEXEC)?;
            (write_end, stdin, read_end, stdout)
        }
        Wire::Sockets => {
            let ((write_end, stdin), (read_end, stdout)) = (pair()?, pair()?);
            (write_end, stdin, read_end, stdout)
        }
        Wire::OneSocket => {
            let (ours, theirs) = pair()?;
            (ours.try_clone()?, theirs.try_clone()?, ours, theirs)
        }
    };
    let child = command
        .stdin(stdin)
        .stdout(stdout)
        .spawn()
        .context("start the server")?;
    // The parent's copies of the server's ends live in the command; they must go, or EOF never comes.
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null());
    Ok((write_end, read_end, child))
}
