//! Evidence: numbered, hash-chained decision records, their export and its verification.
//!
//! A record's hash is SHA-256 over its canonical JSON without `hash`. `prev` holds the hash of the record before
//! it on this host, `runPrev` that of the record before it in the same run, so one run can be exported and
//! checked by itself. Whoever rewrites a whole file can make a new chain: that shows against a head that was
//! noted elsewhere (the exported metric, `kams runs list`).

mod strict;
mod verify;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use crate::canonical::canonical;
use crate::time::{Now, rfc3339};

pub use verify::{Fault, Verified, verify};

/// `prev` of the first record.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Runs whose last record is remembered. An older run that speaks again starts a new run chain.
const MAX_RUNS: usize = 4_096;

/// What a record is about.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A call passed or was refused by rules and restrictions.
    Admission,
    /// A run-level rule held, or could not be evaluated.
    Checkpoint,
    /// A request for approval was made or settled.
    Approval,
    /// A finding was decided on.
    Finding,
    /// A restriction was added, lifted or ended.
    Restriction,
    /// An exception outside the policy file was added, removed or ended.
    Exception,
    /// A run ended.
    RunEnd,
}

/// The contents of a record. Facts are numbers and declared identifiers; no argument, no result.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Body {
    /// What it is about.
    pub kind: RecordKind,
    /// The run; empty where none is concerned.
    pub run: String,
    /// The user.
    pub user: String,
    /// The agent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// The server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server: String,
    /// The tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Policy id: of the document, or `file` with the hash as version.
    pub policy_id: String,
    /// Policy version.
    pub policy_version: String,
    /// The rule, where one decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The decision or state.
    pub decision: String,
    /// The reason for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Machine-readable reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reason_codes: Vec<String>,
    /// `deterministic`: no model was asked.
    pub mode: String,
    /// Whether it was carried out; false in observe mode, on watched streams and for drafts.
    pub enforced: bool,
    /// Evaluated fact paths and their values.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub evaluated_fields: Map<String, Json>,
    /// The person who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver: Option<String>,
    /// Order number of the call in the run, or the number of the approval, restriction or exception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<u64>,
}

/// A record in the chain.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Number on this host, from 1 without a gap.
    pub n: u64,
    /// RFC 3339, UTC.
    pub time: String,
    /// Contents.
    #[serde(flatten)]
    pub body: Body,
    /// Hash of record `n - 1`.
    pub prev: String,
    /// Number within the run, from 1 without a gap; 0 without a run.
    pub run_n: u64,
    /// Hash of the record before it in the run.
    pub run_prev: String,
    /// Hash of all of the above.
    pub hash: String,
}

impl Record {
    /// As one line of JSON.
    pub fn to_json(&self) -> Json {
        serde_json::to_value(self).unwrap_or(Json::Null)
    }
}

/// Hash of a record as JSON, its `hash` left out.
pub(crate) fn hash(record: &Json) -> String {
    let mut record = record.clone();
    if let Some(map) = record.as_object_mut() {
        map.remove("hash");
    }
    hex::encode(Sha256::digest(canonical(&record).as_bytes()))
}

/// The last record of a chain.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Head {
    /// Its number.
    pub n: u64,
    /// Its hash.
    pub hash: String,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            n: 0,
            hash: GENESIS.to_owned(),
        }
    }
}

/// The writing end of the chain.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    head: Head,
    runs: BTreeMap<(String, String), (Head, u64)>,
}

impl Chain {
    /// The chain after a restart: the last record that was stored, and the last of each run that goes on.
    pub fn resume(head: Head, runs: impl IntoIterator<Item = (String, String, Head)>) -> Self {
        let age = head.n;
        Self {
            head,
            runs: runs
                .into_iter()
                .map(|(user, run, head)| ((user, run), (head, age)))
                .collect(),
        }
    }

    /// The last record.
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// The last record of a run, its number being that within the run.
    pub fn run_head(&self, user: &str, run: &str) -> Option<&Head> {
        self.runs
            .get(&(user.to_owned(), run.to_owned()))
            .map(|(head, _)| head)
    }

    /// Numbers, links and hashes a record.
    pub fn append(&mut self, body: Body, now: Now) -> Record {
        let in_run = !body.run.is_empty();
        let key = (body.user.clone(), body.run.clone());
        let ends = body.kind == RecordKind::RunEnd;
        let run_head = match self.runs.get(&key) {
            Some((head, _)) if in_run => head.clone(),
            _ => Head::default(),
        };
        let mut record = Record {
            n: self.head.n.saturating_add(1),
            time: rfc3339(now.wall_ms),
            prev: self.head.hash.clone(),
            run_n: if in_run { run_head.n.saturating_add(1) } else { 0 },
            run_prev: run_head.hash,
            hash: String::new(),
            body,
        };
        record.hash = hash(&record.to_json());
        self.head = Head {
            n: record.n,
            hash: record.hash.clone(),
        };
        if ends {
            self.runs.remove(&key);
        } else if in_run {
            if self.runs.len() >= MAX_RUNS && !self.runs.contains_key(&key) {
                let oldest = self
                    .runs
                    .iter()
                    .min_by_key(|(_, (_, used))| *used)
                    .map(|(key, _)| key.clone());
                oldest.map(|oldest| self.runs.remove(&oldest));
            }
            let head = Head {
                n: record.run_n,
                hash: record.hash.clone(),
            };
            self.runs.insert(key, (head, record.n));
        }
        record
    }
}

/// First line of an export.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    /// Version of the format.
    pub(crate) kams_export: u32,
    /// The run; none for a stretch of the whole chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
    /// The user, with a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// How many records follow.
    pub(crate) records: u64,
    /// Hash of the last one.
    pub(crate) head: String,
    /// When it was written.
    pub(crate) exported: String,
    /// SHA-256 over the canonical JSON of this line without `seal`: the hashes of records do not cover it.
    pub(crate) seal: String,
}

/// The seal of an export's first line.
pub(crate) fn seal(header: &Json) -> String {
    let mut header = header.clone();
    if let Some(map) = header.as_object_mut() {
        map.remove("seal");
    }
    hex::encode(Sha256::digest(canonical(&header).as_bytes()))
}

/// The whole arc of one run as JSON lines: a header, then its records in order. Records of other runs are left
/// out.
pub fn export_run(user: &str, run: &str, records: &[Record], now: Now) -> String {
    let own: Vec<&Record> = records
        .iter()
        .filter(|r| r.body.run == run && r.body.user == user)
        .collect();
    export(Some((user, run)), &own, now)
}

/// A stretch of the whole chain as JSON lines.
pub fn export_chain(records: &[Record], now: Now) -> String {
    export(None, &records.iter().collect::<Vec<_>>(), now)
}

fn export(run: Option<(&str, &str)>, records: &[&Record], now: Now) -> String {
    let mut header = Header {
        kams_export: 1,
        run: run.map(|(_, run)| run.to_owned()),
        user: run.map(|(user, _)| user.to_owned()),
        records: records.len() as u64,
        head: records
            .last()
            .map_or_else(|| GENESIS.to_owned(), |r| r.hash.clone()),
        exported: rfc3339(now.wall_ms),
        seal: String::new(),
    };
    let json = |header: &Header| serde_json::to_value(header).unwrap_or(Json::Null);
    header.seal = seal(&json(&header));
    let mut out = canonical(&json(&header));
    out.push('\n');
    for record in records {
        out += &canonical(&record.to_json());
        out.push('\n');
    }
    out
}
