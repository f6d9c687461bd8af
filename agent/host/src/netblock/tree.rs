//! Which processes a blocked tree has.

use std::collections::{HashMap, HashSet};

use super::attached::Attached;
use super::{BlockId, Process};
use crate::clock::NS_PER_TICK;
use crate::procs;

/// How often a tree that changes while it is looked at is looked at again.
pub(super) const PASSES: usize = 16;

/// Enters whatever is below the roots and in no block yet (or in the one that is `given_up`), until a look finds nothing
/// new; gives all members. Children of members are entered by the kernel side at their fork, so each pass finds less.
pub(super) fn complete(
    attached: &mut Attached,
    id: BlockId,
    roots: &[Process],
    given_up: Option<BlockId>,
) -> Vec<u32> {
    for _ in 0..PASSES {
        let members = attached.members();
        let mut known: HashMap<u32, BlockId> = members.iter().copied().collect();
        let living = roots
            .iter()
            .filter(|root| procs::is_alive(root.pid, Some(root.start_ns)));
        let of_block = members.iter().filter(|(_, of)| *of == id).map(|(pid, _)| *pid);
        let top: Vec<u32> = living.map(|root| root.pid).chain(of_block).collect();
        let mut new = false;
        for process in below(top.iter().copied())
            .into_iter()
            .chain(roots.iter().copied())
        {
            let held = known.get(&process.pid).copied();
            let free = held.is_none_or(|held| Some(held) == given_up || !attached.is_in_force(held));
            if held == Some(id) || !free {
                continue;
            }
            match attached.enter(process, id) {
                Ok(true) => {
                    known.insert(process.pid, id);
                    new = true;
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%error, pid = process.pid, "a process of a blocked server is not blocked");
                }
            }
        }
        if !new {
            break;
        }
    }
    let members = attached.members().into_iter();
    members
        .filter_map(|(pid, of)| (of == id).then_some(pid))
        .collect()
}

/// Everything below these processes, as procfs tells.
pub(super) fn below(top: impl Iterator<Item = u32>) -> Vec<Process> {
    let mut inside: HashSet<u32> = top.collect();
    let mut all: Vec<(u32, procs::Stat)> = procs::pids()
        .into_iter()
        .filter_map(|pid| procs::stat(pid).map(|stat| (pid, stat)))
        .collect();
    // Parents before children; a child can be as old as its parent by the clock of procfs.
    all.sort_by_key(|(pid, stat)| (stat.start_ticks, *pid));
    let mut found = Vec::new();
    loop {
        let before = found.len();
        for (pid, stat) in &all {
            if inside.contains(&stat.ppid) && inside.insert(*pid) {
                found.push(Process {
                    pid: *pid,
                    start_ns: stat.start_ticks.saturating_mul(NS_PER_TICK),
                });
            }
        }
        if found.len() == before {
            return found;
        }
    }
}
