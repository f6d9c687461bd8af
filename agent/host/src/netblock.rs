//! Cutting process trees off the network, in the kernel.
//!
//! A block names the processes at the root of a tree. They and everything below them can make no socket of AF_INET or
//! AF_INET6, connect none and send no datagram, loopback included (a proxy there would be a way out); AF_UNIX and netlink
//! are left alone. Connections that are open already are closed ([`Blocks::sweep`]). Five programs at the root control
//! group refuse, two at tracepoints enter children at their fork (`sensor-ebpf/src/netblock`). They are attached while at
//! least one block exists and not a moment longer.
//!
//! With a folder in a BPF filesystem, programs and tables are pinned and nobody holds them but the pins: blocks go on while
//! the daemon is restarted ([`Blocks::take_over`]), and whoever removes the folder ends them ([`heal`]).
//!
//! What this does not stop is told in `docs/network.md`: other families of addresses, descriptors that are passed in, and
//! whoever outside the tree can be asked to act.

mod attached;
mod connections;
mod pins;
mod prove;
mod root;
mod tree;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use kams_sensor_abi::netblock::{Attempt, BlockCounts, HOOK_CONNECT, HOOK_SEND, HOOK_SOCKET};

use crate::options::SensorError;
use crate::procs;
use attached::Attached;
pub use connections::{Left, Why};

/// Name of the environment variable that replaces the embedded object by a file.
pub const OBJECT_ENV: &str = "KAMS_NETBLOCK_OBJECT";

/// Most processes in blocked trees.
pub const CAPACITY: usize = kams_sensor_abi::netblock::MEMBERS_MAX as usize;

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Process {
    /// Process id in the initial pid namespace.
    pub pid: u32,
    /// Start, CLOCK_BOOTTIME ns (as exact as procfs is suffices).
    pub start_ns: u64,
}

/// Number of a block, unique among those of one folder.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BlockId(pub u64);

/// What a look at a blocked tree found and did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Swept {
    /// Processes of the tree.
    pub processes: usize,
    /// Connections and listeners that were closed.
    pub closed: usize,
    /// What is still open and could be used.
    pub left: Vec<Left>,
}

/// How the blocks stand, for people.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct State {
    /// The programs are attached.
    pub attached: bool,
    /// Blocks in force.
    pub blocks: usize,
    /// Processes in blocked trees.
    pub processes: usize,
    /// Forks whose child could not be entered, since the programs were attached.
    pub lost: u64,
    /// Why the last attempt to attach failed, if it did.
    pub refused: Option<String>,
}

/// All blocks of a daemon. Every method may be called from any thread.
#[derive(Debug)]
pub struct Blocks {
    folder: Option<PathBuf>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    attached: Option<Attached>,
    roots: BTreeMap<BlockId, Vec<Process>>,
    last: u64,
    refused: Option<String>,
}

impl Blocks {
    /// No blocks yet. `folder`: where programs and tables are to be pinned, in a BPF filesystem; without it blocks end
    /// with this process.
    pub fn new(folder: Option<&Path>) -> Self {
        Self {
            folder: folder.map(|folder| folder.join(pins::FOLDER)),
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while holding it leaves at worst a table half written; the next sweep completes it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with the blocks that an earlier daemon left pinned, under programs of this one. Gives their numbers, none
    /// where nothing is pinned. Their trees stay blocked throughout.
    ///
    /// # Errors
    /// This kernel refuses the programs; what was pinned stays in force as it is.
    pub fn take_over(&self) -> Result<Vec<BlockId>, SensorError> {
        let Some(folder) = &self.folder else {
            return Ok(Vec::new());
        };
        if !pins::exist(folder) {
            return Ok(Vec::new());
        }
        let mut inner = self.lock();
        let attached =
            pins::take_over(folder).inspect_err(|error| inner.refused = Some(error.to_string()))?;
        let ids = attached.blocks();
        inner.last = ids.last().map_or(0, |id| id.0);
        inner.attached = Some(attached);
        inner.refused = None;
        Ok(ids)
    }

    /// Cuts a tree off: these processes, and what they start from now on. Constant work, but for the first block, which
    /// loads and attaches the programs (tens of milliseconds). What the processes started before is found by
    /// [`Blocks::sweep`], which is to follow.
    ///
    /// # Errors
    /// This kernel refuses the programs, or a table is full; nothing is blocked then.
    pub fn block(&self, roots: &[Process]) -> Result<BlockId, SensorError> {
        let mut inner = self.lock();
        inner.attach(self.folder.as_deref())?;
        inner.last += 1;
        let id = BlockId(inner.last);
        let inner = &mut *inner;
        let Some(attached) = &mut inner.attached else {
            return Ok(id);
        };
        let entered = attached.begin(id).and_then(|()| {
            roots
                .iter()
                .try_for_each(|root| attached.enter(*root, id).map(drop))
        });
        if let Err(error) = entered {
            attached.end(id);
            if attached.blocks().is_empty() {
                inner.detach(self.folder.as_deref());
            }
            return Err(error);
        }
        inner.roots.insert(id, roots.to_vec());
        Ok(id)
    }

    /// Goes on with a block of an earlier daemon as one of these processes: whoever it was put on then stays in it.
    pub fn resume(&self, id: BlockId, roots: &[Process]) {
        self.lock().roots.insert(id, roots.to_vec());
    }

    /// Looks at a blocked tree: enters processes that were started before the block, or that found no room, and closes
    /// connections. Work in proportion to the processes of the host.
    pub fn sweep(&self, id: BlockId) -> Swept {
        let mut swept = Swept::default();
        // A connection can be handed on inside the tree while it is looked at: until nothing more is found.
        for _ in 0..tree::PASSES {
            let members = {
                let mut inner = self.lock();
                let inner = &mut *inner;
                let (Some(attached), Some(roots)) = (&mut inner.attached, inner.roots.get(&id)) else {
                    return swept;
                };
                tree::complete(attached, id, roots, None)
            };
            swept.processes = members.len();
            let found = connections::close(&members);
            if let Some(attached) = &mut self.lock().attached {
                attached.remember_sockets(id, &found.cookies);
            }
            swept.closed += found.closed;
            swept.left = found.left;
            if found.closed == 0 {
                break;
            }
        }
        swept
    }

    /// Ends a block; with the last one, the programs leave the host.
    pub fn unblock(&self, id: BlockId) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.roots.remove(&id);
        let Some(attached) = &mut inner.attached else {
            return;
        };
        // Trees can lie in one another: what is below another block stays below it.
        for (other, roots) in &inner.roots {
            tree::complete(attached, *other, roots, Some(id));
        }
        attached.end(id);
        if attached.blocks().is_empty() {
            inner.detach(self.folder.as_deref());
        }
    }

    /// Ends every block.
    pub fn clear(&self) {
        let mut inner = self.lock();
        inner.roots.clear();
        inner.detach(self.folder.as_deref());
    }

    /// What a block has refused so far.
    pub fn counts(&self, id: BlockId) -> BlockCounts {
        let inner = self.lock();
        inner
            .attached
            .as_ref()
            .map(|attached| attached.counts(id))
            .unwrap_or_default()
    }

    /// Takes the first attempt since the last call.
    pub fn take_attempt(&self, id: BlockId) -> Option<Attempt> {
        self.lock().attached.as_mut()?.take_attempt(id)
    }

    /// Processes that are in a block now. Forgets those that ended while a look at the tree entered them.
    pub fn processes(&self, id: BlockId) -> usize {
        let mut inner = self.lock();
        let Some(attached) = &mut inner.attached else {
            return 0;
        };
        let members = attached.members().into_iter().filter(|(_, of)| *of == id);
        let (alive, ended): (Vec<u32>, Vec<u32>) = members
            .map(|(pid, _)| pid)
            .partition(|pid| procs::is_alive(*pid, None));
        for pid in ended {
            attached.leave(pid);
        }
        alive.len()
    }

    /// The block that a process is under.
    pub fn of_process(&self, pid: u32) -> Option<BlockId> {
        self.lock().attached.as_ref()?.of_process(pid)
    }

    /// How things stand.
    pub fn state(&self) -> State {
        let inner = self.lock();
        let attached = inner.attached.as_ref();
        State {
            attached: attached.is_some(),
            blocks: attached.map_or(0, |attached| attached.blocks().len()),
            processes: attached.map_or(0, |attached| attached.members().len()),
            lost: attached.map_or(0, Attached::lost),
            refused: inner.refused.clone(),
        }
    }
}

impl Inner {
    /// Attaches the programs where they are not.
    fn attach(&mut self, folder: Option<&Path>) -> Result<(), SensorError> {
        // Whoever removed the pins ended all blocks.
        if let (Some(folder), Some(_)) = (folder, &self.attached)
            && !pins::exist(folder)
        {
            self.attached = None;
            self.roots.clear();
        }
        if self.attached.is_some() {
            return Ok(());
        }
        let fresh = match folder {
            Some(folder) => pins::fresh(folder),
            None => Attached::fresh(None),
        };
        match fresh {
            Ok(attached) => {
                self.attached = Some(attached);
                self.refused = None;
                Ok(())
            }
            Err(error) => {
                self.refused = Some(error.to_string());
                Err(error)
            }
        }
    }

    fn detach(&mut self, folder: Option<&Path>) {
        if let Some(folder) = folder {
            pins::remove(folder);
        }
        // Without pins the links end with their descriptors.
        self.attached = None;
    }
}

/// Ends every block that is pinned below `folder`; whether there was anything. For when whoever pinned them is dead or
/// is to be overruled.
pub fn heal(folder: &Path) -> bool {
    pins::remove(&folder.join(pins::FOLDER))
}

/// Whether this kernel takes the programs, in words; loads them and attaches nothing.
///
/// # Errors
/// Why it does not.
pub fn examine() -> Result<String, String> {
    let root =
        root::open().map_err(|error| format!("the root of the control groups cannot be opened: {error}"))?;
    attached::try_load().map_err(|error| error.to_string())?;
    Ok(if root.is_whole {
        "the kernel takes the programs; they are attached to the root control group while a server is cut off"
            .to_owned()
    } else {
        "the kernel takes the programs, but this is a control group namespace: processes outside of it cannot be cut off"
            .to_owned()
    })
}

/// Processes of a tree, for tests and for what is shown: these and all below them, as procfs tells.
pub fn descendants(roots: &[Process]) -> HashSet<Process> {
    tree::below(roots.iter().map(|root| root.pid))
        .into_iter()
        .chain(roots.iter().copied())
        .collect()
}
