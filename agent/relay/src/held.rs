//! Requests that stepped out of the line until a person has decided.

use std::time::{Duration, Instant};

use crate::lane::Item;
use crate::wire::Way;

/// Messages that may wait at once, and their bytes. What is beyond is refused.
const MOST: usize = 256;
const MOST_BYTES: usize = 32 << 20;
/// How much longer than the engine's own limit the relay waits for it.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) way: Way,
    pub(crate) item: Item,
    /// What the sender is told if nobody decides.
    pub(crate) text: String,
    until: Instant,
}

/// All of one relay.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    all: Vec<Held>,
    bytes: usize,
}

impl Waiting {
    /// Puts a message aside; gives it back where too many wait.
    pub(crate) fn add(
        &mut self,
        way: Way,
        item: Item,
        millis: u64,
        text: String,
        now: Instant,
    ) -> Option<Item> {
        if self.all.len() >= MOST || self.bytes.saturating_add(item.bytes.len()) > MOST_BYTES {
            return Some(item);
        }
        self.bytes += item.bytes.len();
        // A limit of years is one that never comes.
        let limit = Duration::from_millis(millis.min(1 << 40));
        let until = now.checked_add(limit + GRACE).unwrap_or(now + GRACE);
        self.all.push(Held {
            way,
            item,
            text,
            until,
        });
        None
    }

    pub(crate) fn take(&mut self, seq: u64) -> Option<Held> {
        let at = self.all.iter().position(|held| held.item.seq == seq)?;
        Some(self.remove(at))
    }

    /// The request that a cancellation of this id ends.
    pub(crate) fn cancelled(&mut self, id: &str) -> Option<Held> {
        let at = self
            .all
            .iter()
            .position(|held| held.way == Way::ToServer && held.item.head.id.as_deref() == Some(id))?;
        Some(self.remove(at))
    }

    /// One whose time is over. Without an engine that is each of them: the next engine denies what waited under the
    /// one before, so there is nobody to wait for.
    pub(crate) fn expired(&mut self, now: Instant, engine: bool) -> Option<Held> {
        let at = self.all.iter().position(|held| !engine || held.until <= now)?;
        Some(self.remove(at))
    }

    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.all.iter().map(|held| held.until).min()
    }

    pub(crate) fn any(&self, way: Way) -> bool {
        self.all.iter().any(|held| held.way == way)
    }

    pub(crate) fn take_all(&mut self) -> Vec<Held> {
        self.bytes = 0;
        std::mem::take(&mut self.all)
    }

    fn remove(&mut self, at: usize) -> Held {
        let held = self.all.remove(at);
        self.bytes = self.bytes.saturating_sub(held.item.bytes.len());
        held
    }
}
