//! Which processes descend from which server, also when those between them have ended.
//!
//! The tracker follows a server's streams and forgets what does not hold them; who is to be cut off is everybody that the
//! server has started, and what is nobody's child any more is found by no walk over processes.

use std::collections::HashMap;

use kams_host::netblock::Process;

/// Most processes that are followed, of all servers. Beyond it the youngest are not, and are found as children only.
const MOST: usize = 65_536;

/// Processes of all servers.
#[derive(Debug, Default)]
pub(in crate::engine) struct Lineage {
    /// By process id: its start, and the number of the server.
    of: HashMap<u32, (u64, u64)>,
}

impl Lineage {
    /// A process of a server.
    pub(in crate::engine) fn begin(&mut self, server: u64, process: Process) {
        if self.of.len() < MOST || self.of.contains_key(&process.pid) {
            self.of.insert(process.pid, (process.start_ns, server));
        }
    }

    /// A process forked.
    pub(in crate::engine) fn fork(&mut self, parent: u32, child: Process) {
        match self.of.get(&parent).map(|(_, server)| *server) {
            Some(server) => self.begin(server, child),
            // What went under this number before has ended unseen.
            None => drop(self.of.remove(&child.pid)),
        }
    }

    /// A process ended.
    pub(in crate::engine) fn exit(&mut self, pid: u32) {
        self.of.remove(&pid);
    }

    /// Everything ended, or is to be entered anew.
    pub(in crate::engine) fn clear(&mut self) {
        self.of.clear();
    }

    /// The processes of a server, in no order.
    pub(super) fn members(&self, server: u64) -> impl Iterator<Item = Process> + '_ {
        self.of
            .iter()
            .filter(move |(_, (_, of))| *of == server)
            .map(|(pid, (start, _))| Process {
                pid: *pid,
                start_ns: *start,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn process(pid: u32) -> Process {
        Process { pid, start_ns: 1 }
    }

    fn members(lineage: &Lineage, server: u64) -> Vec<u32> {
        let mut pids: Vec<u32> = lineage.members(server).map(|process| process.pid).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn a_grandchild_stays_when_its_parent_has_ended() {
        let mut lineage = Lineage::default();
        lineage.begin(1, process(10));
        lineage.fork(10, process(11));
        lineage.fork(11, process(12));
        lineage.fork(99, process(13));
        lineage.exit(11);
        lineage.exit(10);
        assert_eq!(members(&lineage, 1), [12]);
        // A number that is used again by a stranger.
        lineage.fork(99, process(12));
        assert!(members(&lineage, 1).is_empty());
    }

    #[test]
    fn a_server_within_a_server_is_its_own() {
        let mut lineage = Lineage::default();
        lineage.begin(1, process(10));
        lineage.fork(10, process(11));
        lineage.begin(2, process(11));
        lineage.fork(11, process(12));
        assert_eq!(
            (members(&lineage, 1), members(&lineage, 2)),
            (vec![10], vec![11, 12])
        );
    }

    #[test]
    fn the_number_of_processes_is_bounded() {
        let mut lineage = Lineage::default();
        for pid in 0..u32::try_from(MOST).expect("small") + 10 {
            lineage.begin(1, process(pid));
        }
        assert_eq!(lineage.of.len(), MOST);
    }
}
