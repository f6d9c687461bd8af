//! What each user's servers said before, and what that makes of what they say now.
//!
//! The memory here is the truth while a server lives; the store follows behind. A pinned baseline never moves by
//! itself. A provisional one moves with a reported drift, unless policy would have blocked it.

use std::collections::{HashMap, HashSet};

use kams_detect::integrity::{self, Definition, Subject};
use kams_mcp::ListKind;
use kams_policy::{Action, Decision};
use kams_store::{Baseline, BaselineState, ListMembers, WriteOp};

use super::lists::item_key;
use super::{Case, Judge, Owner};
use crate::engine::sink::Sink;

/// Items of one server that are kept.
const MOST: usize = 20_000;

/// Baselines of one user's server.
#[derive(Debug, Default)]
pub(super) struct ServerBaselines {
    items: HashMap<String, Kept>,
    /// By capability key and list: members of the last full list.
    full: HashMap<String, HashSet<String>>,
}

#[derive(Debug)]
struct Kept {
    row: Baseline,
    definition: Definition,
}

impl Judge {
    /// Reads a server's baselines from the store, once while it is in use.
    pub(super) fn load(&mut self, owner: &Owner) {
        if self.baselines.contains_key(owner) {
            return;
        }
        let mut known = ServerBaselines::default();
        if let Some(store) = &self.store {
            match store.baselines(owner.uid, &owner.server) {
                Ok(rows) => known.items.extend(rows.into_iter().filter_map(read)),
                Err(error) => {
                    tracing::error!(%error, server = %owner.server, "baselines cannot be read; they are learned anew")
                }
            }
            if let Ok(lists) = store.list_members(owner.uid, &owner.server) {
                known.full.extend(
                    lists
                        .into_iter()
                        .map(|l| (l.capabilities, l.items.into_iter().collect())),
                );
            }
        }
        self.baselines.insert(owner.clone(), known);
    }

    /// Forgets and re-reads a server's baselines: somebody pinned or accepted.
    pub fn reload(&mut self, owner: &Owner) {
        if self.baselines.remove(owner).is_some() {
            self.load(owner);
        }
    }

    /// One definition as it was just listed. `capabilities` is the key of its list; none outside lists.
    pub(super) fn definition(
        &mut self,
        case: &Case<'_>,
        now: &Definition,
        capabilities: Option<&str>,
        sink: &mut dyn Sink,
    ) {
        let owner = Owner {
            uid: case.party.uid,
            server: case.party.server.clone(),
        };
        let key = item_key(now);
        let Some(known) = self.baselines.get(&owner) else {
            return;
        };
        let thresholds = self.thresholds;
        let Some(kept) = known.items.get(&key) else {
            let list = capabilities.and_then(|c| known.full.get(&list_key(c, now.subject)));
            let added = list.is_some_and(|list| !list.contains(&key));
            let all_pinned =
                !known.items.is_empty() && known.items.values().all(|k| k.row.state == BaselineState::Pinned);
            let mut blocked = false;
            if added && now.subject == Subject::Tool {
                for finding in integrity::diff(None, Some(now), all_pinned, thresholds) {
                    blocked |= blocks(&self.report(case, &finding, sink));
                }
            } else if let Some(finding) = integrity::first_sighting(now, thresholds) {
                blocked = blocks(&self.report(case, &finding, sink));
            }
            // What policy refuses is remembered as seen, so that a person can accept it; never as the baseline.
            self.learn(&owner, key, now, case, !blocked);
            return;
        };
        let digest = digest(now);
        if kept.row.digest == digest {
            return;
        }
        let again = kept.row.seen.as_ref().is_some_and(|(seen, _)| *seen == digest);
        if again {
            return;
        }
        let pinned = kept.row.state == BaselineState::Pinned;
        let before = kept.definition.clone();
        let mut blocked = false;
        for finding in integrity::diff(Some(&before), Some(now), pinned, thresholds) {
            blocked |= blocks(&self.report(case, &finding, sink));
        }
        self.learn(&owner, key, now, case, !pinned && !blocked);
    }

    /// A list is complete: what is missing against the last full one of the same kind?
    pub(super) fn complete(
        &mut self,
        case: &Case<'_>,
        list: ListKind,
        capabilities: &str,
        items: Vec<String>,
        sink: &mut dyn Sink,
    ) {
        let owner = Owner {
            uid: case.party.uid,
            server: case.party.server.clone(),
        };
        let subject = match list {
            ListKind::Tools => Subject::Tool,
            ListKind::Prompts => Subject::Prompt,
            _ => Subject::Resource,
        };
        let Some(known) = self.baselines.get_mut(&owner) else {
            return;
        };
        let full = list_key(capabilities, subject);
        let now: HashSet<String> = items.iter().cloned().collect();
        let before = known.full.insert(full.clone(), now.clone());
        if before.as_ref() == Some(&now) {
            return;
        }
        let mut gone: Vec<String> = before
            .into_iter()
            .flatten()
            .filter(|key| !now.contains(key))
            .collect();
        gone.sort();
        let removed: Vec<(Definition, bool)> = gone
            .iter()
            .filter_map(|key| known.items.get(key))
            .filter(|kept| kept.definition.subject == Subject::Tool)
            .map(|kept| (kept.definition.clone(), kept.row.state == BaselineState::Pinned))
            .collect();
        for (definition, pinned) in removed {
            for finding in integrity::diff(Some(&definition), None, pinned, self.thresholds) {
                self.report(case, &finding, sink);
            }
        }
        if let Some(store) = &self.store {
            let list = ListMembers {
                capabilities: full,
                items,
            };
            let server = owner.server.to_string();
            store.write(WriteOp::List {
                uid: owner.uid,
                server,
                list,
                at: case.time.unix_nanos(),
            });
        }
    }

    /// The baseline state of a tool.
    pub fn state_of(&self, owner: &Owner, tool: &str) -> Option<&'static str> {
        let kept = self.baselines.get(owner)?.items.get(&format!("tool:{tool}"))?;
        Some(kept.row.state.name())
    }

    /// Remembers a definition: as the baseline, or only as what was last seen.
    fn learn(&mut self, owner: &Owner, key: String, now: &Definition, case: &Case<'_>, moves: bool) {
        let Some(known) = self.baselines.get_mut(owner) else {
            return;
        };
        if !known.items.contains_key(&key) && known.items.len() >= MOST {
            return;
        }
        let at = case.time.unix_nanos();
        let text = now.stored().to_string();
        let digest = digest(now);
        let version = case
            .session
            .identity()
            .server
            .as_ref()
            .map(|s| s.version.to_string());
        let row = match known.items.get(&key) {
            Some(kept) if !moves => Baseline {
                seen: Some((digest, text)),
                ..kept.row.clone()
            },
            kept => {
                // A first sighting that policy refuses has no baseline text: only what was seen.
                let (digest_now, text_now, seen) = if moves {
                    (digest, text, None)
                } else {
                    (String::new(), "{}".to_owned(), Some((digest, text)))
                };
                Baseline {
                    uid: owner.uid,
                    server: owner.server.to_string(),
                    item: key.clone(),
                    state: BaselineState::Provisional,
                    digest: digest_now,
                    definition: text_now,
                    version,
                    seen,
                    first_seen: kept.map_or(at, |k| k.row.first_seen),
                    changed_at: at,
                    changed_by: None,
                }
            }
        };
        if let Some(store) = &self.store {
            store.write(WriteOp::Baseline(Box::new(row.clone())));
        }
        if moves {
            known.items.insert(
                key,
                Kept {
                    row,
                    definition: now.clone(),
                },
            );
        } else if let Some(kept) = known.items.get_mut(&key) {
            kept.row = row;
        } else if let Some((key, kept)) = read(row) {
            known.items.insert(key, kept);
        }
    }
}

fn read(row: Baseline) -> Option<(String, Kept)> {
    let value = serde_json::from_str(&row.definition).ok()?;
    let subject = match row.item.split(':').next()? {
        "tool" => Subject::Tool,
        "prompt" => Subject::Prompt,
        "instructions" => Subject::Instructions,
        _ => Subject::Resource,
    };
    let definition = Definition::from_stored(subject, &value).ok()?;
    Some((row.item.clone(), Kept { row, definition }))
}

/// One digest over both parts of a definition.
pub fn digest(definition: &Definition) -> String {
    format!("{} {}", definition.description_digest, definition.schema_digest)
}

fn list_key(capabilities: &str, subject: Subject) -> String {
    format!("{subject:?} {capabilities}")
}

/// Whether policy refuses the definition, or would in enforce mode.
fn blocks(decision: &Decision) -> bool {
    let blocking = |action: &Action| {
        matches!(
            action,
            Action::BlockCall
                | Action::BlockTool
                | Action::BlockServer
                | Action::KillServer
                | Action::SuspendAgent
        )
    };
    decision.action.as_ref().is_some_and(blocking) || decision.would.as_ref().is_some_and(blocking)
}
