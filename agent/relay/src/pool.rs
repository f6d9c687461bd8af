//! Relays ready before they are needed.
//!
//! A process of its own, `kams-relay pool`, keeps a few idle workers. It never holds a server's ends longer than it
//! takes to hand them on, and its workers are started by exec, so none inherits what another serves: the end of a
//! stream arrives. Workers serve on when the pool or the daemon ends; idle ones end with the pool.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::fail::FailMode;
use crate::relay::Ends;
use crate::wire::{self, Meta, PACKET};

/// Idle workers that are kept.
const READY: usize = 3;
/// How long the daemon waits for the pool's answer. A worker is ready, so it takes microseconds.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often ended workers are looked for.
const REAP: Duration = Duration::from_secs(1);

/// What a worker is told when it begins.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Start {
    /// Whom it serves.
    pub meta: Meta,
    /// Holds until the engine says otherwise.
    pub fail: FailMode,
    /// Where it finds the engine.
    pub engine: PathBuf,
    /// The descriptions of its ends are nobody else's.
    pub sole: bool,
}

/// A relay that serves.
#[derive(Debug)]
pub struct RelayHandle {
    /// Its process.
    pub pid: u32,
    /// Readable once it has ended.
    pub pidfd: OwnedFd,
}

/// Why no relay could be started. The ends are closed then: the server's connection is over.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The pool is gone or does not answer.
    #[error("the pool of relays does not answer: {0}")]
    Gone(io::Error),
    /// It had no worker.
    #[error("the pool of relays has none that is ready")]
    Empty,
}

/// The daemon's handle of the pool.
#[derive(Debug)]
pub struct RelayPool {
    socket: OwnedFd,
    engine: PathBuf,
    process: Child,
}

impl RelayPool {
    /// Starts `program pool`; workers will find the engine at `engine`. `prepare` may change the command, such as by
    /// the group of processes or the slice that it belongs to.
    pub fn spawn(program: &Path, engine: &Path, prepare: impl FnOnce(&mut Command)) -> io::Result<Self> {
        let (near, far) = pair()?;
        let mut command = Command::new(program);
        command.arg("pool").stdin(Stdio::from(far)).stdout(Stdio::null());
        prepare(&mut command);
        Ok(Self {
            socket: near,
            engine: engine.to_owned(),
            process: command.spawn()?,
        })
    }

    /// Whether its process lives.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Puts a relay between the ends. It serves when this returns.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the ends are the relay's from here on, and closed here"
    )]
    pub fn start(&self, ends: Ends, meta: Meta, fail: FailMode) -> Result<RelayHandle, PoolError> {
        let start = Start {
            meta,
            fail,
            engine: self.engine.clone(),
            sole: ends.sole,
        };
        let text = serde_json::to_vec(&start).map_err(|error| PoolError::Gone(error.into()))?;
        let fds = [
            ends.from_agent.as_fd(),
            ends.to_agent.as_fd(),
            ends.to_server.as_fd(),
            ends.from_server.as_fd(),
        ];
        wire::send_with(self.socket.as_fd(), &text, &fds).map_err(PoolError::Gone)?;
        wait(&[self.socket.as_fd()], Some(PATIENCE)).map_err(PoolError::Gone)?;
        let mut buffer = vec![0; 64];
        let (length, mut fds) = wire::receive(self.socket.as_fd(), &mut buffer)
            .map_err(PoolError::Gone)?
            .ok_or_else(|| PoolError::Gone(io::ErrorKind::UnexpectedEof.into()))?;
        let pid = buffer.get(..length).and_then(|bytes| bytes.try_into().ok());
        match (pid.map(u32::from_le_bytes), fds.pop()) {
            (Some(pid), Some(pidfd)) => Ok(RelayHandle { pid, pidfd }),
            _ => Err(PoolError::Empty),
        }
    }
}

impl Drop for RelayPool {
    /// Ends the pool's own process; relays serve on.
    fn drop(&mut self) {
        if self.process.kill().is_ok() {
            drop(self.process.wait());
        }
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    Ok(socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

/// Waits until one is readable; which are.
fn wait(fds: &[std::os::fd::BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut fds: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(error) => Err(error.into()),
    }
}

struct Worker {
    process: Child,
    socket: OwnedFd,
}

/// The pool's own process: `socket` leads to the daemon. Returns when the daemon is gone.
pub fn serve(socket: &OwnedFd, program: &Path) -> io::Result<()> {
    let mut ready = VecDeque::new();
    let mut serving: Vec<Child> = Vec::new();
    let mut buffer = vec![0; PACKET];
    loop {
        while ready.len() < READY {
            ready.push_back(worker(program)?);
        }
        let readable = wait(&[socket.as_fd()], Some(REAP))?;
        serving.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
        ready.retain_mut(|worker: &mut Worker| !matches!(worker.process.try_wait(), Ok(Some(_)) | Err(_)));
        if readable.first() != Some(&true) {
            continue;
        }
        let (length, fds) = match wire::receive(socket.as_fd(), &mut buffer) {
            Ok(Some(received)) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Ok(None) | Err(_) => return Ok(()),
        };
        let handed = ready
            .pop_front()
            .and_then(|worker| hand(worker, buffer.get(..length)?, &fds));
        drop(fds);
        match handed {
            Some((process, pidfd)) => {
                let pid = process.id().to_le_bytes();
                serving.push(process);
                wire::send_with(socket.as_fd(), &pid, &[pidfd.as_fd()])?;
            }
            None => wire::send(socket.as_fd(), b"?", &[])?,
        }
    }
}

fn worker(program: &Path) -> io::Result<Worker> {
    let (near, far) = pair()?;
    let process = Command::new(program)
        .arg("worker")
        .stdin(Stdio::from(far))
        .stdout(Stdio::null())
        .spawn()?;
    Ok(Worker {
        process,
        socket: near,
    })
}

fn hand(worker: Worker, start: &[u8], fds: &[OwnedFd]) -> Option<(Child, OwnedFd)> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let pid = Pid::from_raw(i32::try_from(worker.process.id()).ok()?)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    wire::send_with(worker.socket.as_fd(), start, &fds).ok()?;
    Some((worker.process, pidfd))
}

/// A worker's wait for its task: none when the pool is gone.
pub fn await_start(socket: &OwnedFd) -> io::Result<Option<(Start, Ends)>> {
    wait(&[socket.as_fd()], None)?;
    let mut buffer = vec![0; PACKET];
    let Some((length, fds)) = wire::receive(socket.as_fd(), &mut buffer)? else {
        return Ok(None);
    };
    let start: Start = serde_json::from_slice(buffer.get(..length).unwrap_or_default())?;
    let [from_agent, to_agent, to_server, from_server] = <[OwnedFd; 4]>::try_from(fds)
        .map_err(|fds| io::Error::other(format!("{} ends instead of four", fds.len())))?;
    let ends = Ends {
        from_agent,
        to_agent,
        to_server,
        from_server,
        sole: start.sole,
    };
    Ok(Some((start, ends)))
}
