//! `kams wrap -- COMMAND`: an MCP server behind a relay, for people without root.
//!
//! It stands in an agent's configuration in the place of the server's command. The streams are like for like (pipe
//! for pipe, socket for socket), signals go on to the server, and its exit status is kept. Verdicts come from the
//! daemon where one listens, else from an engine in this process ([`embedded`]).

mod child;
mod embedded;
mod paths;
mod tell;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use kams_host::clock;
use kams_policy::Policy;
use kams_relay::relay::{Ended, LIMIT};
use kams_relay::wire::Meta;
use kams_relay::{Connector, Ends, FailMode, Relay, Settings};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use child::Child;
use embedded::Embedded;

/// What is to be wrapped, and how.
#[derive(Debug)]
pub struct Wrap {
    /// The server's command and its arguments.
    pub command: Vec<OsString>,
    /// Judge by this policy, in this process.
    pub policy: Option<Arc<Policy>>,
    /// Where relays find the daemon.
    pub socket: PathBuf,
    /// Append events and findings to this file, as JSON lines.
    pub record: Option<PathBuf>,
    /// End the restrictions that earlier sessions of the server left.
    pub lift: bool,
}

/// Why a server could not be wrapped.
#[derive(Debug, thiserror::Error)]
pub enum WrapError {
    /// The server did not start.
    #[error("{program}: {source}")]
    Start {
        /// What was to be started.
        program: String,
        /// Why it was not.
        source: io::Error,
    },
    /// Something between it and us.
    #[error("cannot relay: {0}")]
    Relay(#[from] io::Error),
    /// The file for records.
    #[error("{}: {source}", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why it cannot be written.
        source: io::Error,
    },
    /// A call to the kernel.
    #[error("cannot follow the server: {0}")]
    System(#[from] nix::Error),
}

impl Wrap {
    /// Runs the server until it ends.
    pub fn run(self) -> Result<ExitStatus, WrapError> {
        let own = child::take_own()?;
        let mut child = Child::start(&self.command, &own)?;
        // From here on signals are read, not suffered; the server has those it was born with.
        let signals = child::signals()?;
        let meta = meta(&self.command, child.pid(), own.is_socket);
        let (ended, exit) = io::pipe()?;
        let (connector, fail, engine) = self.engine(&meta)?;
        let settings = Settings {
            meta,
            fail,
            limit: LIMIT,
            server_ended: Some(ended.into()),
        };
        let ends = Ends {
            from_agent: own.from_agent,
            to_agent: own.to_agent,
            to_server: child.to_server.take().ok_or_else(gone)?,
            from_server: child.from_server.take().ok_or_else(gone)?,
            sole: false,
        };
        let mut relay = Relay::new(ends, settings, connector)?;
        let pid = child.pid();
        let relay = std::thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || {
                let ended = relay.run();
                if !matches!(ended, Ok(Ended::Closed)) {
                    // Ordered by the engine, or unable to go on: the server does not run on without us, and dies before
                    // it sees that its streams have ended.
                    child::kill(pid, Signal::SIGKILL);
                }
            })?;
        let status = child.wait(&signals)?;
        drop(exit);
        if relay.join().is_err() {
            tracing::error!("the relay ended badly");
        }
        if let Some(engine) = engine {
            engine.finish();
        }
        Ok(status)
    }

    fn engine(&self, meta: &Meta) -> Result<(Connector, FailMode, Option<Embedded>), WrapError> {
        if self.policy.is_none() && kams_relay::reaches(&self.socket) {
            return Ok((Connector::Path(self.socket.clone()), FailMode::Open, None));
        }
        let policy = self
            .policy
            .clone()
            .unwrap_or_else(|| Arc::new(Policy::default_policy()));
        let record = match &self.record {
            None => None,
            Some(path) => Some(tell::record_file(path).map_err(|source| WrapError::Record {
                path: path.clone(),
                source,
            })?),
        };
        let (socket, engine) = Embedded::start(policy, meta, record, self.lift)?;
        let fail = engine.fail();
        Ok((Connector::Given(socket, None), fail, Some(engine)))
    }
}

/// Ends this process as the server ended.
pub fn end_like(status: ExitStatus) -> std::process::ExitCode {
    if let Some(signal) = status.signal().and_then(|number| Signal::try_from(number).ok())
        && SigSet::all().thread_unblock().is_ok()
        && nix::sys::signal::raise(signal).is_ok()
    {
        tracing::debug!(%signal, "the signal that ended the server does not end us");
    }
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    std::process::ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn gone() -> io::Error {
    io::Error::other("an end of the server was taken twice")
}

fn meta(command: &[OsString], pid: Pid, socket: bool) -> Meta {
    let parent = nix::unistd::getppid();
    let server_pid = u32::try_from(pid.as_raw()).unwrap_or(0);
    let agent_pid = u32::try_from(parent.as_raw()).unwrap_or(0);
    let uid = nix::unistd::Uid::effective();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    let start = |pid| kams_host::procs::stat(pid).map_or(0, |stat| stat.start_ticks * clock::NS_PER_TICK);
    Meta {
        relay: format!("wrap-{server_pid}-{:x}", start(server_pid)),
        server_start: 0,
        candidate: false,
        uid: uid.as_raw(),
        user: user
            .as_ref()
            .map_or_else(|| uid.to_string(), |user| user.name.clone()),
        agent: paths::agent(agent_pid),
        agent_pid,
        agent_start: start(agent_pid),
        server: paths::server(command),
        server_pid,
        socket,
        server_id: 0,
    }
}

/// Two ends of our own streams.
#[derive(Debug)]
struct Own {
    from_agent: OwnedFd,
    to_agent: OwnedFd,
    is_socket: bool,
    /// Both are one socket.
    one: bool,
    /// Standard error is the same file as standard output.
    errors_too: bool,
}
