//! The record stream: a bounded memory of the last records of each user, and any number of followers.
//!
//! The engine publishes and never waits: a follower that does not keep up loses records of its own queue, and
//! is told how many. Memory and queues are kept per user, so that one user's noise cannot push another
//! user's records out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kams_export::view::Record;
use tokio::sync::Notify;

use super::Scope;

/// Sizes of a [`Feed`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FeedLimits {
    /// Records kept per user.
    pub per_user: usize,
    /// Users with records kept; the one whose last record is oldest is forgotten first.
    pub users: usize,
    /// Records that may wait for one follower.
    pub follower: usize,
    /// Followers at once.
    pub followers: usize,
}

impl Default for FeedLimits {
    fn default() -> Self {
        Self {
            per_user: 10_000,
            users: 256,
            follower: 4_096,
            followers: 64,
        }
    }
}

/// Chooses records for a reader, called under the feed's lock: must be quick.
pub type Select = Box<dyn Fn(&Record) -> bool + Send>;

/// The record stream.
pub struct Feed {
    limits: FeedLimits,
    instance: String,
    inner: Mutex<Inner>,
}

struct Inner {
    next_seq: u64,
    memory: BTreeMap<u32, VecDeque<Arc<Record>>>,
    followers: BTreeMap<u64, Queue>,
    next_follower: u64,
}

struct Queue {
    scope: Scope,
    select: Select,
    waiting: VecDeque<Arc<Record>>,
    missed: u64,
    wake: Arc<Notify>,
}

/// More followers than [`FeedLimits::followers`].
#[derive(Debug, thiserror::Error)]
#[error("{limit} followers are connected, which is the limit")]
pub struct TooManyFollowers {
    /// The limit.
    pub limit: usize,
}

impl Feed {
    /// A feed without records. `instance` must differ for each start of the daemon.
    pub fn new(limits: FeedLimits, instance: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            limits,
            instance: instance.into(),
            inner: Mutex::new(Inner {
                next_seq: 1,
                memory: BTreeMap::new(),
                followers: BTreeMap::new(),
                next_follower: 0,
            }),
        })
    }

    /// Which start of the daemon this is.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Number that the next record will get.
    pub fn next_seq(&self) -> u64 {
        self.lock().next_seq
    }

    /// Numbers the record, remembers it and hands it to the followers that want it. Never waits for a reader.
    /// Returns the number. Records without a user (the stream's own lines) are not published: 0.
    pub fn publish(&self, mut record: Record) -> u64 {
        let Some(uid) = record.uid() else { return 0 };
        let mut inner = self.lock();
        let seq = inner.next_seq;
        inner.next_seq += 1;
        record.set_seq(seq);
        let record = Arc::new(record);
        for queue in inner.followers.values_mut() {
            queue.offer(uid, &record, self.limits.follower);
        }
        inner.remember(uid, record, &self.limits);
        seq
    }

    /// Remembered records numbered above `since`, oldest first, at most the newest `limit` of them.
    pub fn since(
        &self,
        scope: Scope,
        since: u64,
        limit: usize,
        select: &dyn Fn(&Record) -> bool,
    ) -> Vec<Arc<Record>> {
        let inner = self.lock();
        let mut found: Vec<Arc<Record>> = Vec::new();
        for (_, records) in inner.memory.iter().filter(|(uid, _)| scope.admits(**uid)) {
            let newest = records
                .iter()
                .rev()
                .take_while(|r| r.seq().is_some_and(|seq| seq > since));
            found.extend(newest.filter(|r| select(r)).take(limit).map(Arc::clone));
        }
        drop(inner);
        found.sort_by_key(|r| r.seq());
        found.split_off(found.len().saturating_sub(limit))
    }

    /// Follows the stream from now on, after the remembered records above `since` (none: only new ones).
    /// Between the two nothing is lost or doubled.
    pub fn follow(
        self: &Arc<Self>,
        scope: Scope,
        since: Option<u64>,
        select: Select,
    ) -> Result<Follower, TooManyFollowers> {
        let mut inner = self.lock();
        if inner.followers.len() >= self.limits.followers {
            return Err(TooManyFollowers {
                limit: self.limits.followers,
            });
        }
        let mut queue = Queue {
            scope,
            select,
            waiting: VecDeque::new(),
            missed: 0,
            wake: Arc::new(Notify::new()),
        };
        if let Some(since) = since {
            queue.fill(&inner.memory, since, self.limits.follower);
        }
        let wake = Arc::clone(&queue.wake);
        let id = inner.next_follower;
        inner.next_follower += 1;
        inner.followers.insert(id, queue);
        drop(inner);
        Ok(Follower {
            feed: Arc::clone(self),
            id,
            wake,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock leaves at worst one record half handed out: the feed stays usable.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn remember(&mut self, uid: u32, record: Arc<Record>, limits: &FeedLimits) {
        if !self.memory.contains_key(&uid) && self.memory.len() >= limits.users {
            let last = |records: &VecDeque<Arc<Record>>| records.back().and_then(|r| r.seq());
            let stalest = self.memory.iter().min_by_key(|(_, records)| last(records));
            if let Some(stalest) = stalest.map(|(uid, _)| *uid) {
                self.memory.remove(&stalest);
            }
        }
        let records = self.memory.entry(uid).or_default();
        if records.len() >= limits.per_user {
            records.pop_front();
        }
        records.push_back(record);
    }
}

impl Queue {
    fn wants(&self, uid: u32, record: &Record) -> bool {
        self.scope.admits(uid) && (self.select)(record)
    }

    fn offer(&mut self, uid: u32, record: &Arc<Record>, limit: usize) {
        if !self.wants(uid, record) {
            return;
        }
        if self.waiting.len() >= limit {
            // The oldest go: who falls behind wants to see where things stand now.
            self.waiting.pop_front();
            self.missed += 1;
        }
        self.waiting.push_back(Arc::clone(record));
        self.wake.notify_one();
    }

    fn fill(&mut self, memory: &BTreeMap<u32, VecDeque<Arc<Record>>>, since: u64, limit: usize) {
        let mut found: Vec<Arc<Record>> = Vec::new();
        for (uid, records) in memory {
            let newer = records.iter().filter(|r| r.seq().is_some_and(|seq| seq > since));
            found.extend(newer.filter(|r| self.wants(*uid, r)).map(Arc::clone));
        }
        found.sort_by_key(|r| r.seq());
        let skip = found.len().saturating_sub(limit);
        self.missed = skip as u64;
        self.waiting = found.split_off(skip).into();
    }
}

/// One reader of the stream. Dropping it ends the subscription.
pub struct Follower {
    feed: Arc<Feed>,
    id: u64,
    wake: Arc<Notify>,
}

/// What a follower gets next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// A record.
    Record(Arc<Record>),
    /// So many records of its selection were dropped before the next one.
    Missed(u64),
}

impl Follower {
    /// The next record, or how many were missed before it. Safe to cancel: nothing is taken before it returns.
    pub async fn next(&mut self) -> Next {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            self.wake.notified().await;
        }
    }

    /// The next record if one waits.
    pub fn try_next(&mut self) -> Option<Next> {
        let mut inner = self.feed.lock();
        let queue = inner.followers.get_mut(&self.id)?;
        if queue.missed > 0 {
            return Some(Next::Missed(std::mem::take(&mut queue.missed)));
        }
        queue.waiting.pop_front().map(Next::Record)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.feed.lock().followers.remove(&self.id);
    }
}
