//! Which agent a report comes from, as far as the kernel and the engine's tables tell.
//!
//! The user is certain: it is the owner of the socket. The process is looked up among that user's agents, then among the
//! agents' relatives (a launcher, a helper). What the report says of itself is believed only among the same user's
//! agents.

use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};

use kams_host::inet::{SocketOwner, holds_socket};
use kams_host::procs;
use lru::LruCache;

use crate::engine::registry::Registry;
use crate::engine::waste::Sender;

/// Processes that are looked through for the owner of a socket.
const PROCESSES: usize = 4_096;
/// Generations between a sender and its agent.
const GENERATIONS: usize = 16;
/// Users whose names are remembered.
const NAMES: usize = 1_024;

/// Finds senders.
#[derive(Debug)]
pub struct Senders {
    registry: Arc<Registry>,
    names: Mutex<LruCache<u32, String>>,
}

impl Senders {
    /// Over these tables.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            names: Mutex::new(LruCache::new(
                NonZeroUsize::new(NAMES).unwrap_or(NonZeroUsize::MIN),
            )),
        }
    }

    /// Who owns a socket; `claimed` is the process that the report says it is. Reads procfs: not for an async thread.
    pub fn of_socket(&self, owner: SocketOwner, claimed: Option<u32>) -> Sender {
        let agents = self.agents(owner.uid);
        let holder = agents
            .iter()
            .find(|(pid, _)| holds_socket(*pid, owner.inode))
            .or_else(|| agents.iter().find(|(pid, _)| claimed == Some(*pid)))
            .cloned();
        let agent = holder.or_else(|| {
            if agents.is_empty() {
                return None;
            }
            related(&agents, process_with(owner)?)
        });
        self.sender(owner.uid, agent, String::new())
    }

    /// Who a process is. Reads procfs.
    pub fn of_process(&self, uid: u32, pid: u32) -> Sender {
        let agent = related(&self.agents(uid), pid);
        let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        self.sender(uid, agent, program.trim_end().to_owned())
    }

    /// The user's agent with this process.
    pub fn agent(&self, uid: u32, pid: u32) -> Option<Sender> {
        let agent = self.agents(uid).into_iter().find(|(agent, _)| *agent == pid)?;
        Some(self.sender(uid, Some(agent), String::new()))
    }

    fn sender(&self, uid: u32, agent: Option<(u32, String)>, program: String) -> Sender {
        Sender {
            uid,
            user: self.name(uid),
            agent,
            program,
        }
    }

    fn agents(&self, uid: u32) -> Vec<(u32, String)> {
        let tables = self.registry.lock();
        tables
            .agents()
            .filter(|agent| agent.live && agent.uid == uid)
            .map(|agent| (agent.pid, agent.name.clone()))
            .collect()
    }

    fn name(&self, uid: u32) -> String {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names
            .get_or_insert(uid, || {
                nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid))
                    .ok()
                    .flatten()
                    .map_or_else(|| uid.to_string(), |user| user.name)
            })
            .clone()
    }
}

/// The process that has a socket open.
fn process_with(owner: SocketOwner) -> Option<u32> {
    let own = |pid: &u32| std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == owner.uid);
    procs::pids()
        .into_iter()
        .filter(own)
        .take(PROCESSES)
        .find(|pid| holds_socket(*pid, owner.inode))
}

/// The agent that a process is, stands below of, or started.
fn related(agents: &[(u32, String)], pid: u32) -> Option<(u32, String)> {
    let above = ancestors(pid);
    let below = || agents.iter().find(|(agent, _)| ancestors(*agent).contains(&pid));
    above
        .iter()
        .find_map(|pid| agents.iter().find(|(agent, _)| agent == pid))
        .or_else(below)
        .cloned()
}

/// A process and those above it.
fn ancestors(pid: u32) -> Vec<u32> {
    std::iter::successors(Some(pid), |pid| {
        procs::stat(*pid)
            .map(|stat| stat.ppid)
            .filter(|parent| *parent > 1)
    })
    .take(GENERATIONS)
    .collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use kams_export::view::AgentView;

    use super::*;

    #[test]
    fn the_process_behind_a_socket_is_found_among_the_users_agents() {
        let registry = Arc::new(Registry::default());
        let uid = nix::unistd::geteuid().as_raw();
        let own = std::process::id();
        for (id, pid, uid) in [(1, own, uid), (2, 1, uid.wrapping_add(1))] {
            registry.lock().add_agent(AgentView {
                id,
                uid,
                pid,
                name: format!("agent-{id}"),
                live: true,
                ..AgentView::default()
            });
        }
        let senders = Senders::new(registry);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, theirs) = listener.accept().unwrap();
        let owner = kams_host::inet::peer_owner(far.local_addr().unwrap(), theirs).unwrap();
        let found = senders.of_socket(owner, None);
        assert_eq!((found.uid, found.agent), (uid, Some((own, "agent-1".to_owned()))));
        drop(near);
        // Nobody's socket, and a claim to be another user's agent.
        let nobody = SocketOwner { uid, inode: 0 };
        assert_eq!(senders.of_socket(nobody, Some(1)).agent, None);
        assert_eq!(senders.of_process(uid, own).agent.unwrap().0, own);
        assert!(senders.agent(uid, 1).is_none());
    }
}
