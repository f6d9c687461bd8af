//! What each user's servers said before, and what that makes of what they say now.
//!
//! The memory here is the truth while a server lives; the store follows behind. A pinned baseline never moves by
//! itself. A provisional one moves with a reported drift, unless policy would have blocked it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kams_detect::Finding;
use kams_detect::integrity::{self, Definition, Subject};
use kams_mcp::ListKind;
use kams_policy::{Action, Decision};
use kams_store::{Baseline, BaselineState, ListMembers, WriteOp};

use super::lists::item_key;
use super::{Case, Judge, Owner};
use crate::engine::describe;
use crate::engine::sink::{Sink, ToolState};

/// Items of one server that are kept.
const MOST: usize = 20_000;
/// Bytes of definitions of one server that are kept; of further ones only digests are: a new text is scored as at a first
/// sighting.
const MOST_BYTES: usize = 16 << 20;
/// Reported digests that are remembered per item.
const TOLD: usize = 8;
/// Servers without a conversation whose baselines stay in memory. What was just learned is on its way to the disk
/// and must not be read back from there too early.
const IDLE: usize = 64;

/// Baselines of one user's server.
#[derive(Debug, Default)]
pub(super) struct ServerBaselines {
    pub(super) items: HashMap<String, Kept>,
    /// By capability key and list: members of the last full list.
    full: HashMap<String, HashSet<String>>,
    /// Bytes of the definitions in `items`.
    bytes: usize,
}

impl ServerBaselines {
    /// Enters what was read from the store.
    fn enter(&mut self, rows: impl Iterator<Item = (String, Kept)>) {
        for (key, kept) in rows {
            self.bytes += kept.bytes();
            self.items.insert(key, kept);
        }
    }
}

/// One item and what is remembered of it.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) row: Baseline,
    /// The baseline; none where policy refused the first sighting and nobody has accepted it.
    pub(super) definition: Option<Definition>,
    /// Digests that were reported against this baseline, newest last: a server that goes back and forth between
    /// two texts is reported once for each.
    told: Vec<String>,
    /// A definition that policy refused when it was listed, and the refusal. It is refused again as long as nobody
    /// accepts it.
    refused: Option<(String, Decision)>,
}

impl Kept {
    pub(super) const fn new(row: Baseline, definition: Option<Definition>) -> Self {
        Self {
            row,
            definition,
            told: Vec::new(),
            refused: None,
        }
    }

    fn bytes(&self) -> usize {
        self.row.definition.len() + self.row.seen.as_ref().map_or(0, |(_, text)| text.len())
    }

    fn tell(&mut self, digest: String) {
        if self.told.len() >= TOLD {
            self.told.remove(0);
        }
        self.told.push(digest);
    }
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
                Ok(rows) => known.enter(rows.into_iter().filter_map(read)),
                Err(error) => {
                    tracing::error!(%error, server = %owner.server, "baselines cannot be read; they are learned anew");
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

    /// Nobody talks to a server any more: its baselines stay for a while, and go when others came after it.
    pub(super) fn rest(&mut self, owner: Owner) {
        self.idle.retain(|other| *other != owner);
        self.idle.push_back(owner);
        while self.idle.len() > IDLE {
            let Some(oldest) = self.idle.pop_front() else {
                break;
            };
            if !self.sessions.values().any(|session| session.owner == oldest) {
                self.baselines.remove(&oldest);
            }
        }
    }

    /// One definition as it was just listed. `capabilities` is the key of its list; none outside lists. Whether it
    /// was the first sighting.
    pub(super) fn definition(
        &mut self,
        case: &Case<'_>,
        now: &Definition,
        capabilities: Option<&str>,
        sink: &mut dyn Sink,
    ) -> bool {
        let owner = Owner {
            uid: case.party.uid,
            server: Arc::clone(&case.party.server),
        };
        let key = item_key(now);
        let first = self.judge_definition(case, &owner, &key, now, capabilities, sink);
        self.show(case.party.server_id, &owner, &key, sink);
        first
    }

    fn judge_definition(
        &mut self,
        case: &Case<'_>,
        owner: &Owner,
        key: &str,
        now: &Definition,
        capabilities: Option<&str>,
        sink: &mut dyn Sink,
    ) -> bool {
        let Some(known) = self.baselines.get_mut(owner) else {
            return false;
        };
        let thresholds = self.thresholds;
        let digest = digest(now);
        let tool = (now.subject != Subject::Instructions).then_some(now.name.as_str());
        if let Some(kept) = known.items.get_mut(key) {
            if kept.row.digest == digest {
                // Back to the baseline: what was seen last is no longer another text.
                if kept.row.seen.take().is_some() {
                    let row = kept.row.clone();
                    self.write(row);
                }
                return false;
            }
            if let Some((_, decision)) = kept.refused.as_ref().filter(|(refused, _)| *refused == digest) {
                sink.refused_again(tool, decision);
                return false;
            }
            let told = kept.told.contains(&digest);
            // What an earlier start of Kams saw and told may have been refused then: where it can be, it is judged anew.
            let seen = kept.row.seen.as_ref().is_some_and(|(seen, _)| *seen == digest);
            if seen && (told || !case.party.relayed) {
                return false;
            }
            let before = kept.definition.clone();
            let pinned = kept.row.state == BaselineState::Pinned;
            let findings = match before {
                _ if told => Vec::new(),
                Some(before) => integrity::diff(Some(&before), Some(now), pinned, thresholds),
                None => integrity::first_sighting(now, thresholds).into_iter().collect(),
            };
            let verdict = self.report_all(case, &findings, sink);
            // What was told and did not become the baseline then does not become it now.
            self.learn(owner, key, now, case, !pinned && !verdict.blocked && !told);
            self.remember_refusal(owner, key, digest, verdict.refusal);
            return false;
        }
        let list = capabilities.and_then(|c| known.full.get(&list_key(c, now.subject)));
        let added = list.is_some_and(|list| !list.contains(key));
        let all_pinned =
            !known.items.is_empty() && known.items.values().all(|k| k.row.state == BaselineState::Pinned);
        let findings = if added && now.subject == Subject::Tool {
            integrity::diff(None, Some(now), all_pinned, thresholds)
        } else {
            integrity::first_sighting(now, thresholds).into_iter().collect()
        };
        let verdict = self.report_all(case, &findings, sink);
        // What policy refuses is remembered as seen, so that a person can accept it; never as the baseline.
        self.learn(owner, key, now, case, !verdict.blocked);
        self.remember_refusal(owner, key, digest, verdict.refusal);
        true
    }

    fn report_all(&mut self, case: &Case<'_>, findings: &[Finding], sink: &mut dyn Sink) -> Verdict {
        let mut verdict = Verdict::default();
        for finding in findings {
            let decision = self.report(case, finding, sink);
            verdict.blocked |= blocks(&decision);
            let stronger = verdict
                .refusal
                .as_ref()
                .is_none_or(|old| old.action < decision.action);
            if !decision.passes() && stronger {
                verdict.refusal = Some(decision);
            }
        }
        verdict
    }

    fn remember_refusal(&mut self, owner: &Owner, key: &str, digest: String, refusal: Option<Decision>) {
        let known = self.baselines.get_mut(owner);
        if let Some(kept) = known.and_then(|known| known.items.get_mut(key)) {
            kept.refused = refusal.map(|decision| (digest, decision));
        }
    }

    /// Another policy decides anew on what the one before refused.
    pub(super) fn forget_refusals(&mut self) {
        for kept in self
            .baselines
            .values_mut()
            .flat_map(|known| known.items.values_mut())
        {
            if let Some((digest, _)) = kept.refused.take() {
                kept.told.retain(|told| *told != digest);
            }
        }
    }

    /// Shows what is known of a tool, after it was listed or decided about.
    pub(super) fn show(&self, server_id: u64, owner: &Owner, key: &str, sink: &mut dyn Sink) {
        let Some(name) = key.strip_prefix("tool:") else {
            return;
        };
        let kept = self.baselines.get(owner).and_then(|known| known.items.get(key));
        let Some(kept) = kept else { return };
        let seen = kept
            .row
            .seen
            .as_ref()
            .and_then(|(_, text)| serde_json::from_str(text).ok())
            .and_then(|value| Definition::from_stored(Subject::Tool, &value).ok());
        let Some(definition) = seen.as_ref().or(kept.definition.as_ref()) else {
            return;
        };
        let tool = ToolState {
            name,
            title: definition.title(),
            description: definition.description(),
            baseline: (!kept.row.digest.is_empty()).then(|| kept.row.state.name()),
            changed: kept.row.seen.is_some(),
        };
        sink.tool(server_id, &tool);
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
            server: Arc::clone(&case.party.server),
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
            .filter_map(|kept| Some((kept.definition.clone()?, kept.row.state == BaselineState::Pinned)))
            .filter(|(definition, _)| definition.subject == Subject::Tool)
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

    /// Remembers a definition: as the baseline, or only as what was last seen.
    fn learn(&mut self, owner: &Owner, key: &str, now: &Definition, case: &Case<'_>, moves: bool) {
        let Some(known) = self.baselines.get_mut(owner) else {
            return;
        };
        if !known.items.contains_key(key) && known.items.len() >= MOST {
            return;
        }
        let at = case.time.unix_nanos();
        let held = known.items.get(key).map_or(0, Kept::bytes);
        let text = now.stored().to_string();
        let room = known.bytes.saturating_sub(held) + text.len() <= MOST_BYTES;
        if !room {
            tracing::warn!(server = %owner.server, item = key, "this server lists more than is kept of one: of this item only orders to the model will be seen, not every change");
        }
        let text = if room { text } else { "{}".to_owned() };
        let digest = digest(now);
        let version = case
            .session
            .identity()
            .server
            .as_ref()
            .map(|s| describe::name(&s.version));
        let kept = known.items.entry(key.to_owned()).or_insert_with(|| {
            // A first sighting that policy refuses has no baseline: only what was seen.
            let row = Baseline {
                uid: owner.uid,
                server: owner.server.to_string(),
                item: key.to_owned(),
                state: BaselineState::Provisional,
                digest: String::new(),
                definition: "{}".to_owned(),
                version: None,
                seen: None,
                first_seen: at,
                changed_at: at,
                changed_by: None,
            };
            Kept::new(row, None)
        });
        kept.tell(digest.clone());
        if moves {
            kept.row.digest = digest;
            kept.row.definition = text;
            kept.row.version = version;
            kept.row.seen = None;
            kept.row.changed_at = at;
            kept.row.changed_by = None;
            kept.definition = room.then(|| now.clone());
            // Against another baseline the same text is another change.
            kept.told.clear();
        } else {
            kept.row.seen = Some((digest, text));
        }
        let row = kept.row.clone();
        known.bytes = known.bytes.saturating_sub(held) + kept.bytes();
        self.write(row);
    }

    pub(super) fn write(&self, row: Baseline) {
        if let Some(store) = &self.store {
            store.write(WriteOp::Baseline(Box::new(row)));
        }
    }
}

fn read(row: Baseline) -> Option<(String, Kept)> {
    let definition = if row.digest.is_empty() {
        None
    } else {
        Some(definition_of(&row.item, &row.definition)?)
    };
    Some((row.item.clone(), Kept::new(row, definition)))
}

/// A stored definition; none where the text is not one of this kind of item.
pub(super) fn definition_of(item: &str, text: &str) -> Option<Definition> {
    let subject = match item.split(':').next()? {
        "tool" => Subject::Tool,
        "prompt" => Subject::Prompt,
        "instructions" => Subject::Instructions,
        "resource" => Subject::Resource,
        _ => return None,
    };
    Definition::from_stored(subject, &serde_json::from_str(text).ok()?).ok()
}

/// One digest over both parts of a definition.
pub(super) fn digest(definition: &Definition) -> String {
    format!("{} {}", definition.description_digest, definition.schema_digest)
}

fn list_key(capabilities: &str, subject: Subject) -> String {
    format!("{subject:?} {capabilities}")
}

/// What policy made of a definition.
#[derive(Debug, Default)]
struct Verdict {
    /// It does not become the baseline.
    blocked: bool,
    /// It does not reach the agent.
    refusal: Option<Decision>,
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
