//! The programs and tables of the backstop, loaded and attached.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

use aya::maps::{Array, HashMap, Map, MapData, MapError};
use aya::programs::links::FdLink;
use aya::programs::{CgroupAttachMode, CgroupSock, CgroupSockAddr, RawTracePoint};
use aya::{Ebpf, EbpfLoader};
use kams_sensor_abi::netblock::{Attempt, BlockCounts, LOST_MEMBER, PROBE};
use kams_sensor_abi::offsets::{OFFSETS_SYMBOL, Offsets};

use super::{BlockId, OBJECT_ENV, Process, prove, root};
use crate::options::SensorError;
use crate::priority::undisturbed;
use crate::programs::{REMEDY_ATTACH, REMEDY_VERIFIER, refused};
use crate::{loader, offsets, placeholder, procs};

/// The kernel object that `cargo xtask ebpf` built; its manifest lies beside it.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../../sensor-ebpf/kams-netblock.bpf.o");

/// Programs for addresses.
const ADDRESS: [&str; 4] = [
    "netblock_connect4",
    "netblock_connect6",
    "netblock_sendmsg4",
    "netblock_sendmsg6",
];
const SOCKET: &str = "netblock_socket";
/// Programs at tracepoints.
const TREE: [(&str, &str); 2] = [
    ("netblock_fork", "sched_process_fork"),
    ("netblock_exit", "sched_process_exit"),
];

/// Tables that are pinned: name in the object, name of the pin.
pub(super) const TABLES: [(&str, &str); 5] = [
    ("NB_MEMBERS", "members"),
    ("NB_BLOCKS", "blocks"),
    ("NB_SOCKETS", "sockets"),
    ("NB_ATTEMPTS", "attempts"),
    ("NB_LOST", "lost"),
];

const REMEDY_CGROUP: &str = "check that the kernel has CONFIG_CGROUP_BPF=y and that no other program holds the root control group for itself";

/// Everything of one load.
pub(super) struct Attached {
    members: HashMap<MapData, u32, u64>,
    blocks: HashMap<MapData, u64, BlockCounts>,
    sockets: HashMap<MapData, u64, u64>,
    attempts: HashMap<MapData, u64, Attempt>,
    lost: Array<MapData, u64>,
    /// By name of the program, until they are pinned.
    pub(super) links: Vec<(&'static str, FdLink)>,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached").finish_non_exhaustive()
    }
}

impl Attached {
    /// Loads and attaches, and proves that each program is asked. Tables are pinned in `folder`, where there is one.
    pub(super) fn fresh(folder: Option<&Path>) -> Result<Self, SensorError> {
        let mut ebpf = load()?;
        let root = root::open().map_err(|source| SensorError::Io {
            what: "cannot open the root of the control groups",
            source,
        })?;
        let mut tables = std::collections::HashMap::new();
        for (name, pin) in TABLES {
            let table = ebpf
                .take_map(name)
                .ok_or_else(|| missing(&format!("table {name}")))?;
            if let Some(folder) = folder {
                let path = folder.join(pin);
                table.pin(&path).map_err(|error| not_pinned(&path, &error))?;
            }
            tables.insert(name, table);
        }
        let mut attached = Self::of_tables(|name| {
            tables
                .remove(name)
                .ok_or(MapError::InvalidMapType { map_type: 0 })
        })?;
        // Marks are kept before anything is refused by them.
        for (name, tracepoint) in TREE {
            let failed = |error| {
                refused(
                    &format!("to attach {name} to {tracepoint}"),
                    &error,
                    REMEDY_ATTACH,
                )
            };
            let program: &mut RawTracePoint = program(&mut ebpf, name)?;
            let id = program.attach(tracepoint).map_err(failed)?;
            let link = program.take_link(id).map_err(failed)?;
            attached.links.push((name, link.into()));
        }
        for name in ADDRESS {
            let failed = |error| {
                refused(
                    &format!("to attach {name} to the root control group"),
                    &error,
                    REMEDY_CGROUP,
                )
            };
            let program: &mut CgroupSockAddr = program(&mut ebpf, name)?;
            // Links always stand beside those of others; the mode is for the older interface.
            let id = program
                .attach(&root.folder, CgroupAttachMode::Single)
                .map_err(failed)?;
            let link = program.take_link(id).map_err(failed)?;
            let link = link.try_into().map_err(|error| link_error(name, &error))?;
            attached.links.push((name, link));
        }
        let failed = |error| {
            refused(
                &format!("to attach {SOCKET} to the root control group"),
                &error,
                REMEDY_CGROUP,
            )
        };
        let program: &mut CgroupSock = program(&mut ebpf, SOCKET)?;
        let id = program
            .attach(&root.folder, CgroupAttachMode::Single)
            .map_err(failed)?;
        let link = program.take_link(id).map_err(failed)?;
        let link = link.try_into().map_err(|error| link_error(SOCKET, &error))?;
        attached.links.push((SOCKET, link));
        prove::prove(&mut attached)?;
        Ok(attached)
    }

    /// Over tables that `take` finds by their name in the object.
    pub(super) fn of_tables(
        mut take: impl FnMut(&str) -> Result<Map, MapError>,
    ) -> Result<Self, SensorError> {
        let mut table = |name: &str| take(name).map_err(|error| map_error(name, &error));
        let hash = |error: MapError| map_error("of the backstop", &error);
        Ok(Self {
            members: table("NB_MEMBERS")?.try_into().map_err(hash)?,
            blocks: table("NB_BLOCKS")?.try_into().map_err(hash)?,
            sockets: table("NB_SOCKETS")?.try_into().map_err(hash)?,
            attempts: table("NB_ATTEMPTS")?.try_into().map_err(hash)?,
            lost: table("NB_LOST")?.try_into().map_err(hash)?,
            links: Vec::new(),
        })
    }

    /// Puts a block in force that nobody is in yet.
    pub(super) fn begin(&mut self, id: BlockId) -> Result<(), SensorError> {
        self.blocks
            .insert(id.0, BlockCounts::default(), 0)
            .map_err(|error| full("blocks", &error))
    }

    /// Enters a process, unless it is gone.
    pub(super) fn enter(&mut self, process: Process, id: BlockId) -> Result<bool, SensorError> {
        undisturbed(|| self.members.insert(process.pid, id.0, 0))
            .map_err(|error| full("processes", &error))?;
        // Looked at after the entry is there: had the process ended in between, its exit could not remove it.
        let same = procs::is_alive(process.pid, Some(process.start_ns));
        if !same {
            self.leave(process.pid);
        }
        Ok(same)
    }

    pub(super) fn leave(&mut self, pid: u32) {
        // The kernel side removes it as well when the process ends.
        let _gone_already = undisturbed(|| self.members.remove(&pid));
    }

    /// Ends a block for everybody in it at once, and then forgets who that was.
    pub(super) fn end(&mut self, id: BlockId) {
        let _gone_already = self.blocks.remove(&id.0);
        let _none_left = self.attempts.remove(&id.0);
        // A member can be forking: until none is left.
        loop {
            let left: Vec<u32> = self.members_of(id).collect();
            if left.is_empty() {
                break;
            }
            for pid in left {
                self.leave(pid);
            }
        }
        let sockets: Vec<u64> = self
            .sockets
            .iter()
            .filter_map(|entry| entry.ok().filter(|(_, of)| *of == id.0).map(|(cookie, _)| cookie))
            .collect();
        for cookie in sockets {
            let _gone_already = self.sockets.remove(&cookie);
        }
    }

    fn members_of(&self, id: BlockId) -> impl Iterator<Item = u32> + '_ {
        self.members()
            .into_iter()
            .filter_map(move |(pid, of)| (of == id).then_some(pid))
    }

    /// Everybody in a block.
    pub(super) fn members(&self) -> Vec<(u32, BlockId)> {
        // An entry that vanishes while the table is read is none.
        self.members
            .iter()
            .filter_map(Result::ok)
            .filter(|(_, id)| *id != PROBE)
            .map(|(pid, id)| (pid, BlockId(id)))
            .collect()
    }

    /// The block of a process.
    pub(super) fn of_process(&self, pid: u32) -> Option<BlockId> {
        let id = undisturbed(|| self.members.get(&pid, 0)).ok()?;
        undisturbed(|| self.blocks.get(&id, 0)).ok()?;
        Some(BlockId(id)).filter(|id| id.0 != PROBE)
    }

    /// Blocks in force, in rising order.
    pub(super) fn blocks(&self) -> Vec<BlockId> {
        let ids: BTreeSet<u64> = self
            .blocks
            .keys()
            .filter_map(Result::ok)
            .filter(|id| *id != PROBE)
            .collect();
        ids.into_iter().map(BlockId).collect()
    }

    pub(super) fn is_in_force(&self, id: BlockId) -> bool {
        undisturbed(|| self.blocks.get(&id.0, 0)).is_ok()
    }

    /// What a block has refused.
    pub(super) fn counts(&self, id: BlockId) -> BlockCounts {
        undisturbed(|| self.blocks.get(&id.0, 0)).unwrap_or_default()
    }

    /// Takes the first attempt.
    pub(super) fn take_attempt(&mut self, id: BlockId) -> Option<Attempt> {
        let attempt = undisturbed(|| self.attempts.get(&id.0, 0)).ok()?;
        let _taken = undisturbed(|| self.attempts.remove(&id.0));
        Some(attempt)
    }

    /// Sockets that are refused whoever uses them.
    pub(super) fn remember_sockets(&mut self, id: BlockId, cookies: &[u64]) {
        if !self.is_in_force(id) {
            return;
        }
        for cookie in cookies {
            if let Err(error) = self.sockets.insert(cookie, id.0, 0) {
                tracing::warn!(%error, "no room for a socket of a blocked server: kernel threads could use it (kernels before 5.12)");
                return;
            }
        }
    }

    /// Forks whose child could not be entered.
    pub(super) fn lost(&self) -> u64 {
        undisturbed(|| self.lost.get(&LOST_MEMBER, 0)).unwrap_or(0)
    }

    /// Takes over what another load holds. Both are attached: a child that is forked meanwhile is in one of them, so this
    /// goes on until nothing new is found.
    pub(super) fn copy_from(&mut self, old: &Self) -> Result<(), SensorError> {
        for (id, counts) in old.blocks.iter().filter_map(Result::ok) {
            // What was counted here meanwhile is kept: each attempt was counted by whoever was attached.
            let own = self.counts(BlockId(id));
            let mut counts = counts;
            for (count, own) in counts.refused.iter_mut().zip(own.refused) {
                *count = own.max(*count);
            }
            if id != PROBE && (counts != own || !self.is_in_force(BlockId(id))) {
                self.blocks
                    .insert(id, counts, 0)
                    .map_err(|error| full("blocks", &error))?;
            }
        }
        for (cookie, id) in old.sockets.iter().filter_map(Result::ok) {
            self.sockets
                .insert(cookie, id, 0)
                .map_err(|error| full("sockets", &error))?;
        }
        loop {
            let mut new = false;
            for (pid, id) in old.members() {
                if self.members.get(&pid, 0).is_err() {
                    self.members
                        .insert(pid, id.0, 0)
                        .map_err(|error| full("processes", &error))?;
                    if procs::is_alive(pid, None) {
                        new = true;
                    } else {
                        self.leave(pid);
                    }
                }
            }
            if !new {
                return Ok(());
            }
        }
    }

    /// Marks a process as the one that proves.
    pub(super) fn begin_proof(&mut self, pid: u32) -> Result<(), SensorError> {
        self.blocks
            .insert(PROBE, BlockCounts::default(), 0)
            .and_then(|()| self.members.insert(pid, PROBE, 0))
            .map_err(|error| full("processes", &error))
    }

    /// What was counted since then.
    pub(super) fn end_proof(&mut self, pid: u32) -> BlockCounts {
        let counts = self.counts(BlockId(PROBE));
        self.leave(pid);
        let _removed = self.blocks.remove(&PROBE);
        counts
    }
}

fn object() -> Result<Vec<u8>, SensorError> {
    match std::env::var_os(OBJECT_ENV) {
        None => Ok(OBJECT.to_vec()),
        Some(path) => std::fs::read(&path).map_err(|source| SensorError::Object {
            path: path.into(),
            source,
        }),
    }
}

/// The offsets, resolved once: the kernel does not change while we run.
fn kernel_offsets() -> Result<Offsets, SensorError> {
    static KNOWN: OnceLock<Offsets> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(*known);
    }
    let found = offsets::resolve(&loader::kernel_btf()?)?;
    Ok(*KNOWN.get_or_init(|| found))
}

/// Loads every program; attaches none.
fn load() -> Result<Ebpf, SensorError> {
    let mut object = object()?;
    placeholder::fill(&mut object, &loader::kernel_btf()?, false);
    loader::raise_memlock();
    let mut ebpf = EbpfLoader::new()
        .override_global(OFFSETS_SYMBOL, &kernel_offsets()?, true)
        .load(&object)
        .map_err(|error| SensorError::Refused {
            what: "the object of the network backstop".into(),
            detail: loader::with_causes(&error),
            remedy: "run `kams doctor`; if it names nothing, please report the kernel's version",
        })?;
    let failed = |name: &str, error| refused(&format!("program {name}"), &error, REMEDY_VERIFIER);
    for (name, _) in TREE {
        let one: &mut RawTracePoint = program(&mut ebpf, name)?;
        one.load().map_err(|error| failed(name, error))?;
    }
    for name in ADDRESS {
        let one: &mut CgroupSockAddr = program(&mut ebpf, name)?;
        one.load().map_err(|error| failed(name, error))?;
    }
    let one: &mut CgroupSock = program(&mut ebpf, SOCKET)?;
    one.load().map_err(|error| failed(SOCKET, error))?;
    Ok(ebpf)
}

/// Whether this kernel takes the programs.
pub(super) fn try_load() -> Result<(), SensorError> {
    load().map(drop)
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, SensorError>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program>,
{
    ebpf.program_mut(name)
        .and_then(|program| program.try_into().ok())
        .ok_or_else(|| missing(&format!("program {name}")))
}

fn missing(what: &str) -> SensorError {
    SensorError::Refused {
        what: what.to_owned(),
        detail: "the kernel object does not hold it".into(),
        remedy: "rebuild the objects with `cargo xtask ebpf`",
    }
}

/// Why a pin could not be made.
pub(super) fn not_pinned(path: &Path, error: &dyn std::error::Error) -> SensorError {
    SensorError::Refused {
        what: format!("to pin {}", path.display()),
        detail: error.to_string(),
        remedy: "check that /sys/fs/bpf is a BPF filesystem",
    }
}

fn link_error(name: &str, error: &dyn std::error::Error) -> SensorError {
    SensorError::Refused {
        what: format!("to attach {name} by a link"),
        detail: error.to_string(),
        remedy: "use kernel 5.10 or later",
    }
}

fn map_error(name: &str, error: &dyn std::error::Error) -> SensorError {
    SensorError::Refused {
        what: format!("table {name}"),
        detail: error.to_string(),
        remedy: "rebuild the objects with `cargo xtask ebpf`",
    }
}

fn full(what: &'static str, error: &dyn std::error::Error) -> SensorError {
    SensorError::Refused {
        what: format!("one more entry in the table of blocked {what}"),
        detail: error.to_string(),
        remedy: "lift restrictions that are not needed (`kams restrictions list`)",
    }
}
