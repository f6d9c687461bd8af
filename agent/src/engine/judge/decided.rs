//! What people decide about baselines: accept, pin, unpin, import.
//!
//! The engine's own memory changes in the same step as the store's queue, so that the next message is judged by what
//! was decided.

use std::sync::Arc;

use kams_detect::integrity::Definition;
use kams_export::view::Time;
use kams_store::{Baseline, BaselineState};
use serde::Serialize;
use serde_json::Value;

use super::baselines::{Kept, definition_of, digest};
use super::{Judge, Owner};
use crate::engine::sink::Sink;

/// A decision about baselines of one user's server.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Whose.
    pub uid: u32,
    /// Server identity.
    pub server: String,
    /// What.
    pub verb: Verb,
}

/// What was decided.
#[derive(Clone, Debug)]
pub enum Verb {
    /// What was seen last becomes the baseline; pinned stays pinned.
    Accept(Items),
    /// The baseline never moves by itself from now on.
    Pin(Items),
    /// It may move with a reported drift again.
    Unpin(Items),
    /// These rows take the place of what is known of their items. Digests are taken anew from the definitions.
    Import(Vec<Baseline>),
}

/// Which items of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Items {
    /// All.
    All,
    /// One, by its key (`tool:NAME`, `prompt:NAME`, `resource:URI`, `instructions`).
    One(String),
}

/// What became of one item.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// Whose.
    pub uid: u32,
    /// Server identity.
    pub server: String,
    /// Item key.
    pub item: String,
    /// `provisional` or `pinned`, after it.
    pub state: &'static str,
    /// False where there was nothing to do.
    pub changed: bool,
}

/// Why a decision was not carried out. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// No such item.
    #[error("nothing is known of {item} of {server}")]
    Unknown {
        /// Server.
        server: String,
        /// Item, or "any item".
        item: String,
    },
    /// Nothing to pin: policy refused the only definition that was seen.
    #[error("{item} has no baseline yet: what was seen of it was refused by policy; accept it first")]
    Nothing {
        /// Item.
        item: String,
    },
    /// A row that is none.
    #[error("{item}: not a stored definition of this kind of item")]
    Row {
        /// Item.
        item: String,
    },
}

impl Judge {
    /// Carries out a decision of user `by`. All or nothing.
    pub fn decide(
        &mut self,
        decided: Decided,
        by: u32,
        at: Time,
        sink: &mut dyn Sink,
    ) -> Result<Vec<Changed>, DecideError> {
        let Decided { uid, server, verb } = decided;
        let owner = Owner {
            uid,
            server: Arc::from(server.as_str()),
        };
        self.load(&owner);
        self.rest(owner.clone());
        let stamp = Stamp {
            by,
            at: at.unix_nanos(),
        };
        let changed = match verb {
            Verb::Import(rows) => self.import(&owner, rows, stamp)?,
            Verb::Accept(items) => self.each(&owner, &items, |kept| Ok(accept(kept, stamp)))?,
            Verb::Pin(items) => self.each(&owner, &items, |kept| pin(kept, stamp))?,
            Verb::Unpin(items) => self.each(&owner, &items, |kept| {
                Ok(set(kept, BaselineState::Provisional, stamp))
            })?,
        };
        let sessions: Vec<u64> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.owner == owner)
            .map(|(id, _)| *id)
            .collect();
        for item in changed.iter().filter(|c| c.changed) {
            for id in &sessions {
                self.show(*id, &owner, &item.item, sink);
            }
        }
        Ok(changed)
    }

    fn each(
        &mut self,
        owner: &Owner,
        items: &Items,
        change: impl Fn(&mut Kept) -> Result<bool, DecideError>,
    ) -> Result<Vec<Changed>, DecideError> {
        let known = self.baselines.entry(owner.clone()).or_default();
        let keys: Vec<String> = match items {
            Items::All => {
                let mut keys: Vec<String> = known.items.keys().cloned().collect();
                keys.sort();
                keys
            }
            Items::One(key) => known
                .items
                .contains_key(key)
                .then(|| key.clone())
                .into_iter()
                .collect(),
        };
        if keys.is_empty() {
            return Err(DecideError::Unknown {
                server: owner.server.to_string(),
                item: match items {
                    Items::All => "any item".to_owned(),
                    Items::One(key) => key.clone(),
                },
            });
        }
        let mut changed = Vec::new();
        let mut rows = Vec::new();
        for key in keys {
            let Some(kept) = known.items.get_mut(&key) else {
                continue;
            };
            let did = match change(kept) {
                Ok(did) => did,
                // Of many items, one without a baseline is left as it is.
                Err(_) if *items == Items::All => false,
                Err(error) => return Err(error),
            };
            if did {
                rows.push(kept.row.clone());
            }
            changed.push(shown(&kept.row, did));
        }
        for row in rows {
            self.write(row);
        }
        Ok(changed)
    }

    fn import(
        &mut self,
        owner: &Owner,
        rows: Vec<Baseline>,
        stamp: Stamp,
    ) -> Result<Vec<Changed>, DecideError> {
        let mut ready = Vec::new();
        for row in rows {
            let item = row.item.clone();
            let row = Baseline {
                uid: owner.uid,
                server: owner.server.to_string(),
                seen: None,
                changed_at: stamp.at,
                changed_by: Some(stamp.by),
                ..row
            };
            let row = checked(row).ok_or_else(|| DecideError::Row { item: item.clone() })?;
            let definition = definition_of(&row.item, &row.definition).ok_or(DecideError::Row { item })?;
            ready.push((row, definition));
        }
        let known = self.baselines.entry(owner.clone()).or_default();
        let mut changed = Vec::new();
        let mut writes = Vec::new();
        for (mut row, definition) in ready {
            let old = known.items.get(&row.item);
            let same = old.is_some_and(|old| old.row.digest == row.digest && old.row.state == row.state);
            changed.push(shown(&row, !same));
            if same {
                continue;
            }
            if let Some(old) = old {
                row.first_seen = old.row.first_seen;
                // What was seen last and is not what now counts stays to be decided.
                let last = old
                    .row
                    .seen
                    .clone()
                    .unwrap_or_else(|| (old.row.digest.clone(), old.row.definition.clone()));
                row.seen = Some(last).filter(|(seen, _)| !seen.is_empty() && *seen != row.digest);
            }
            writes.push(row.clone());
            known
                .items
                .insert(row.item.clone(), Kept::new(row, Some(definition)));
        }
        for row in writes {
            self.write(row);
        }
        Ok(changed)
    }
}

/// A stored definition of an item; none where it is not one.
pub fn definition(item: &str, stored: &Value) -> Option<Definition> {
    definition_of(item, &stored.to_string())
}

/// A row from outside with its digest taken anew from its definition; none where that is no definition of its item.
pub fn checked(row: Baseline) -> Option<Baseline> {
    let definition = definition_of(&row.item, &row.definition)?;
    let named = match row.item.split_once(':') {
        Some((_, name)) => name == definition.name,
        None => true,
    };
    named.then(|| Baseline {
        digest: digest(&definition),
        definition: definition.stored().to_string(),
        ..row
    })
}

#[derive(Clone, Copy)]
struct Stamp {
    by: u32,
    at: i64,
}

fn accept(kept: &mut Kept, stamp: Stamp) -> bool {
    let Some((digest, text)) = kept.row.seen.clone() else {
        return false;
    };
    let Some(definition) = definition_of(&kept.row.item, &text) else {
        return false;
    };
    let row = Baseline {
        digest,
        definition: text,
        seen: None,
        changed_at: stamp.at,
        changed_by: Some(stamp.by),
        ..kept.row.clone()
    };
    *kept = Kept::new(row, Some(definition));
    true
}

fn pin(kept: &mut Kept, stamp: Stamp) -> Result<bool, DecideError> {
    if kept.definition.is_none() {
        return Err(DecideError::Nothing {
            item: kept.row.item.clone(),
        });
    }
    Ok(set(kept, BaselineState::Pinned, stamp))
}

fn set(kept: &mut Kept, state: BaselineState, stamp: Stamp) -> bool {
    if kept.row.state == state {
        return false;
    }
    kept.row.state = state;
    kept.row.changed_at = stamp.at;
    kept.row.changed_by = Some(stamp.by);
    true
}

fn shown(row: &Baseline, changed: bool) -> Changed {
    Changed {
        uid: row.uid,
        server: row.server.clone(),
        item: row.item.clone(),
        state: row.state.name(),
        changed,
    }
}
