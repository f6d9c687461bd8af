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
/// How long the daemon waits for the pool to come up, which may take a service manager.
const START: Duration = Duration::from_secs(5);
/// First packet of a pool: it is ready; in the group of processes that was asked for, or not, for this reason.
const READY_THERE: u8 = b'+';
const READY_HERE: u8 = b'-';
/// How long the daemon waits for the pool's answer. A worker is ready, so it takes microseconds.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long nothing is asked for before idle workers are started anew: starting one takes the processor from the server
/// that just got another.
const CALM: Duration = Duration::from_millis(20);
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
    apart: Option<String>,
}

impl RelayPool {
    /// Starts a pool by this command, which is `kams-relay pool [CGROUP]` or leads to it, and waits until it is there.
    /// Workers will find the engine at `engine`.
    ///
    /// # Errors
    /// When the command cannot be started, ends, or does not come up in time.
    pub fn spawn(mut command: Command, engine: &Path) -> io::Result<Self> {
        let (near, far) = pair()?;
        command.stdin(Stdio::from(far)).stdout(Stdio::null());
        let process = command.spawn()?;
        // Its end of the pair must not live on here, or its death would not show.
        drop(command);
        let mut pool = Self {
            socket: near,
            engine: engine.to_owned(),
            process,
            apart: None,
        };
        match pool.came_up() {
            Ok(apart) => pool.apart = apart,
            Err(error) => {
                // It may be on its way still, and has no work yet.
                let _ended_already = pool.process.kill();
                let _status = pool.process.wait();
                return Err(error);
            }
        }
        Ok(pool)
    }

    fn came_up(&self) -> io::Result<Option<String>> {
        wait(&[self.socket.as_fd()], Some(START))?;
        let mut buffer = vec![0; 4_096];
        let received = match wire::receive(self.socket.as_fd(), &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            received => received,
        };
        let (length, _) = received?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match buffer.get(..length).unwrap_or_default() {
            [READY_THERE, ..] => Ok(None),
            [READY_HERE, why @ ..] => Ok(Some(String::from_utf8_lossy(why).into_owned())),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Why its relays are not in the group of processes that was asked for, if they are not.
    pub fn misplaced(&self) -> Option<&str> {
        self.apart.as_deref()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
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

/// The pool's own process: `socket` leads to the daemon, `group` is the folder of the control group that it and its
/// workers shall be in. Returns when the daemon is gone.
pub fn serve(socket: &OwnedFd, program: &Path, group: Option<&Path>) -> io::Result<()> {
    // Before the first worker: they inherit it.
    let moved = group.map_or(Ok(()), |group| std::fs::write(group.join("cgroup.procs"), "0"));
    let ready = match moved {
        Ok(()) => vec![READY_THERE],
        Err(error) => [&[READY_HERE], error.to_string().as_bytes()].concat(),
    };
    wire::send(socket.as_fd(), &ready, &[])?;
    let mut ready = VecDeque::new();
    let mut serving: Vec<Child> = Vec::new();
    let mut buffer = vec![0; PACKET];
    while ready.len() < READY {
        ready.push_back(worker(program)?);
    }
    let mut storm = false;
    loop {
        let calm = if ready.len() < READY && !storm { CALM } else { REAP };
        let readable = wait(&[socket.as_fd()], Some(calm))?;
        serving.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
        let before = ready.len();
        ready.retain_mut(|worker: &mut Worker| !matches!(worker.process.try_wait(), Ok(Some(_)) | Err(_)));
        // Those that end while they wait would end again at once: they are replaced, but not without a pause.
        storm = ready.len() < before;
        if readable.first() != Some(&true) {
            if ready.len() < READY {
                ready.push_back(worker(program)?);
            }
            continue;
        }
        let (length, fds) = match wire::receive(socket.as_fd(), &mut buffer) {
            Ok(Some(received)) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Ok(None) | Err(_) => return Ok(()),
        };
        let start = buffer.get(..length).unwrap_or_default();
        // One that ended since has no use for the ends, which are still here for the next.
        let mut handed = None;
        while handed.is_none()
            && let Some(worker) = ready.pop_front()
        {
            handed = hand(worker, start, &fds);
        }
        if handed.is_none() {
            handed = hand(worker(program)?, start, &fds);
        }
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
