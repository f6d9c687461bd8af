//! Injected relays: from the pool to the ends that the injector delivers.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use kams_host::inject;
use kams_policy::Fail;
use kams_relay::end::reopened;
use kams_relay::wire::Meta;
use kams_relay::{Ends, FailMode, RelayPool};

use crate::engine::enforce::{RelaySink, RelayedServer};

/// The pool of this daemon; begun when it is first needed, and again when it has died.
#[derive(Debug)]
pub struct Pool {
    program: PathBuf,
    /// Where relays find the daemon.
    door: PathBuf,
    pool: Option<RelayPool>,
}

impl Pool {
    /// With the `kams-relay` that stands beside this program.
    pub fn beside_us(door: &Path) -> Self {
        let program = std::env::current_exe().unwrap_or_default();
        Self {
            program: program.with_file_name("kams-relay"),
            door: door.to_owned(),
            pool: None,
        }
    }

    fn pool(&mut self) -> io::Result<&RelayPool> {
        if !self.pool.as_mut().is_some_and(RelayPool::is_alive) {
            // A group of its own: what is sent to ours does not reach relays.
            self.pool = Some(RelayPool::spawn(&self.program, &self.door, |command| {
                command.process_group(0);
            })?);
        }
        self.pool
            .as_ref()
            .ok_or_else(|| io::Error::other("there is no pool of relays"))
    }
}

impl RelaySink for Pool {
    fn is_ready(&mut self) -> bool {
        self.pool()
            .inspect_err(|error| tracing::error!(%error, "no `kams-relay` can be started"))
            .is_ok()
    }

    fn relay(&mut self, ends: inject::Ends, server: RelayedServer) -> Result<(), String> {
        let meta = Meta {
            relay: format!("injected-{}-{:x}", ends.pid, ends.start_ns),
            uid: server.uid,
            user: server.user.to_string(),
            agent: server.agent.to_string(),
            agent_pid: server.agent_pid,
            agent_start: server.agent_start,
            server: server.identity.to_string(),
            server_pid: ends.pid,
            socket: ends.stdin == inject::Kind::Socket,
            server_id: server.id,
        };
        let fail = match server.fail {
            Fail::Open => FailMode::Open,
            Fail::Closed => FailMode::Closed,
        };
        let pool = self.pool().map_err(|error| error.to_string())?;
        let mut sole = true;
        let mut own = |fd: OwnedFd, kind: inject::Kind| match reopened(&fd) {
            Some(fd) => fd,
            None => {
                sole &= kind == inject::Kind::Socket;
                fd
            }
        };
        let (from_agent, to_agent) = (own(ends.from_agent, ends.stdin), own(ends.to_agent, ends.stdout));
        let (to_server, from_server) = (
            own(ends.to_server, ends.stdin),
            own(ends.from_server, ends.stdout),
        );
        let ends = Ends {
            from_agent,
            to_agent,
            to_server,
            from_server,
            sole,
        };
        let handle = pool.start(ends, meta, fail).map_err(|error| error.to_string())?;
        tracing::debug!(pid = handle.pid, server = %server.identity, "a relay serves");
        Ok(())
    }
}
