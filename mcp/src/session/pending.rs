//! Open requests of one direction, and answers that came before their request.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::Nanos;
use crate::event::{Asked, BatchPlace};
use crate::id::RequestId;

/// An open request.
#[derive(Debug)]
struct Open {
    asked: Asked,
    /// Place in the order of arrival.
    number: u64,
    /// An older open request with the same id; it is answered first.
    older: Option<Asked>,
    /// Already paired with an answer that the capture saw before the request. Whether that was the true answer is
    /// not known, so a second one is paired too.
    early: bool,
}

/// The open requests of one direction. They have no time limit, only a number.
#[derive(Debug, Default)]
pub(super) struct Pending {
    open: HashMap<RequestId, Open>,
    order: BTreeMap<u64, RequestId>,
    tokens: HashMap<RequestId, RequestId>,
    next: u64,
    /// How many of `open` are only kept for a second answer.
    early: usize,
}

/// What adding a request did.
pub(super) struct Added {
    /// The id was in use.
    pub(super) reused: bool,
    /// What had to make place.
    pub(super) evicted: Option<Asked>,
}

impl Pending {
    /// Adds a request; keeps at most `cap`.
    pub(super) fn add(&mut self, mut asked: Asked, cap: usize) -> Added {
        let id = asked.id.clone();
        let mut evicted = None;
        let older = match self.remove(&id) {
            Some(open) if !open.early => Some(Asked {
                ambiguous: true,
                ..open.older.unwrap_or(open.asked)
            }),
            _ => None,
        };
        let reused = older.is_some();
        asked.ambiguous |= reused;
        if self.open.len() >= cap.max(1)
            && let Some((_, oldest)) = self.order.pop_first()
        {
            evicted = self
                .remove(&oldest)
                .filter(|open| !open.early)
                .map(|open| open.asked);
        }
        if let Some(token) = asked.progress_token.clone() {
            self.tokens.insert(token, id.clone());
        }
        let number = self.next;
        self.next += 1;
        self.order.insert(number, id.clone());
        self.open.insert(
            id,
            Open {
                asked,
                number,
                older,
                early: false,
            },
        );
        Added { reused, evicted }
    }

    /// The request that an answer with this id belongs to; it is open no longer.
    pub(super) fn answer(&mut self, id: &RequestId) -> Option<Asked> {
        if let Some(open) = self.open.get_mut(id)
            && let Some(older) = open.older.take()
        {
            return Some(older);
        }
        self.remove(id).map(|open| open.asked)
    }

    /// Marks a request as answered early, and gives what is known of it.
    pub(super) fn answer_early(&mut self, id: &RequestId) -> Option<Asked> {
        let open = self.open.get_mut(id)?;
        if !std::mem::replace(&mut open.early, true) {
            self.early += 1;
        }
        open.asked.ambiguous = true;
        Some(open.asked.clone())
    }

    /// Whether an answer with this id would be paired.
    pub(super) fn contains(&self, id: &RequestId) -> bool {
        self.open.contains_key(id)
    }

    /// The newest open request with this id.
    pub(super) fn get_mut(&mut self, id: &RequestId) -> Option<&mut Asked> {
        self.open
            .get_mut(id)
            .filter(|open| !open.early)
            .map(|open| &mut open.asked)
    }

    /// The open request that carries this progress token.
    pub(super) fn by_token(&self, token: &RequestId) -> Option<&Asked> {
        self.open.get(self.tokens.get(token)?).map(|open| &open.asked)
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len().saturating_sub(self.early)
    }

    fn remove(&mut self, id: &RequestId) -> Option<Open> {
        let open = self.open.remove(id)?;
        self.order.remove(&open.number);
        self.early -= usize::from(open.early);
        if let Some(token) = &open.asked.progress_token
            && self.tokens.get(token) == Some(id)
        {
            self.tokens.remove(token);
        }
        Some(open)
    }
}

/// An answer that waits for its request.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: RequestId,
    pub(super) time: Nanos,
    pub(super) line: Box<str>,
    pub(super) bytes: u64,
    pub(super) gap: bool,
    pub(super) batch: Option<BatchPlace>,
}

/// Answers that wait for their requests, oldest first.
#[derive(Debug, Default)]
pub(super) struct Early {
    held: VecDeque<Held>,
    bytes: usize,
}

impl Early {
    /// Keeps an answer.
    pub(super) fn hold(&mut self, held: Held) {
        self.bytes += held.line.len();
        self.held.push_back(held);
    }

    /// The oldest held answer with this id.
    pub(super) fn take(&mut self, id: &RequestId) -> Option<Held> {
        if self.held.is_empty() {
            return None;
        }
        let at = self.held.iter().position(|held| held.id == *id)?;
        let held = self.held.remove(at)?;
        self.bytes -= held.line.len();
        Some(held)
    }

    /// The next answer that waited since before `since`, or that is too many for the limits.
    pub(super) fn expired(&mut self, since: Nanos, count: usize, bytes: usize) -> Option<Held> {
        let first = self.held.front()?;
        if first.time >= since && self.held.len() <= count && self.bytes <= bytes {
            return None;
        }
        let held = self.held.pop_front()?;
        self.bytes -= held.line.len();
        Some(held)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}
