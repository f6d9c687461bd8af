//! The one thread that writes. Batches what is queued into a transaction; keeps what the disk refused.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use crate::{
    Baseline, DecisionRow, FindingRow, Held, ListMembers, Retention, StoreError, baseline, decision, finding,
    known,
};

/// Queued writes at most; a flood beyond it is dropped and counted.
const QUEUE: usize = 16_384;
/// Writes kept while the disk refuses them.
const BACKLOG: usize = 16_384;
const BATCH: usize = 512;
const RETRY: Duration = Duration::from_secs(1);
const EXPIRE_EVERY: u64 = 1_000;

/// A change of the store.
#[derive(Clone, Debug)]
pub enum WriteOp {
    /// Insert or replace a baseline.
    Baseline(Box<Baseline>),
    /// Forget a baseline.
    RemoveBaseline {
        /// User.
        uid: u32,
        /// Server identity.
        server: String,
        /// Item key.
        item: String,
    },
    /// Remember what a full list held.
    List {
        /// User.
        uid: u32,
        /// Server identity.
        server: String,
        /// Members.
        list: ListMembers,
        /// Nanoseconds since the epoch.
        at: i64,
    },
    /// Add a finding.
    Finding(Box<FindingRow>),
    /// Add a record of the decision chain.
    Decision(Box<DecisionRow>),
    /// A server spoke MCP.
    Known {
        /// User.
        uid: u32,
        /// Server identity.
        server: String,
        /// Nanoseconds since the epoch.
        at: i64,
    },
    /// Remember the state of a restriction, a request for approval or an exception; without a body, forget it.
    Held {
        /// Which.
        kind: Held,
        /// Number.
        id: u64,
        /// JSON.
        body: Option<String>,
    },
}

impl WriteOp {
    /// Value of the `op` label of `kams_store_errors_total`.
    const fn name(&self) -> &'static str {
        match self {
            Self::Baseline(_) | Self::RemoveBaseline { .. } => "baseline",
            Self::List { .. } => "list",
            Self::Finding(_) => "finding",
            Self::Decision(_) => "decision",
            Self::Held { .. } => "held",
            Self::Known { .. } => "known",
        }
    }

    fn apply(&self, db: &Connection) -> Result<(), rusqlite::Error> {
        match self {
            Self::Baseline(b) => baseline::put(db, b),
            Self::RemoveBaseline { uid, server, item } => baseline::remove(db, *uid, server, item),
            Self::List {
                uid,
                server,
                list,
                at,
            } => baseline::put_list(db, *uid, server, list, *at),
            Self::Finding(f) => finding::add(db, f),
            Self::Decision(d) => decision::add(db, d),
            Self::Known { uid, server, at } => known::put(db, *uid, server, *at),
            Self::Held { kind, id, body } => decision::hold(db, *kind, *id, body.as_deref()),
        }
    }
}

/// Health of the store.
#[derive(Clone, Debug, Default)]
pub struct StoreStats {
    /// Writes on disk.
    pub written: u64,
    /// Refused attempts by kind of write.
    pub errors: BTreeMap<&'static str, u64>,
    /// Writes waiting for the disk to accept them.
    pub backlog: usize,
    /// Writes given up, for want of room.
    pub dropped: u64,
    /// The last refusal; none once writing works again.
    pub failing: Option<String>,
}

enum Message {
    Write(WriteOp),
    Flush(SyncSender<Result<(), String>>),
    Stop,
}

#[derive(Debug)]
pub(crate) struct Writer {
    queue: SyncSender<Message>,
    stats: Arc<Mutex<StoreStats>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(db: Connection, retention: Retention) -> Result<Self, StoreError> {
        let (queue, messages) = sync_channel(QUEUE);
        let stats = Arc::new(Mutex::new(StoreStats::default()));
        let state = State {
            db,
            retention,
            backlog: VecDeque::new(),
            stats: Arc::clone(&stats),
            since_expiry: EXPIRE_EVERY,
        };
        let thread = thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || state.run(&messages))
            .map_err(StoreError::Thread)?;
        Ok(Self {
            queue,
            stats,
            thread: Some(thread),
        })
    }

    pub(crate) fn send(&self, op: WriteOp) -> bool {
        let sent = self.queue.try_send(Message::Write(op)).is_ok();
        if !sent {
            self.lock().dropped += 1;
        }
        sent
    }

    pub(crate) fn flush(&self, limit: Duration) -> Result<(), StoreError> {
        let (done, answer) = sync_channel(1);
        let slow = |why: &str| StoreError::Slow(limit, why.to_owned());
        self.queue.try_send(Message::Flush(done)).map_err(|e| match e {
            TrySendError::Full(_) => slow("its queue is full"),
            TrySendError::Disconnected(_) => slow("its writer has ended"),
        })?;
        match answer.recv_timeout(limit) {
            Ok(result) => result.map_err(|why| StoreError::Slow(limit, why)),
            Err(_) => Err(slow("the disk is slow or locked")),
        }
    }

    pub(crate) fn stats(&self) -> StoreStats {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StoreStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Blocks until there is room: what was accepted must reach the disk before the process ends.
        if self.queue.send(Message::Stop).is_ok()
            && let Some(thread) = self.thread.take()
        {
            drop(thread.join());
        }
    }
}

/// A write that did not go through, and where in the backlog it stands.
struct Refused {
    place: usize,
    op: &'static str,
    error: rusqlite::Error,
}

fn is_about_the_row(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{ConstraintViolation, TooBig, TypeMismatch};
    matches!(
        error.sqlite_error_code(),
        Some(ConstraintViolation | TooBig | TypeMismatch)
    )
}

struct State {
    db: Connection,
    retention: Retention,
    backlog: VecDeque<WriteOp>,
    stats: Arc<Mutex<StoreStats>>,
    since_expiry: u64,
}

impl State {
    fn run(mut self, messages: &Receiver<Message>) {
        // When the disk may be asked next.
        let mut again = Instant::now();
        loop {
            let mut flushes = Vec::new();
            let mut stop = false;
            let first = if self.backlog.is_empty() {
                messages.recv().map_err(|_ended| RecvTimeoutError::Disconnected)
            } else {
                messages.recv_timeout(again.saturating_duration_since(Instant::now()))
            };
            let mut next = match first {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Some(message) = next {
                match message {
                    Message::Write(op) => self.keep(op),
                    Message::Flush(done) => flushes.push(done),
                    Message::Stop => stop = true,
                }
                // A disk that refuses is asked again when its time has come, not for each write that joins the others.
                let wait = Instant::now() < again;
                next = if stop || (self.backlog.len() >= BATCH && !wait) {
                    None
                } else {
                    messages.try_recv().ok()
                };
            }
            if Instant::now() < again && flushes.is_empty() && !stop {
                continue;
            }
            let result = self.write_out();
            again = Instant::now() + if result.is_err() { RETRY } else { Duration::ZERO };
            for done in flushes {
                // A caller that gave up waiting has dropped its end; its answer is then nobody's.
                drop(done.try_send(result.clone()));
            }
            if stop {
                return;
            }
        }
    }

    fn keep(&mut self, op: WriteOp) {
        if self.backlog.len() >= BACKLOG {
            self.backlog.pop_front();
            self.lock().dropped += 1;
        }
        self.backlog.push_back(op);
    }

    fn write_out(&mut self) -> Result<(), String> {
        while !self.backlog.is_empty() {
            let count = self.backlog.len().min(BATCH);
            if let Err(Refused { place, op, error }) = self.transaction(count) {
                *self.lock().errors.entry(op).or_default() += 1;
                if is_about_the_row(&error) {
                    // It will never be accepted, and must not keep the others from the disk.
                    tracing::error!(%error, op, "a write that the schema refuses was given up");
                    self.backlog.remove(place);
                    self.lock().dropped += 1;
                    continue;
                }
                let mut stats = self.lock();
                let text = error.to_string();
                if stats.failing.is_none() {
                    tracing::error!(error = %text, "the store cannot write; Kams goes on from memory and tries again");
                }
                stats.failing = Some(text.clone());
                stats.backlog = self.backlog.len();
                return Err(text);
            }
            self.backlog.drain(..count);
            let mut stats = self.lock();
            stats.written += count as u64;
            stats.backlog = self.backlog.len();
            if stats.failing.take().is_some() {
                tracing::info!("the store writes again");
            }
            drop(stats);
            self.expire(count);
        }
        Ok(())
    }

    fn transaction(&mut self, count: usize) -> Result<(), Refused> {
        let step = self.db.transaction().map_err(|error| Refused {
            place: 0,
            op: "begin",
            error,
        })?;
        for (place, op) in self.backlog.iter().take(count).enumerate() {
            op.apply(&step).map_err(|error| Refused {
                place,
                op: op.name(),
                error,
            })?;
        }
        step.commit().map_err(|error| Refused {
            place: 0,
            op: "commit",
            error,
        })
    }

    fn expire(&mut self, written: usize) {
        self.since_expiry += written as u64;
        if self.since_expiry < EXPIRE_EVERY {
            return;
        }
        self.since_expiry = 0;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let oldest = now.saturating_sub(i64::from(self.retention.days).saturating_mul(86_400_000_000_000));
        let expired =
            finding::expire(&self.db, self.retention, now).and_then(|_| decision::expire(&self.db, oldest));
        if let Err(error) = expired {
            *self.lock().errors.entry("expire").or_default() += 1;
            tracing::warn!(%error, "old findings or decisions could not be removed");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StoreStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
