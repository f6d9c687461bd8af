//! The daemon's parent: small, so that it outlives what the worker dies of.
//!
//! The worker holds processes for fractions of a millisecond. If it dies then, the parent lets them go at once, from
//! the pinned map that names them, and starts another worker. Both can die together; then the service manager runs
//! `kamsd --heal`, before the next start and after the end. Nobody heals before he knows that he is alone ([`crate::alone`]).
//!
//! Servers that are cut off the network stay so while one worker follows another; when nobody is to follow, they are let
//! go.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::alone::{self, Alone, AloneError};
use crate::config::Config;

/// The hidden argument that makes a process the worker.
pub const WORKER: &str = "--worker";
/// Sent by the worker once it watches.
const READY: u8 = b'R';
/// First pause before another worker is started; doubled with each that does not live.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A worker that lived this long died of something new.
const LIVED: Duration = Duration::from_mins(1);
/// How long a worker may take to end when told to.
const PATIENCE: Duration = Duration::from_secs(15);

/// Name of the folder of the map of held processes: one per state folder, because two daemons must not heal each other's.
pub fn pin_name(config: &Config) -> String {
    let installed = Config::default().state_dir;
    if config.state_dir == installed {
        return "kams".to_owned();
    }
    let digest = Sha256::digest(config.state_dir.as_os_str().as_encoded_bytes());
    format!("kams-{}", hex::encode(digest.get(..8).unwrap_or_default()))
}

/// The worker's end of the line to its parent.
#[derive(Debug)]
pub struct Parent(tokio::net::UnixStream);

impl Parent {
    /// Takes the line, which is standard input; in the worker only, inside a runtime.
    pub fn take() -> Result<Self> {
        let own = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned()?;
        let line = UnixStream::from(own);
        line.local_addr()
            .context("`--worker` is for kamsd itself to use: start kamsd without it")?;
        line.set_nonblocking(true)?;
        Ok(Self(tokio::net::UnixStream::from_std(line)?))
    }

    /// Says that the worker watches.
    pub async fn ready(&mut self) {
        // A parent that has gone is noticed by `gone`.
        drop(self.0.write_all(&[READY]).await);
    }

    /// Ends when the parent has.
    pub async fn gone(&mut self) {
        let mut nothing = [0; 16];
        while self.0.read(&mut nothing).await.is_ok_and(|read| read > 0) {}
    }
}

/// Runs workers until told to stop, or until the first one cannot start. Refuses where another daemon has the state
/// folder.
pub fn watch(config: &Config) -> ExitCode {
    // Held until this process ends. Before it is, nothing that is pinned may be touched.
    let _alone = match alone(config) {
        Ok(alone) => alone,
        Err(error) => {
            complain(&format!("kamsd: {error}"));
            return ExitCode::from(2);
        }
    };
    let name = &pin_name(config);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("kamsd: cannot start the runtime: {error}"));
            return ExitCode::from(2);
        }
    };
    match runtime.block_on(run(name)) {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("kamsd: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn alone(config: &Config) -> Result<Alone, AloneError> {
    let alone = Alone::take(&config.state_dir, alone::PATIENCE)?;
    alone.share()?;
    Ok(alone)
}

/// Lets go what a daemon that has died has left: held processes, and, without `keep_blocks`, servers that are cut off the
/// network, unless a service manager says that another daemon follows. Of a daemon that lives nothing is let go.
pub fn heal_after(config: &Config, keep_blocks: bool) {
    let alone = match Alone::take(&config.state_dir, alone::PATIENCE) {
        Ok(alone) => Some(alone),
        // Then it cannot be known, and nobody can have started.
        Err(AloneError::Io { .. }) => None,
        // Whatever ended, it was not the daemon that has the folder: that one has a parent to see to it.
        Err(error @ AloneError::Taken { stays, .. }) if stays || !has_ended() => {
            complain(&format!(
                "kamsd runs, and lets go by itself what it holds: {error}"
            ));
            return;
        }
        // A worker that outlives its parent is stuck, and lets nothing go.
        Err(error @ AloneError::Taken { .. }) => {
            complain(&format!("kamsd: a worker stays behind: {error}"));
            None
        }
    };
    let name = pin_name(config);
    heal(&name);
    if !keep_blocks && !is_to_follow() {
        heal_network(&name);
    }
    if alone.is_some() {
        unpin(&name);
    }
}

/// Lets go whatever the map of that name holds.
fn heal(name: &str) {
    let healed = kams_host::hold::heal(&kams_host::hold::folder(name));
    if healed > 0 {
        complain(&format!(
            "kamsd: {healed} held processes run again, without a relay"
        ));
    }
}

/// Ends every block of the network that a daemon of that name has left.
fn heal_network(name: &str) {
    if kams_host::netblock::heal(&kams_host::hold::folder(name)) {
        complain("kamsd: servers that were cut off may use the network again");
    }
}

/// Nothing is held and no worker follows: what names held processes goes.
fn unpin(name: &str) {
    let folder = kams_host::hold::folder(name);
    if let Err(error) = kams_host::hold::unpin(&folder) {
        complain(&format!("kamsd: {} stays behind: {error}", folder.display()));
    }
}

/// Whether a service manager that has just seen kamsd end will start it again: it says how kamsd ended.
fn is_to_follow() -> bool {
    std::env::var_os("SERVICE_RESULT").is_some_and(|result| result != "success")
}

/// Whether a service manager says that kamsd has ended.
fn has_ended() -> bool {
    std::env::var_os("SERVICE_RESULT").is_some()
}

/// How a worker ended.
struct Ended {
    status: ExitStatus,
    was_ready: bool,
    told_to: bool,
}

async fn run(name: &str) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let mut pause = PAUSE_MIN;
    let mut first = true;
    loop {
        let started = Instant::now();
        let ended = one(&mut signals).await?;
        heal(name);
        if ended.told_to {
            heal_network(name);
        }
        if ended.told_to || (first && !ended.was_ready) {
            unpin(name);
            return Ok(code(ended.status));
        }
        first = false;
        if started.elapsed() >= LIVED {
            pause = PAUSE_MIN;
        }
        complain(&format!(
            "kamsd: the worker ended ({}); another one starts in {} ms",
            ended.status,
            pause.as_millis()
        ));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = signals.stop() => {
                heal_network(name);
                unpin(name);
                return Ok(ExitCode::SUCCESS);
            }
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn code(status: ExitStatus) -> ExitCode {
    match status.code() {
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(2)),
        None => ExitCode::from(2),
    }
}

/// Starts one worker and waits for its end.
async fn one(signals: &mut Signals) -> Result<Ended> {
    let (ours, theirs) = UnixStream::pair().context("cannot make a pair of sockets")?;
    ours.set_nonblocking(true)?;
    let mut line = tokio::net::UnixStream::from_std(ours)?;
    let mut child = start(theirs).context("cannot start the worker")?;
    let mut ended = Ended {
        status: ExitStatus::default(),
        was_ready: false,
        told_to: false,
    };
    let mut byte = [0];
    let mut open = true;
    let patience = tokio::time::sleep(Duration::MAX);
    tokio::pin!(patience);
    loop {
        tokio::select! {
            status = child.wait() => {
                ended.status = status.context("cannot wait for the worker")?;
                return Ok(ended);
            }
            read = line.read(&mut byte), if open => match read {
                Ok(1..) => ended.was_ready |= byte == [READY],
                _ => open = false,
            },
            told = signals.next() => match told {
                Told::Stop => {
                    ended.told_to = true;
                    // Not by the worker: for a service manager that would be the end of the whole, and it kills what goes
                    // on after that. Without one there is nobody to tell.
                    drop(sd_notify::notify(&[sd_notify::NotifyState::Stopping]));
                    send(&child, Signal::SIGTERM);
                    patience.as_mut().reset(tokio::time::Instant::now() + PATIENCE);
                }
                Told::Reload => send(&child, Signal::SIGHUP),
            },
            () = patience.as_mut() => {
                complain("kamsd: the worker does not end; it is killed");
                child.start_kill().context("cannot kill the worker")?;
                patience.as_mut().reset(tokio::time::Instant::now() + PATIENCE);
            }
        }
    }
}

fn start(line: UnixStream) -> io::Result<Child> {
    // The program that runs, also where a newer one has been put in its place since.
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .arg0(std::env::args_os().next().unwrap_or_else(|| "kamsd".into()))
        .arg(WORKER)
        .args(std::env::args_os().skip(1))
        .stdin(Stdio::from(OwnedFd::from(line)));
    Command::from(command).spawn()
}

fn send(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        // A worker that has just ended takes no signal; its end is noticed.
        let _ended = kill(Pid::from_raw(pid), signal);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Stop,
    Reload,
}

struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.terminate.recv() => Told::Stop,
            _ = self.hangup.recv() => Told::Reload,
        }
    }

    /// Ends when told to stop; there is nobody to tell to reload.
    async fn stop(&mut self) {
        while self.next().await != Told::Stop {}
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the worker has the log; this is for the journal and the person"
)]
fn complain(text: &str) {
    eprintln!("{text}");
}
