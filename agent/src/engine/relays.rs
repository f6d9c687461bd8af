//! Relays for injected servers, from the pool of `kams-relay`.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use kams_host::inject::{self, Kind};
use kams_policy::Fail;
use kams_relay::fail::FailMode;
use kams_relay::pool::RelayPool;
use kams_relay::relay;
use kams_relay::wire::Meta;

use super::enforce::{RelaySink, RelayedServer};

/// The program, beside `kamsd`.
const PROGRAM: &str = "kams-relay";

/// The pool, started again when it has ended.
#[derive(Debug)]
pub struct Pool {
    program: PathBuf,
    /// Where relays find the daemon.
    engine: PathBuf,
    running: Option<RelayPool>,
    /// Relays so far: each has a name of its own.
    count: u64,
}

impl Pool {
    /// A pool whose relays find the daemon at `engine`.
    ///
    /// # Errors
    /// Where there is no `kams-relay` beside this program, or it cannot be started.
    pub fn start(engine: &Path) -> io::Result<Self> {
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        let mut this = Self {
            program,
            engine: engine.to_owned(),
            running: None,
            count: 0,
        };
        match this.ready().map(drop) {
            Ok(()) => Ok(this),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("{}: {error}", this.program.display()),
            )),
        }
    }

    fn ready(&mut self) -> io::Result<&RelayPool> {
        if self.running.as_mut().is_some_and(|pool| !pool.is_alive()) {
            tracing::error!("the pool of relays has ended; another is started");
            self.running = None;
        }
        if self.running.is_none() {
            // A group of its own: what ends the daemon's does not end relays.
            let apart = |command: &mut std::process::Command| {
                command.process_group(0);
            };
            self.running = Some(RelayPool::spawn(&self.program, &self.engine, apart)?);
        }
        self.running
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl RelaySink for Pool {
    fn is_ready(&mut self) -> bool {
        self.ready()
            .inspect_err(|error| tracing::error!(%error, "there is no pool of relays"))
            .is_ok()
    }

    fn relay(&mut self, ends: inject::Ends, server: RelayedServer) -> Result<(), String> {
        self.count += 1;
        let meta = Meta {
            relay: format!("{}.{}.{}", std::process::id(), ends.pid, self.count),
            uid: server.uid,
            user: server.user.to_string(),
            agent: server.agent.to_string(),
            agent_pid: server.agent_pid,
            agent_start: server.agent_start,
            server: server.identity.to_string(),
            server_pid: ends.pid,
            socket: ends.stdin == Kind::Socket,
            server_id: server.id,
        };
        let fail = match server.fail {
            Fail::Open => FailMode::Open,
            Fail::Closed => FailMode::Closed,
        };
        let ends = relay::Ends {
            from_agent: ends.from_agent,
            to_agent: ends.to_agent,
            to_server: ends.to_server,
            from_server: ends.from_server,
            sole: true,
        };
        let pool = self.ready().map_err(|error| error.to_string())?;
        let started = pool.start(ends, meta, fail).map_err(|error| error.to_string())?;
        tracing::debug!(relay = started.pid, server = %server.identity, "a relay serves");
        Ok(())
    }
}
