//! Filters of system calls that keep servers off the network: who gets one, when, and what became of it.
//!
//! A launcher (`npx`, `uvx`, a shell) needs the network to install what it starts, so it gets none. It is followed
//! instead: each image that it or its children run is held, and the first that is no launcher and has the server's own
//! standard input and output is the server. What else a launcher runs (git, install scripts) has other streams and is
//! let go. Where policy wants a filter and none is there, that is told, and with `fail: closed` the server is ended.

use std::collections::HashMap;

use kams_detect::seccomp::unfiltered;
use kams_export::view::{SeccompView, ServerView};
use kams_host::filter::{Filter, Network};
use kams_host::inject::{Confine, Confined, Target};
use kams_host::{ExecReport, Marks, clock, hold, procs};
use kams_policy::{Fail, Seccomp};
use kams_relay::HolderClient;
use kams_relay::holder::{Held, Key};

use super::Engine;
use super::enforce::RelayedServer;
use super::judging::Work;
use crate::discover::tracker::{Instance, InstanceId, ProcKey};

/// States, as they are shown and counted.
const WAITING: &str = "waiting";
const REFUSING: &str = "refusing";
const ALLOWING: &str = "allowing";
const FAILED: &str = "failed";

/// A server that is to be under a filter.
#[derive(Debug)]
struct Chain {
    server: RelayedServer,
    /// The process that the agent started.
    first: ProcKey,
    /// Inode numbers of its standard input and output behind the relay; known once the relay stands.
    streams: [u64; 2],
    state: &'static str,
    failed: Option<String>,
    no_new_privs: bool,
    /// Images of it whose listeners are kept.
    keys: Vec<Key>,
}

/// The engine's part.
#[derive(Default)]
pub(super) struct Filters {
    holder: Option<HolderClient>,
    deny: Option<Filter>,
    ask: Option<Filter>,
    chains: HashMap<InstanceId, Chain>,
    /// Images in the chain of a server that the injector has.
    asked: HashMap<ProcKey, InstanceId>,
    /// The image that was looked at last, and whether it launches something else.
    image: Option<(ProcKey, bool)>,
}

impl Filters {
    pub(super) fn new(holder: Option<HolderClient>) -> Self {
        Self {
            holder,
            ..Self::default()
        }
    }

    /// What an exec is about; asked for when it turns out to be held.
    pub(super) fn looked_at(&mut self, proc: ProcKey, launcher: bool) {
        self.image = Some((proc, launcher));
    }

    fn is_launcher(&self, proc: ProcKey) -> bool {
        self.image
            .is_some_and(|(seen, launcher)| seen == proc && launcher)
    }

    fn filter(&mut self, setting: Seccomp) -> Result<Filter, &'static str> {
        let (place, network) = match setting {
            Seccomp::Off => return Err("off"),
            Seccomp::Deny => (&mut self.deny, Network::Refused),
            Seccomp::Notify => (&mut self.ask, Network::Asked),
        };
        if let Some(filter) = place {
            return Ok(filter.clone());
        }
        let made = Filter::new(network).map_err(|error| {
            tracing::error!(%error, "no filter of system calls can be made");
            "library"
        })?;
        Ok(place.insert(made).clone())
    }

    /// Everything is forgotten, as the sensor forgets its servers; filters and listeners stay.
    pub(super) fn forget(&mut self) {
        self.chains.clear();
        self.asked.clear();
        self.image = None;
    }

    /// `kams off`: what can let through does.
    pub(super) fn allow_all(&mut self) {
        if let Some(Err(error)) = self.holder.as_mut().map(|holder| holder.set(None, true)) {
            tracing::error!(%error, "the holder of listeners was not reached: servers that are cut off stay so");
        }
    }

    fn held(&mut self) -> Vec<Held> {
        let told = self.holder.as_mut().map(HolderClient::held);
        told.and_then(Result::ok).unwrap_or_default()
    }
}

/// Whether a held process is held because its launcher is followed.
pub(super) const fn is_followed(report: &ExecReport) -> bool {
    report.marks_before.contains(Marks::ARMED) && !report.marks_before.contains(Marks::ENDPOINT)
}

impl Engine {
    /// What the first image of a server is to get, besides its relay: a filter, or that it is followed.
    pub(super) fn confinement(
        &mut self,
        id: InstanceId,
        server: &RelayedServer,
        first: ProcKey,
    ) -> (Option<Confine>, bool) {
        // A filter cannot be taken off again: what may turn out to be no server must not get one.
        let known = self.tracker.instance(id).is_some_and(|one| one.known.is_some());
        if server.seccomp == Seccomp::Off || !known {
            return (None, false);
        }
        self.enter_chain(id, server, first);
        if self.filters.is_launcher(first) {
            return (None, true);
        }
        (self.confine(id), false)
    }

    fn enter_chain(&mut self, id: InstanceId, server: &RelayedServer, first: ProcKey) {
        let chain = Chain {
            server: server.clone(),
            first,
            streams: [0; 2],
            state: WAITING,
            failed: None,
            no_new_privs: false,
            keys: Vec::new(),
        };
        self.filters.chains.insert(id, chain);
        self.show_filter(id);
    }

    /// A server spoke MCP that was to be under a filter, and was not known at its start.
    pub(super) fn never_filtered(
        &mut self,
        id: InstanceId,
        server: &RelayedServer,
        first: ProcKey,
        why: &'static str,
    ) {
        if server.seccomp != Seccomp::Off && !self.filters.chains.contains_key(&id) {
            self.enter_chain(id, server, first);
            self.no_filter(id, why);
        }
    }

    fn confine(&mut self, id: InstanceId) -> Option<Confine> {
        let chain = self.filters.chains.get(&id)?;
        let (setting, required) = (chain.server.seccomp, chain.server.fail == Fail::Closed);
        match self.filters.filter(setting) {
            Ok(filter) => Some(Confine { filter, required }),
            Err(why) => {
                self.no_filter(id, why);
                None
            }
        }
    }

    /// Decides what is to become of an image that was held because its launcher is followed.
    pub(super) fn answer_followed(&mut self, report: &ExecReport) {
        let proc = ProcKey {
            pid: report.pid,
            start: report.start_ns,
        };
        let id = self.tracker.by_member(proc);
        let Some((id, chain)) = id.and_then(|id| Some((id, self.filters.chains.get(&id)?))) else {
            // Of a server that is not wanted under a filter any more, or that nobody knows.
            if let Some(running) = &self.running {
                running.control.unmark(report.pid, Marks::ARMED);
            }
            self.let_go(proc);
            return;
        };
        let streams = [report.fds[0].ino, report.fds[1].ino];
        let serves = streams == chain.streams && !self.filters.is_launcher(proc);
        if !serves {
            self.let_go(proc);
        } else if !report.held {
            self.no_filter(id, "not_held");
        } else if let Some(confine) = self.confine(id)
            && let Some(injector) = self.enforce.injector()
        {
            injector.inject(Target {
                pid: report.pid,
                start_ns: report.start_ns,
                parent: report.ppid,
                far_ino: [0; 2],
                relay: false,
                confine: Some(confine),
                follow: false,
            });
            self.filters.asked.insert(proc, id);
        } else {
            self.let_go(proc);
        }
    }

    /// A relay stands: from now on it is known what the server's streams are, and what came of its own filter.
    pub(super) fn relay_stands(
        &mut self,
        id: InstanceId,
        proc: ProcKey,
        streams: [u64; 2],
        confined: Option<Confined>,
    ) {
        if let Some(chain) = self.filters.chains.get_mut(&id) {
            chain.streams = streams;
        }
        if let Some(confined) = confined {
            self.confined(id, proc, confined);
        }
    }

    /// What came of the filter of an image in a server's chain.
    pub(super) fn confined_later(&mut self, proc: ProcKey, confined: Confined) {
        if let Some(id) = self.filters.asked.remove(&proc) {
            self.confined(id, proc, confined);
        }
    }

    /// The injector could do nothing for a process; whether that was about a filter alone.
    pub(super) fn not_confined(&mut self, proc: ProcKey, why: &'static str) -> bool {
        let Some(id) = self.filters.asked.remove(&proc) else {
            return false;
        };
        if why == "died" {
            return true;
        }
        self.no_filter(id, why);
        true
    }

    fn confined(&mut self, id: InstanceId, proc: ProcKey, confined: Confined) {
        let cut_off = self.is_cut_off_from_its_start(id);
        let Some(chain) = self.filters.chains.get_mut(&id) else {
            return;
        };
        let (listener, no_new_privs) = match confined {
            Confined::Filtered {
                listener,
                no_new_privs,
            } => (listener, no_new_privs),
            Confined::Failed(error) => {
                self.no_filter(id, word(error));
                return;
            }
        };
        chain.no_new_privs |= no_new_privs;
        let Some(listener) = listener else {
            chain.state = REFUSING;
            self.filter_stands(id);
            return;
        };
        let allow = !cut_off;
        let key = Key {
            pid: proc.pid,
            start: proc.start,
        };
        let kept = match &mut self.filters.holder {
            Some(holder) => holder
                .keep(key, chain.first.pid, allow, listener)
                .map_err(|error| error.to_string()),
            None => Err("there is none".to_owned()),
        };
        match kept {
            Ok(()) => {
                chain.keys.push(key);
                chain.state = if allow { ALLOWING } else { REFUSING };
                self.filter_stands(id);
            }
            Err(error) => {
                // Its sockets fail from now on, with ENOSYS; that is no hole, and has to be told all the same.
                tracing::error!(
                    pid = proc.pid,
                    error,
                    "nobody keeps the listener of a server's filter"
                );
                self.no_filter(id, "no_holder");
            }
        }
    }

    fn is_cut_off_from_its_start(&self, id: InstanceId) -> bool {
        let Some(number) = self.filters.chains.get(&id).map(|chain| chain.server.id) else {
            return false;
        };
        let view = self.live.registry.lock().server_mut(number).cloned();
        view.is_some_and(|view| self.is_to_be_cut_off(&view))
    }

    fn filter_stands(&mut self, id: InstanceId) {
        self.live.metrics.filters("filtered");
        if let Some(chain) = self.filters.chains.get(&id) {
            tracing::info!(
                server = %chain.server.identity, uid = chain.server.uid, no_new_privs = chain.no_new_privs,
                "a server is under a filter of system calls"
            );
        }
        self.show_filter(id);
    }

    /// Policy wants a filter and there is none.
    pub(super) fn no_filter(&mut self, id: InstanceId, why: &'static str) {
        let Some(chain) = self.filters.chains.get_mut(&id) else {
            return;
        };
        if chain.failed.is_some() {
            return;
        }
        chain.state = FAILED;
        chain.failed = Some(why.to_owned());
        let (server, first) = (chain.server.clone(), chain.first);
        let ended = matches!(why, "unfiltered" | "killed")
            || (server.fail == Fail::Closed && self.end_chain(id, first));
        self.show_filter(id);
        self.tell_unfiltered(id, &server, why, ended);
    }

    /// Ends every process of a server that must not run without its filter.
    fn end_chain(&self, id: InstanceId, first: ProcKey) -> bool {
        let members = self.tracker.instance(id).into_iter().flat_map(Instance::members);
        members.fold(hold::kill(first.pid, first.start), |ended, proc| {
            hold::kill(proc.pid, proc.start) || ended
        })
    }

    fn tell_unfiltered(&mut self, id: InstanceId, server: &RelayedServer, why: &'static str, ended: bool) {
        self.live.metrics.filters(why);
        tracing::error!(
            server = %server.identity, uid = server.uid, why, ended,
            "a server is not under the filter of system calls that policy wants"
        );
        let Some(party) = self.servers.get(&id).map(|server| server.party().clone()) else {
            return;
        };
        self.judging.hand(Work::Found {
            party: Box::new(party),
            finding: Box::new(unfiltered(why, ended)),
        });
    }

    /// Tells the filters of servers to refuse or to let through, as policy and restrictions are now.
    pub(super) fn follow_cut_offs(&mut self) {
        if self.running.is_none() {
            return;
        }
        let held = self.filters.held();
        if held.is_empty() {
            return;
        }
        let servers: Vec<ServerView> = self.live.registry.lock().live_servers().cloned().collect();
        for view in servers.iter().filter(|view| view.pid != 0) {
            let allow = !self.is_to_be_cut_off(view);
            for one in held
                .iter()
                .filter(|one| one.server == view.pid && one.allow != allow)
            {
                let holder = self.filters.holder.as_mut();
                if let Some(Err(error)) = holder.map(|holder| holder.set(Some(one.key), allow)) {
                    tracing::error!(%error, pid = view.pid, allow, "the filter of a server is not told what holds now");
                }
            }
        }
    }

    /// Once a second: who never got a filter, who lost it, and what is shown.
    pub(super) fn look_after_filters(&mut self) {
        self.follow_cut_offs();
        let tracker = &self.tracker;
        self.filters
            .chains
            .retain(|id, _| tracker.instance(*id).is_some());
        let held = self.filters.held();
        let mut missing = Vec::new();
        for (id, chain) in &mut self.filters.chains {
            if chain.state == WAITING && self.live.registry.lock().introduced(chain.server.id) {
                missing.push((*id, "launcher"));
            }
            if chain.state == FAILED {
                continue;
            }
            let of_chain = held.iter().filter(|held| held.server == chain.first.pid);
            let mut allow = None;
            for one in of_chain {
                allow = Some(allow.unwrap_or(true) && one.allow);
            }
            if let Some(allow) = allow {
                chain.state = if allow { ALLOWING } else { REFUSING };
            }
            let lost = |key: &&Key| {
                !held.iter().any(|held| held.key == **key) && procs::is_alive(key.pid, Some(key.start))
            };
            if chain.keys.iter().any(|key| lost(&key)) {
                missing.push((*id, "holder_lost"));
            }
        }
        for (id, why) in missing {
            self.no_filter(id, why);
        }
        let all: Vec<InstanceId> = self.filters.chains.keys().copied().collect();
        for id in all {
            self.show_filter(id);
        }
        self.live.registry.lock().show_held(&held);
        for state in [WAITING, REFUSING, ALLOWING, FAILED] {
            let count = self.live.registry.lock().filtered(state);
            self.live.metrics.set_filtered(state, count);
        }
    }

    fn show_filter(&self, id: InstanceId) {
        let Some(chain) = self.filters.chains.get(&id) else {
            return;
        };
        if let Some(view) = self.live.registry.lock().server_mut(chain.server.id) {
            let now = view.seccomp.take().unwrap_or_default();
            view.seccomp = Some(SeccompView {
                setting: chain.server.seccomp.name().to_owned(),
                state: chain.state.to_owned(),
                failed: chain.failed.clone(),
                no_new_privs: chain.no_new_privs,
                ..now
            });
        }
    }
}

/// Why the kernel refused, as a word of a bounded set.
const fn word(error: i32) -> &'static str {
    match error {
        16 => "busy",
        1 | 13 => "forbidden",
        12 => "memory",
        22 | 38 => "unsupported",
        _ => "refused",
    }
}

/// What the judging thread needs of the moment.
pub(super) fn now() -> u64 {
    clock::boot_ns()
}
