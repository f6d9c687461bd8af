//! What Kams keeps over a restart (DESIGN section 8): one SQLite file in WAL mode, written by one thread.
//!
//! The verdict path never waits for this crate: writes go into a bounded queue, and what the disk refuses is
//! kept in a bounded backlog, tried again, counted and said. Keep little: a row is server-advertised metadata
//! or a finding without payload; argument and result text never come here.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod decision;
pub mod error;
pub mod finding;
mod known;
mod migrate;
mod open;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

pub use baseline::{Baseline, BaselineState, ListMembers};
pub use decision::{DecisionRow, Held, Noted};
pub use error::StoreError;
pub use finding::{FindingFilter, FindingRow, Retention};
pub use writer::{StoreStats, WriteOp};

/// The store: a writer thread and one connection for reading.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    writer: writer::Writer,
    head: decision::HeadFile,
    reader: Mutex<Connection>,
}

impl Store {
    /// Opens `kams.db` in `dir`, creating or migrating it. A file that is no healthy database is set aside
    /// under a new name, and the returned text says so.
    pub fn open(dir: &Path, retention: Retention) -> Result<(Self, Option<String>), StoreError> {
        let path = dir.join("kams.db");
        let (write, notice) = open::open_for_writing(&path)?;
        let read = open::open_for_reading(&path)?;
        let writer = writer::Writer::start(write, retention)?;
        let beside = dir.join("decisions.head");
        let head = decision::HeadFile::open(&beside)
            .map_err(|source| StoreError::Folder { path: beside, source })?;
        Ok((
            Self {
                path,
                writer,
                head,
                reader: Mutex::new(read),
            },
            notice,
        ))
    }

    /// Where the database stands.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Queues a write; false when the queue is full (counted in [`StoreStats::dropped`]). Never blocks.
    pub fn write(&self, op: WriteOp) -> bool {
        self.writer.send(op)
    }

    /// Waits until all that was queued before is on disk, at most `limit`.
    pub fn flush(&self, limit: Duration) -> Result<(), StoreError> {
        self.writer.flush(limit)
    }

    /// Counters and the last error in words.
    pub fn stats(&self) -> StoreStats {
        self.writer.stats()
    }

    /// All baselines of one user's server.
    pub fn baselines(&self, uid: u32, server: &str) -> Result<Vec<Baseline>, StoreError> {
        baseline::of_server(&self.reader(), uid, server)
    }

    /// All baselines of one user, or of everybody; at most `limit` rows.
    pub fn all_baselines(&self, uid: Option<u32>, limit: usize) -> Result<Vec<Baseline>, StoreError> {
        baseline::all(&self.reader(), uid, limit)
    }

    /// What the full lists of one user's server held, per capability key.
    pub fn list_members(&self, uid: u32, server: &str) -> Result<Vec<ListMembers>, StoreError> {
        baseline::lists(&self.reader(), uid, server)
    }

    /// Servers that spoke MCP, by user and identity, the ones seen last at the end; at most `limit`.
    pub fn known_servers(&self, limit: u32) -> Result<Vec<(u32, String)>, StoreError> {
        Ok(known::newest(&self.reader(), limit)?)
    }

    /// Findings that match, newest last.
    pub fn findings(&self, filter: &FindingFilter) -> Result<Vec<FindingRow>, StoreError> {
        finding::select(&self.reader(), filter)
    }

    /// Records of one run, oldest first; at most `limit`.
    pub fn decisions_of(
        &self,
        uid: Option<u32>,
        run: &str,
        limit: u32,
    ) -> Result<Vec<DecisionRow>, StoreError> {
        decision::of_run(&self.reader(), uid, run, limit)
    }

    /// The last records of the newest `limit` runs and the newest record of all, in order.
    pub fn decision_ends(&self, limit: u32) -> Result<Vec<DecisionRow>, StoreError> {
        decision::ends(&self.reader(), limit)
    }

    /// Stretches of missing numbers between stored records, first and last of each; 64 at most.
    pub fn missing_decisions(&self) -> Result<Vec<(u64, u64)>, StoreError> {
        decision::missing(&self.reader())
    }

    /// What is held, as JSON, by number.
    pub fn held(&self, kind: Held) -> Result<Vec<String>, StoreError> {
        decision::held(&self.reader(), kind)
    }

    /// Remembers the newest record that was handed out, whether or not it is on disk yet. Waits for no disk.
    pub fn note_head(&self, head: &Noted) -> Result<(), StoreError> {
        self.head.note(head).map_err(|source| StoreError::Folder {
            path: self.path.with_file_name("decisions.head"),
            source,
        })
    }

    /// What [`Store::note_head`] remembered before this start; none where it never did.
    ///
    /// # Errors
    ///
    /// When the note cannot be read, or is none: it was damaged or changed.
    pub fn noted_head(&self) -> Result<Option<Noted>, StoreError> {
        self.head.read().map_err(|source| StoreError::Folder {
            path: self.path.with_file_name("decisions.head"),
            source,
        })
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
