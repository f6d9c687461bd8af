//! Servers that are cut off the network: by policy (`network: none`) or by a restriction (`block_egress`), in enforce mode.
//!
//! What is wanted follows from policy, restrictions and who serves; [`Engine::follow_network`] brings what stands into
//! line with it, whenever one of the three has changed and every second. The kernel does the rest (`host::netblock`).
//! Walking over processes and closing connections is a thread's own work.

mod lineage;
mod sweeper;
mod telling;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kams_export::view::{NetworkView, ServerState, ServerView, Time};
use kams_host::netblock::{self, BlockCounts, BlockId, Blocks, Process};
use kams_host::{clock, procs};
use kams_policy::{Mode, Network as Setting, Subject};
use tokio::sync::watch;

use super::Engine;
use super::gate::cut_off::CutOffs;
use crate::discover::tracker::{Instance, InstanceId};
use lineage::Lineage;
use sweeper::Sweeper;

/// Ticks (seconds) after the start in which blocks of an earlier daemon find their servers again: relays have connected by
/// then.
const GRACE: u32 = 20;

/// Why a server is cut off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reason {
    /// `network: none`.
    Policy,
    /// `block_egress`.
    Restriction,
}

impl Reason {
    const fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Restriction => "restriction",
        }
    }
}

/// A server that is cut off, or was to be.
#[derive(Debug)]
struct CutOff {
    /// None where the kernel refused.
    id: Option<BlockId>,
    reason: Reason,
    server: ServerView,
    /// What was counted and told of it.
    counts: BlockCounts,
    told: telling::Told,
    /// The server has ended; something that it started may live.
    gone: bool,
}

/// The engine's part.
pub(super) struct Network {
    blocks: Arc<Blocks>,
    sweeper: Option<Sweeper>,
    cut_offs: watch::Receiver<CutOffs>,
    by_server: HashMap<u64, CutOff>,
    /// Who descends from whom.
    pub(super) lineage: Lineage,
    /// Blocks of an earlier daemon whose servers were not found yet.
    inherited: BTreeSet<BlockId>,
    ticks: u32,
    lost: u64,
}

impl Network {
    /// Goes on with what an earlier daemon left.
    pub(super) fn new(blocks: Arc<Blocks>, cut_offs: watch::Receiver<CutOffs>) -> Self {
        let inherited = blocks.take_over().unwrap_or_else(|error| {
            tracing::error!(%error, "servers that were cut off stay so under the programs of the earlier daemon");
            Vec::new()
        });
        if !inherited.is_empty() {
            tracing::info!(
                count = inherited.len(),
                "servers are still cut off the network from before"
            );
        }
        Self {
            blocks,
            sweeper: None,
            cut_offs,
            by_server: HashMap::new(),
            lineage: Lineage::default(),
            inherited: inherited.into_iter().collect(),
            ticks: 0,
            lost: 0,
        }
    }

    /// Ends when restrictions have changed who is to be cut off.
    pub(super) async fn changed(&mut self) {
        if self.cut_offs.changed().await.is_err() {
            // The gate has ended, and with it the daemon.
            std::future::pending::<()>().await;
        }
    }

    fn sweep(&mut self, server: u64, id: BlockId) {
        if self.sweeper.is_none() {
            self.sweeper = Sweeper::start(&self.blocks)
                .inspect_err(
                    |error| tracing::error!(%error, "open connections of cut off servers are not closed"),
                )
                .ok();
        }
        if let Some(sweeper) = &self.sweeper {
            sweeper.sweep(server, id);
        }
    }

    /// Whether an earlier daemon has cut this process off, and it was not found yet whose it is.
    fn is_inherited(&self, pid: u32) -> bool {
        !self.inherited.is_empty()
            && self
                .blocks
                .of_process(pid)
                .is_some_and(|id| self.inherited.contains(&id))
    }

    /// A block of an earlier daemon that this process is under.
    fn inherited_of(&mut self, roots: &[Process]) -> Option<BlockId> {
        if self.inherited.is_empty() {
            return None;
        }
        let id = roots.iter().find_map(|root| self.blocks.of_process(root.pid))?;
        self.inherited.remove(&id).then(|| {
            self.blocks.resume(id, roots);
            id
        })
    }
}

impl Engine {
    /// Cuts off who is to be and is not, and lets go who is and need not be.
    pub(super) fn follow_network(&mut self) {
        if self.running.is_none() {
            return;
        }
        let cut_offs = self.network.cut_offs.borrow_and_update().clone();
        let wanted = !cut_offs.is_empty() || self.enforce.policy().may_cut_off();
        if !wanted && self.network.by_server.is_empty() {
            return;
        }
        let servers: Vec<ServerView> = {
            let tables = self.live.registry.lock();
            let here = tables.live_servers().filter(|view| view.pid != 0);
            here.cloned().collect()
        };
        let instances: HashMap<u64, InstanceId> =
            self.servers.iter().map(|(id, server)| (server.id, *id)).collect();
        // Where nothing of a server lives there is nothing to cut off, whether its end has been told or not.
        let living: HashSet<u64> = servers
            .iter()
            .filter(|view| {
                self.network.by_server.contains_key(&view.id) || self.reason_for(view, &cut_offs).is_some()
            })
            .filter(|view| {
                self.roots(view)
                    .iter()
                    .any(|root| procs::is_alive(root.pid, None))
            })
            .map(|view| view.id)
            .collect();
        for view in &servers {
            let instance = instances.get(&view.id).copied();
            let wanted = self.reason_for(view, &cut_offs);
            let known = self.network.by_server.get(&view.id);
            match (wanted, known.map(|known| (known.id, known.reason))) {
                (Some(reason), Some((Some(_), old))) if reason == old => {}
                (Some(reason), Some((Some(_), _))) => self.give_reason(view.id, reason),
                // Where the kernel refused, it is tried again when something changes, not every second.
                (Some(reason), Some((None, old))) if reason == old => {}
                (Some(reason), _) if living.contains(&view.id) && self.is_ripe(view, instance, reason) => {
                    self.cut_off(view, reason);
                }
                _ => {}
            }
        }
        let there: HashMap<u64, &ServerView> = servers.iter().map(|view| (view.id, view)).collect();
        let mut over = Vec::new();
        for (number, cut) in &mut self.network.by_server {
            match there.get(number) {
                Some(view) if living.contains(number) => cut.server = (*view).clone(),
                _ => cut.gone = true,
            }
        }
        for (number, cut) in &self.network.by_server {
            // What a server leaves behind is as little to be trusted as itself.
            let empty = cut.gone && cut.id.is_none_or(|id| self.network.blocks.processes(id) == 0);
            if empty || self.reason_for(&cut.server, &cut_offs).is_none() {
                over.push(*number);
            }
        }
        for number in over {
            self.restore(number);
        }
        self.live.metrics.set_network_blocks(
            self.network
                .by_server
                .values()
                .filter(|cut| cut.id.is_some())
                .count(),
        );
    }

    /// Why a server is to be cut off, if it is.
    fn reason_for(&self, view: &ServerView, cut_offs: &CutOffs) -> Option<Reason> {
        let settings = self.enforce.policy().settings(&Subject {
            user: &view.user,
            agent: &view.agent,
            server: &view.identity,
            tool: None,
            relayed: view.enforced,
        });
        if settings.mode != Mode::Enforce {
            return None;
        }
        if cut_offs.contain(&view.user, &view.identity) {
            return Some(Reason::Restriction);
        }
        (settings.network == Setting::None).then_some(Reason::Policy)
    }

    /// Whether policy or a restriction wants this server off the network now.
    pub(super) fn is_to_be_cut_off(&self, view: &ServerView) -> bool {
        let cut_offs = self.network.cut_offs.borrow().clone();
        self.reason_for(view, &cut_offs).is_some()
    }

    /// Whether the moment has come: it is a server, and its program is there. A launcher needs the network to install it.
    fn is_ripe(&self, view: &ServerView, instance: Option<InstanceId>, reason: Reason) -> bool {
        let instance = instance.and_then(|id| self.tracker.instance(id));
        let is_server = match view.state {
            // A restriction names a server that was one. What an earlier daemon cut off was one, too.
            ServerState::Candidate => {
                reason == Reason::Restriction
                    || instance.is_some_and(|one| one.known.is_some())
                    || self.network.is_inherited(view.pid)
            }
            _ => true,
        };
        let arrived = instance.is_none_or(Instance::has_arrived) || view.revision.is_some();
        is_server && arrived
    }

    /// Cuts off a server that is held at its start, if it is to be: before its first instruction.
    pub(super) fn cut_off_at_start(&mut self, id: InstanceId) {
        let cut_offs = self.network.cut_offs.borrow().clone();
        let Some(number) = self.servers.get(&id).map(|server| server.id) else {
            return;
        };
        let view = self
            .live
            .registry
            .lock()
            .server_mut(number)
            .map(|view| view.clone());
        let Some(view) = view else { return };
        let arrived = self.tracker.instance(id).is_some_and(Instance::has_arrived);
        if let Some(reason) = self.reason_for(&view, &cut_offs)
            && arrived
            && !self.network.by_server.contains_key(&number)
        {
            self.cut_off(&view, reason);
        }
    }

    fn cut_off(&mut self, view: &ServerView, reason: Reason) {
        let roots = self.roots(view);
        let network = &mut self.network;
        let (id, failed) = match network.inherited_of(&roots) {
            Some(id) => (Some(id), None),
            None if roots.is_empty() => (None, Some("its process is not known".to_owned())),
            None => match network.blocks.block(&roots) {
                Ok(id) => (Some(id), None),
                Err(error) => (None, Some(error.to_string())),
            },
        };
        if let Some(id) = id {
            network.sweep(view.id, id);
        }
        let cut = CutOff {
            id,
            reason,
            server: view.clone(),
            counts: BlockCounts::default(),
            told: telling::Told::default(),
            gone: false,
        };
        if let Some(server) = self.live.registry.lock().server_mut(view.id) {
            server.network = Some(NetworkView {
                cut_off: id.is_some(),
                reason: reason.name().to_owned(),
                failed: failed.clone(),
                ..NetworkView::default()
            });
        }
        self.tell_cut_off(view, reason, failed);
        self.network.by_server.insert(view.id, cut);
    }

    /// The processes of a server: what is known to descend from it, and the first of its chain.
    fn roots(&self, view: &ServerView) -> Vec<Process> {
        let mut roots: Vec<Process> = self.network.lineage.members(view.id).collect();
        // A relay of a user says itself whom it serves: only a process of that user is believed.
        if !roots.iter().any(|root| root.pid == view.pid)
            && let Some(facts) = procs::facts(view.pid)
            && facts.uid == view.uid
        {
            roots.push(Process {
                pid: view.pid,
                start_ns: facts.stat.start_ticks.saturating_mul(clock::NS_PER_TICK),
            });
        }
        roots
    }

    /// A server's first process; of one that ran before, with what it has started.
    pub(super) fn descends(&mut self, server: u64, pid: u32, start_ns: u64, ran_before: bool) {
        let root = Process { pid, start_ns };
        self.network.lineage.begin(server, root);
        if ran_before {
            for process in netblock::descendants(&[root]) {
                self.network.lineage.begin(server, process);
            }
        }
    }

    fn give_reason(&mut self, number: u64, reason: Reason) {
        if let Some(cut) = self.network.by_server.get_mut(&number) {
            cut.reason = reason;
        }
        if let Some(view) = self.live.registry.lock().server_mut(number)
            && let Some(network) = &mut view.network
        {
            reason.name().clone_into(&mut network.reason);
        }
    }

    fn restore(&mut self, number: u64) {
        let Some(cut) = self.network.by_server.remove(&number) else {
            return;
        };
        if let Some(id) = cut.id {
            self.count_refused(number, cut.gone, &cut.server, id, cut.counts);
            self.network.blocks.unblock(id);
        }
        if let Some(view) = self.live.registry.lock().server_mut(number) {
            view.network = None;
        }
        if !cut.gone && cut.id.is_some() {
            self.tell_restored(&cut.server, cut.reason);
        }
    }

    /// Once a second.
    pub(super) fn tick_network(&mut self) {
        self.network.ticks = self.network.ticks.saturating_add(1);
        self.take_sweeps();
        self.look_at_refusals();
        self.follow_network();
        if self.network.ticks >= GRACE {
            for id in std::mem::take(&mut self.network.inherited) {
                self.network.blocks.unblock(id);
            }
        }
        let lost = self.network.blocks.state().lost;
        if lost > self.network.lost {
            self.live
                .metrics
                .network_error("no_room", lost - self.network.lost);
            tracing::error!(
                lost,
                "children of cut off servers found no room in the table; looking for them"
            );
            let all: Vec<(u64, BlockId)> = self
                .network
                .by_server
                .iter()
                .filter_map(|(number, cut)| cut.id.map(|id| (*number, id)))
                .collect();
            for (number, id) in all {
                self.network.sweep(number, id);
            }
        }
        self.network.lost = lost;
    }

    /// `kams off`: everybody may use the network again.
    pub(super) fn end_network(&mut self) {
        let all: Vec<u64> = self.network.by_server.keys().copied().collect();
        for number in all {
            self.restore(number);
        }
        self.network.inherited.clear();
        self.network.blocks.clear();
        self.live.metrics.set_network_blocks(0);
    }
}

/// Now, for what the engine tells of itself.
fn now() -> Time {
    Time::now()
}
