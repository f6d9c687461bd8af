//! Processes that already run: what they have open, by kernel object.

use std::collections::HashMap;

use kams_sensor_abi::record::FdRecord;

use crate::event::{FdShape, Object, Op};
use crate::record::{fd_shape, read};

/// One open descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFd {
    /// Process id (thread group).
    pub pid: u32,
    /// Descriptor number.
    pub fd: u32,
    /// What is open.
    pub shape: FdShape,
}

/// Open descriptors of every process at about one time: descriptors 0 to 2 of any kind, and every pipe and AF_UNIX
/// socket at any number.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    by_pid: HashMap<u32, Vec<OpenFd>>,
    by_object: HashMap<Object, Vec<OpenFd>>,
}

impl Descriptors {
    /// Indexes the iterator's output; an incomplete record at the end is left out.
    pub(crate) fn from_records(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        for chunk in bytes.chunks_exact(size_of::<FdRecord>()) {
            let Some(record) = read::<FdRecord>(chunk) else {
                continue;
            };
            let open = OpenFd {
                pid: record.pid,
                fd: record.fd,
                shape: fd_shape(&record.facts),
            };
            all.by_pid.entry(open.pid).or_default().push(open);
            if let Some(object) = open.shape.object {
                all.by_object.entry(object).or_default().push(open);
            }
        }
        all
    }

    /// Every process with an open descriptor that is listed.
    pub fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_pid.keys().copied()
    }

    /// Every listed descriptor of a process.
    pub fn of(&self, pid: u32) -> &[OpenFd] {
        self.by_pid.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// Descriptors 0, 1, 2 of a process.
    pub fn stdio(&self, pid: u32) -> [FdShape; 3] {
        let at = |fd| {
            self.of(pid)
                .iter()
                .find(|open| open.fd == fd)
                .map_or(FdShape::CLOSED, |o| o.shape)
        };
        [at(0), at(1), at(2)]
    }

    /// Every descriptor of any process on this object.
    pub fn holders(&self, object: Object) -> &[OpenFd] {
        self.by_object.get(&object).map_or(&[], Vec::as_slice)
    }

    /// Processes that can do `op` at the far end of `shape`: [`Op::Write`] for a server's standard input,
    /// [`Op::Read`] for its standard output. Each process once.
    pub fn far_holders(&self, shape: &FdShape, op: Op) -> Vec<u32> {
        let Some(object) = shape.far_object() else {
            return Vec::new();
        };
        let mut pids: Vec<u32> = self
            .holders(object)
            .iter()
            .filter(|open| match op {
                Op::Read => open.shape.readable,
                Op::Write => open.shape.writable,
            })
            .map(|open| open.pid)
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Processes whose descriptors 0 and 1 have the shape of a server's and whose far ends another process holds:
    /// (server, agents that hold both far ends). A chain of launchers gives one entry per process.
    pub fn candidates(&self) -> Vec<(u32, Vec<u32>)> {
        let mut found: Vec<(u32, Vec<u32>)> = self
            .pids()
            .filter_map(|pid| {
                let stdio = self.stdio(pid);
                if !is_candidate(&stdio) {
                    return None;
                }
                let writers = self.far_holders(&stdio[0], Op::Write);
                let readers = self.far_holders(&stdio[1], Op::Read);
                let agents: Vec<u32> = writers
                    .into_iter()
                    .filter(|&other| other != pid && readers.contains(&other))
                    .collect();
                (!agents.is_empty()).then_some((pid, agents))
            })
            .collect();
        found.sort_unstable();
        found
    }
}

/// Descriptors 0 and 1 are each a pipe or a connected AF_UNIX stream, and are two different objects or one socket
/// for both (DESIGN section 5).
pub fn is_candidate(fds: &[FdShape; 3]) -> bool {
    let [input, output, _] = fds;
    let carries = |shape: &FdShape| shape.kind.can_carry_mcp() && shape.far_object().is_some();
    let distinct = input.object != output.object || input.kind == crate::event::FdKind::UnixStream;
    carries(input) && carries(output) && distinct
}
