//! The server as a child: its streams, signals for it, its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitStatus, Stdio};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use super::{Own, WrapError};

/// Signals that agents send to a server, and go on to it.
const FORWARDED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

pub(super) struct Child {
    process: std::process::Child,
    pub(super) to_server: Option<OwnedFd>,
    pub(super) from_server: Option<OwnedFd>,
}

/// Takes standard input and output, so that nobody else in this process reads or writes them.
pub(super) fn take_own() -> io::Result<Own> {
    let (input, output) = (io::stdin(), io::stdout());
    let stat = |fd: std::os::fd::BorrowedFd<'_>| fstat(fd);
    let (a, b, c) = (
        stat(input.as_fd())?,
        stat(output.as_fd())?,
        stat(io::stderr().as_fd())?,
    );
    let same = |a: &rustix::fs::Stat, b: &rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    let kind = FileType::from_raw_mode(b.st_mode);
    let is_socket = FileType::from_raw_mode(a.st_mode) == FileType::Socket;
    let own = Own {
        from_agent: input.as_fd().try_clone_to_owned()?,
        to_agent: output.as_fd().try_clone_to_owned()?,
        is_socket,
        one: is_socket && same(&a, &b),
        errors_too: matches!(kind, FileType::Fifo | FileType::Socket) && same(&b, &c),
    };
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    if own.errors_too {
        rustix::stdio::dup2_stderr(&null)?;
    }
    Ok(own)
}

/// What the server reads and writes, and what we do.
struct Streams {
    server: (OwnedFd, OwnedFd),
    ours: (OwnedFd, OwnedFd),
}

fn streams(own: &Own) -> io::Result<Streams> {
    let socket = || UnixStream::pair().map(|(a, b)| (OwnedFd::from(a), OwnedFd::from(b)));
    let pipe = || io::pipe().map(|(a, b)| (OwnedFd::from(a), OwnedFd::from(b)));
    if own.one {
        let (server, ours) = socket()?;
        return Ok(Streams {
            server: (server.try_clone()?, server),
            ours: (ours.try_clone()?, ours),
        });
    }
    let ((server_in, to_server), (from_server, server_out)) = if own.is_socket {
        (socket()?, socket()?)
    } else {
        (pipe()?, pipe()?)
    };
    Ok(Streams {
        server: (server_in, server_out),
        ours: (to_server, from_server),
    })
}

impl Child {
    pub(super) fn start(command: &[OsString], own: &Own) -> Result<Self, WrapError> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
        let Streams { server, ours } = streams(own)?;
        // What goes to both must not go past the relay.
        let errors = if own.errors_too {
            Stdio::from(server.1.try_clone()?)
        } else {
            Stdio::inherit()
        };
        let process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(server.0))
            .stdout(Stdio::from(server.1))
            .stderr(errors)
            .spawn()
            .map_err(|source| WrapError::Start {
                program: program.to_string_lossy().into_owned(),
                source,
            })?;
        let (to_server, from_server) = ours;
        Ok(Self {
            process,
            to_server: Some(to_server),
            from_server: Some(from_server),
        })
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).unwrap_or(0))
    }

    /// Hands signals on until the server has ended.
    pub(super) fn wait(mut self, signals: &SigSet) -> Result<ExitStatus, WrapError> {
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            match signals.wait() {
                Ok(Signal::SIGCHLD) | Err(Errno::EINTR) => {}
                Ok(signal) => kill(self.pid(), signal),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Blocks the signals that are to be read, in this thread and those that it starts.
pub(super) fn signals() -> nix::Result<SigSet> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    for signal in FORWARDED {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(set)
}

/// Sends a signal; to a process that has ended it says nothing.
pub(super) fn kill(pid: Pid, signal: Signal) {
    if pid.as_raw() > 0
        && let Err(error) = nix::sys::signal::kill(pid, signal)
    {
        tracing::debug!(%error, "the server has ended already");
    }
}
