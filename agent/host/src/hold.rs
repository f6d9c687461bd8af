//! Processes that are held at their exec, and how they are let go when nobody else does it.
//!
//! The exec program enters each process in a map before it stops it. The map is pinned in a BPF filesystem: what a
//! killed daemon leaves stopped is named there, and [`heal`] lets it go. It is called by the daemon's parent when the
//! daemon dies, and by the service manager before a start and after a stop, because both can die together.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aya::maps::{Array, HashMap, Map, MapData, MapError};
use kams_sensor_abi::hold::HoldValue;

use crate::options::SensorError;
use crate::priority::undisturbed;
use crate::{clock, procs, stops};

/// Where BPF filesystems are mounted by convention.
const BPF_FILESYSTEM: &str = "/sys/fs/bpf";
const BPF_MAGIC: libc::__fsword_t = 0xcafe_4a11;
const HOLDS: &str = "holds";
const HEARTBEAT: &str = "heartbeat";

/// A held process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Process id.
    pub pid: u32,
    /// Start of the process, CLOCK_BOOTTIME ns.
    pub start_ns: u64,
    /// When it was stopped, CLOCK_BOOTTIME ns.
    pub since_ns: u64,
}

/// The map of held processes.
#[derive(Debug)]
pub(crate) struct HoldTable {
    map: Mutex<HashMap<MapData, u32, HoldValue>>,
}

impl HoldTable {
    pub(crate) fn new(map: Map) -> Result<Self, SensorError> {
        let map = HashMap::try_from(map).map_err(|error: MapError| SensorError::Refused {
            what: "map HOLDS".into(),
            detail: error.to_string(),
            remedy: "rebuild the object with `cargo xtask ebpf`",
        })?;
        Ok(Self { map: Mutex::new(map) })
    }

    /// Everything that is held.
    pub(crate) fn all(&self) -> Vec<Hold> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.keys()
            .filter_map(Result::ok)
            // An entry that vanishes while the table is read is none.
            .filter_map(|pid| Some((pid, undisturbed(|| map.get(&pid, 0)).ok()?)))
            .map(|(pid, value)| Hold {
                pid,
                start_ns: value.start_ns,
                since_ns: value.since_ns,
            })
            .collect()
    }

    /// A process is held no more. A later process with the same id keeps its entry.
    pub(crate) fn remove(&self, pid: u32, start_ns: u64) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if undisturbed(|| map.get(&pid, 0)).is_ok_and(|value| value.start_ns == start_ns) {
            // The kernel side removes it as well when the process ends.
            let _gone_already = undisturbed(|| map.remove(&pid));
        }
    }

    /// Lets a process go, and forgets it.
    pub(crate) fn let_go(&self, hold: Hold) -> bool {
        let resumed = resume(hold.pid, hold.start_ns);
        self.remove(hold.pid, hold.start_ns);
        resumed
    }

    /// Lets everything go.
    pub(crate) fn let_all_go(&self) -> usize {
        self.all().into_iter().filter(|hold| self.let_go(*hold)).count()
    }
}

/// Continues a stopped process if it is still the one that started then; whether there was one.
pub(crate) fn resume(pid: u32, start_ns: u64) -> bool {
    let Ok(process) = pidfd_open(pid) else {
        return false;
    };
    // Looked at after the descriptor is there: from then on the number cannot come to mean another process.
    procs::is_alive(pid, Some(start_ns)) && stops::continued(pid, &process).is_ok()
}

/// Kills a process if it is still the one that started then; whether there was one.
pub fn kill(pid: u32, start_ns: u64) -> bool {
    let Ok(process) = pidfd_open(pid) else {
        return false;
    };
    procs::is_alive(pid, Some(start_ns)) && pidfd_signal(&process, libc::SIGKILL).is_ok()
}

/// Kills a process if it is still the one that started then, and everything below it; whether there was one. What has
/// left its tree (a daemon of its own) is not found.
pub fn kill_tree(pid: u32, start_ns: u64) -> bool {
    // Looked up before anything dies, for orphans are no tree. Parents start before their children.
    let mut all: Vec<(u32, procs::Stat)> = procs::pids()
        .into_iter()
        .filter_map(|pid| Some((pid, procs::stat(pid)?)))
        .collect();
    all.sort_by_key(|(_, stat)| stat.start_ticks);
    let mut tree = HashSet::from([pid]);
    let below: Vec<(u32, u64)> = all
        .into_iter()
        .filter(|(child, stat)| tree.contains(&stat.ppid) && tree.insert(*child))
        .map(|(child, stat)| (child, stat.start_ticks.saturating_mul(clock::NS_PER_TICK)))
        .collect();
    let killed = kill(pid, start_ns);
    if killed {
        for (pid, start) in below {
            // One that has ended by itself is what is wanted.
            let _ended = kill(pid, start);
        }
    }
    killed
}

/// A descriptor that names this process for good.
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let returned = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    procs::new_fd(returned).ok_or_else(io::Error::last_os_error)
}

/// Sends a signal to the process.
pub(crate) fn pidfd_signal(process: &OwnedFd, signal: i32) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: takes numbers and a null pointer, which the call permits.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal,
            no_info,
            0,
        )
    };
    if returned == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The folder in which a daemon pins its map.
pub fn folder(name: &str) -> PathBuf {
    Path::new(BPF_FILESYSTEM).join(name)
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn is_bpf_filesystem(path: &str) -> bool {
    nix::sys::statfs::statfs(path).is_ok_and(|found| found.filesystem_type().0 == BPF_MAGIC)
}

/// Mounts the BPF filesystem where nobody has, as service managers do at boot.
///
/// # Errors
/// When it is not there and cannot be mounted.
pub fn mount_bpf_filesystem() -> io::Result<()> {
    if is_bpf_filesystem(BPF_FILESYSTEM) {
        return Ok(());
    }
    let (source, target) = (c"bpf".as_ptr(), c"/sys/fs/bpf".as_ptr());
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: three strings that end with NUL; the options may be null, or a string as here.
    let returned = unsafe { libc::mount(source, target, source, flags, c"mode=0700".as_ptr().cast()) };
    if returned == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Pins both maps, in place of those of an earlier daemon, whose held processes are let go first.
pub(crate) fn pin(folder: &Path, holds: &Map, heartbeat: &Map) -> Result<(), SensorError> {
    let failed = |what, source| SensorError::Io { what, source };
    make_folder(folder)
        .map_err(|source| failed("cannot make the folder for the map of held processes", source))?;
    heal(folder);
    for (name, map) in [(HOLDS, holds), (HEARTBEAT, heartbeat)] {
        let path = folder.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("cannot replace the pinned map of held processes", error));
            }
            _ => {}
        }
        map.pin(&path).map_err(|error| SensorError::Refused {
            what: format!("to pin {}", path.display()),
            detail: error.to_string(),
            remedy: "check that /sys/fs/bpf is a BPF filesystem",
        })?;
    }
    Ok(())
}

/// Lets every process go that the map pinned in `folder` names, and ends further holding by the programs that use it.
/// Returns how many were let go; 0 when there is no such map.
///
/// For when whoever pinned it is dead: a living injector would only find its targets running.
pub fn heal(folder: &Path) -> usize {
    let Some(table) = pinned_holds(&folder.join(HOLDS)) else {
        return 0;
    };
    still(&folder.join(HEARTBEAT));
    let mut resumed = 0;
    // A program that looked at the heartbeat just before may hold one more.
    for pause in [0, 1, 10] {
        std::thread::sleep(Duration::from_millis(pause));
        resumed += table.let_all_go();
    }
    resumed
}

/// Removes what [`heal`] needs, and the folder where it is empty then: for when no worker is to follow.
///
/// # Errors
/// When a pinned map is there and cannot be removed.
pub fn unpin(folder: &Path) -> io::Result<()> {
    for name in [HOLDS, HEARTBEAT] {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match std::fs::remove_dir(folder) {
        // Other maps of the same daemon: not ours to remove.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn pinned_holds(path: &Path) -> Option<HoldTable> {
    let data = MapData::from_pin(path).ok()?;
    HoldTable::new(Map::HashMap(data)).ok()
}

fn still(path: &Path) {
    let Ok(data) = MapData::from_pin(path) else { return };
    if let Ok(mut beat) = Array::<MapData, u64>::try_from(Map::Array(data)) {
        // Without it the programs stop holding by themselves, a second later.
        let _left_to_age = beat.set(0, 0, 0);
    }
}
