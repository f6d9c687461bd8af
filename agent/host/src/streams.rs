//! The table of watched streams: keys of the agent's end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::{HashMap, MapData, MapError};
use kams_sensor_abi::stream::{OP_READ, OP_WRITE, StreamKey as AbiKey, StreamValue};

use crate::clock;
use crate::event::{LossReason, Object, Op, StreamId, StreamKey};
use crate::losses::reasons_of;
use crate::options::SensorError;
use crate::priority::undisturbed;

/// High bits of ids given by the user side; the kernel side uses CPU number + 1 there.
const USER_ID_BASE: u64 = 0xffff << 48;

/// Whether this side made the watch.
pub(crate) const fn is_user_id(id: StreamId) -> bool {
    id.0 >= USER_ID_BASE
}

/// Whose stream is to be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The agent's end.
    pub key: StreamKey,
    /// Inode number of the object ([`crate::FdShape::far_ino`]); with 0 a reused object is not noticed.
    pub ino: u64,
    /// The server's process.
    pub server: u32,
    /// The agent's process.
    pub agent: u32,
}

/// A watched stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedStream {
    /// What is watched.
    pub watch: Watch,
    /// This watch.
    pub id: StreamId,
    /// Since when, CLOCK_BOOTTIME ns.
    pub since_ns: u64,
    /// Last call seen, CLOCK_BOOTTIME ns; `None` before the first.
    pub used_ns: Option<u64>,
    /// Bytes lost on it so far.
    pub lost_bytes: u64,
    /// Times something was lost on it so far.
    pub lost_count: u32,
    /// Why.
    pub lost_reasons: Vec<LossReason>,
}

/// The map, and the numbering of entries made by this side.
#[derive(Debug)]
pub(crate) struct StreamTable {
    map: Mutex<HashMap<MapData, AbiKey, StreamValue>>,
    max: u32,
    next_id: AtomicU64,
}

pub(crate) const fn abi_key(key: StreamKey) -> AbiKey {
    let op = match key.op {
        Op::Read => OP_READ,
        Op::Write => OP_WRITE,
    };
    AbiKey {
        object: key.object.0,
        op,
        pad: 0,
    }
}

pub(crate) const fn key_of(object: u64, op: u32) -> StreamKey {
    let op = if op == OP_WRITE { Op::Write } else { Op::Read };
    StreamKey {
        object: Object(object),
        op,
    }
}

fn watched(key: AbiKey, value: &StreamValue) -> WatchedStream {
    WatchedStream {
        watch: Watch {
            key: key_of(key.object, key.op),
            ino: value.ino,
            server: value.server,
            agent: value.agent,
        },
        id: StreamId(value.id),
        since_ns: value.since_ns,
        used_ns: (value.used_ns != 0).then_some(value.used_ns),
        lost_bytes: value.lost_bytes,
        lost_count: value.lost_count,
        lost_reasons: reasons_of(value.lost_reasons),
    }
}

impl StreamTable {
    pub(crate) fn new(map: HashMap<MapData, AbiKey, StreamValue>, max: u32) -> Self {
        Self {
            map: Mutex::new(map),
            max,
            next_id: AtomicU64::new(1),
        }
    }

    pub(crate) const fn capacity(&self) -> u32 {
        self.max
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<MapData, AbiKey, StreamValue>> {
        // The guarded value is a map handle without invariants of its own; a poisoned lock does no harm.
        self.map.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Begins to watch; an entry that exists for the same object, inode and server stays as it is.
    pub(crate) fn insert(&self, watch: &Watch) -> Result<StreamId, SensorError> {
        let mut map = self.lock();
        let key = abi_key(watch.key);
        if let Ok(old) = undisturbed(|| map.get(&key, 0))
            && old.ino == watch.ino
            && old.server == watch.server
        {
            return Ok(StreamId(old.id));
        }
        let id = USER_ID_BASE | self.next_id.fetch_add(1, Ordering::Relaxed);
        let value = StreamValue {
            id,
            ino: watch.ino,
            since_ns: clock::boot_ns(),
            server: watch.server,
            agent: watch.agent,
            ..StreamValue::default()
        };
        match undisturbed(|| map.insert(key, value, 0)) {
            Ok(()) => Ok(StreamId(id)),
            Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::E2BIG) => {
                Err(SensorError::StreamsFull { max: self.max })
            }
            Err(error) => Err(SensorError::Refused {
                what: "an entry of the stream table".into(),
                detail: error.to_string(),
                remedy: "run `kams doctor`",
            }),
        }
    }

    pub(crate) fn get(&self, key: StreamKey) -> Option<WatchedStream> {
        let abi = abi_key(key);
        let map = self.lock();
        let value = undisturbed(|| map.get(&abi, 0));
        value.ok().map(|value| watched(abi, &value))
    }

    /// Ends a watch; with `id` only if it is still that one.
    pub(crate) fn remove(&self, key: StreamKey, id: Option<StreamId>) -> bool {
        let mut map = self.lock();
        let abi = abi_key(key);
        if let Some(id) = id
            && undisturbed(|| map.get(&abi, 0)).map_or(true, |value| value.id != id.0)
        {
            return false;
        }
        undisturbed(|| map.remove(&abi)).is_ok()
    }

    /// Every entry. Entries changed meanwhile may be missing.
    pub(crate) fn all(&self) -> Vec<WatchedStream> {
        self.all_values()
            .iter()
            .map(|(key, value)| watched(*key, value))
            .collect()
    }

    /// Every entry as the kernel side keeps it.
    pub(crate) fn all_values(&self) -> Vec<(AbiKey, StreamValue)> {
        let map = self.lock();
        // Entry by entry: a walk through a large table is no short work.
        let value = |key: AbiKey| Some((key, undisturbed(|| map.get(&key, 0)).ok()?));
        map.keys().filter_map(Result::ok).filter_map(value).collect()
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.lock().keys().filter_map(Result::ok).count()
    }
}
