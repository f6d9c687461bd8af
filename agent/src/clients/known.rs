//! Whether a process that starts is a configured server.

use std::collections::{HashMap, HashSet};

use super::{Configuration, ConfiguredServer};
use crate::discover::identity::ServerIdentity;

/// Interpreter words that a `#!` line or a launcher may put before the configured command.
const MAX_BEFORE: usize = 4;

/// How a launch was recognised.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Match {
    /// Command and arguments are those of the file.
    CommandLine,
    /// It is the same package or script, started in another way.
    Identity,
}

/// The enabled local servers of a user, ready to be asked at every exec.
#[derive(Clone, Debug, Default)]
pub struct ServerList {
    servers: Vec<ConfiguredServer>,
    by_program: HashMap<String, Vec<usize>>,
    identities: HashMap<ServerIdentity, usize>,
}

impl ServerList {
    /// Takes the servers that a client may start.
    pub fn new(configuration: &Configuration) -> Self {
        let mut list = Self::default();
        let local = configuration
            .servers
            .iter()
            .filter(|server| server.enabled && server.command.is_some());
        for server in local.cloned() {
            let index = list.servers.len();
            if let Some(command) = &server.command {
                list.by_program
                    .entry(base(command).to_owned())
                    .or_default()
                    .push(index);
            }
            // A plain executable's name is too little: `git` may be configured and is started for other ends.
            if let Some(identity) = server
                .identity
                .as_ref()
                .filter(|id| id.is_specific() && id.kind.weight() > 1)
            {
                list.identities.entry(identity.clone()).or_insert(index);
            }
            list.servers.push(server);
        }
        list
    }

    /// The configured server that an exec starts, if any. `argv` is the process's, `identity` what it resolved to.
    ///
    /// A `#!` script is executed as its interpreter, so the command may stand after a few words (`/usr/bin/env node
    /// /usr/bin/npx -y pkg`). A placeholder such as `${env:HOME}` matches any text, since the client fills it in.
    pub fn known_at_exec(
        &self,
        argv: &[String],
        identity: &ServerIdentity,
    ) -> Option<(&ConfiguredServer, Match)> {
        for before in 0..argv.len().min(MAX_BEFORE) {
            let Some((program, args)) = argv.get(before..).and_then(<[String]>::split_first) else {
                break;
            };
            let candidates = self.by_program.get(base(program)).map_or(&[][..], Vec::as_slice);
            let found = candidates
                .iter()
                .filter_map(|index| self.servers.get(*index))
                .find(|server| {
                    server
                        .command
                        .as_deref()
                        .is_some_and(|command| same_program(command, program))
                        && server.args.len() == args.len()
                        && server
                            .args
                            .iter()
                            .zip(args)
                            .all(|(written, given)| fits(written, given))
                });
            if let Some(server) = found {
                return Some((server, Match::CommandLine));
            }
        }
        let index = self.identities.get(identity)?;
        self.servers.get(*index).map(|server| (server, Match::Identity))
    }

    /// Whether a package or script is configured.
    pub fn names(&self, identity: &ServerIdentity) -> bool {
        self.identities.contains_key(identity)
    }

    /// The servers in the list.
    pub fn servers(&self) -> &[ConfiguredServer] {
        &self.servers
    }

    /// The clients that name a server, for `kams servers`.
    pub fn clients(&self) -> HashSet<&'static str> {
        self.servers.iter().map(|server| server.client).collect()
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn same_program(written: &str, given: &str) -> bool {
    // A bare name is searched in PATH; a relative path or a placeholder is filled in by the client.
    if written.starts_with('/') && given.starts_with('/') {
        written == given
    } else {
        base(written) == base(given)
    }
}

/// Whether an argument as written may have become the one given.
fn fits(written: &str, given: &str) -> bool {
    let Some(first) = written.find("${") else {
        return written == given
            || written
                .strip_prefix("~/")
                .is_some_and(|rest| given.ends_with(&format!("/{rest}")));
    };
    let prefix = written.get(..first).unwrap_or_default();
    let suffix = written.rsplit_once('}').map_or("", |(_, rest)| rest);
    given.len() >= prefix.len() + suffix.len() && given.starts_with(prefix) && given.ends_with(suffix)
}
