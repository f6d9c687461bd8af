//! Relays for injected servers, from the pool of `kams-relay`.

mod slice;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use kams_host::inject::{self, Kind};
use kams_policy::Fail;
use kams_relay::end::reopened;
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
    /// Tells relays of this start of the daemon from those of others: they outlive it.
    instance: String,
    running: Option<RelayPool>,
    /// Relays so far: each has a name of its own.
    count: u64,
}

impl Pool {
    /// A pool whose relays find the daemon at `engine` and name this `instance` of it. It is started when it is first asked whether it is ready.
    ///
    /// # Errors
    /// Where this program does not know its own place.
    pub fn new(engine: &Path, instance: &str) -> io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?.with_file_name(PROGRAM),
            engine: engine.to_owned(),
            instance: instance.to_owned(),
            running: None,
            count: 0,
        })
    }

    fn ready(&mut self) -> io::Result<&RelayPool> {
        if self.running.as_mut().is_some_and(|pool| !pool.is_alive()) {
            tracing::error!("the pool of relays has ended; another is started");
            self.running = None;
        }
        if self.running.is_none() {
            self.running = Some(slice::start(&self.program, &self.engine)?);
        }
        self.running
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl RelaySink for Pool {
    fn is_ready(&mut self) -> bool {
        let ready = self.ready().map(drop);
        if let Err(error) = &ready {
            tracing::error!(%error, program = %self.program.display(), "no relays, so nothing can be enforced");
        }
        ready.is_ok()
    }

    fn relay(&mut self, ends: inject::Ends, server: RelayedServer) -> Result<(), String> {
        self.count += 1;
        let meta = Meta {
            relay: format!("{}.{}.{}", self.instance, ends.pid, self.count),
            uid: server.uid,
            user: server.user.to_string(),
            agent: server.agent.to_string(),
            agent_pid: server.agent_pid,
            agent_start: server.agent_start,
            server: server.identity.to_string(),
            server_pid: ends.pid,
            server_start: ends.start_ns,
            candidate: server.candidate,
            socket: ends.stdin == Kind::Socket,
            server_id: server.id,
        };
        let fail = match server.fail {
            Fail::Open => FailMode::Open,
            Fail::Closed => FailMode::Closed,
        };
        // Others may hold the agent's descriptions (a shell, the agent itself): a pipe is opened anew here, for a relay
        // without privilege may not, and must not change theirs.
        let mut sole = true;
        let mut own = |fd: OwnedFd, kind: Kind| {
            reopened(&fd).unwrap_or_else(|| {
                sole &= kind == Kind::Socket;
                fd
            })
        };
        let ends = relay::Ends {
            from_agent: own(ends.from_agent, ends.stdin),
            to_agent: own(ends.to_agent, ends.stdout),
            to_server: own(ends.to_server, ends.stdin),
            from_server: own(ends.from_server, ends.stdout),
            sole: false,
        };
        let ends = relay::Ends { sole, ..ends };
        let pool = self.ready().map_err(|error| error.to_string())?;
        let started = match pool.start(ends, meta, fail) {
            Ok(started) => started,
            Err(error) => {
                // What it answers later must not be taken for the answer to another question.
                self.running = None;
                return Err(error.to_string());
            }
        };
        tracing::debug!(relay = started.pid, server = %server.identity, "a relay serves");
        Ok(())
    }
}
