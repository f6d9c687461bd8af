//! Checking an export.

use serde_json::Value as Json;

use super::strict::Strict;
use super::{GENESIS, Head, Header, Record, hash, seal};

/// What is wrong with an export.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Fault {
    /// No header, or one of another format.
    #[error("the file is no Kams export")]
    NotAnExport,
    /// The first line was changed.
    #[error("the first line was changed: its seal does not fit")]
    Unsealed,
    /// A line is no record, or names a member twice.
    #[error("line {line} is no record")]
    NotARecord {
        /// 1-based.
        line: usize,
    },
    /// A record was changed.
    #[error("record {n} was changed: its hash does not fit")]
    Changed {
        /// Its number.
        n: u64,
    },
    /// A record is missing, or the order was changed.
    #[error("record {n} does not follow the one before it: records are missing or moved")]
    Broken {
        /// The record that does not follow.
        n: u64,
    },
    /// A record of another run or user.
    #[error("record {n} belongs to another run")]
    Foreign {
        /// Its number.
        n: u64,
    },
    /// Records are missing at the end.
    #[error("records are missing at the end: {found} of {expected}")]
    CutTail {
        /// How many there are.
        found: u64,
        /// How many there were.
        expected: u64,
    },
    /// The end is not the one that was noted elsewhere.
    #[error("the last record is not the one that was noted elsewhere")]
    OtherHead,
}

/// A good export.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verified {
    /// The run, for the export of one.
    pub run: Option<String>,
    /// Records.
    pub records: u64,
    /// Its end; for a run, numbered within the run.
    pub head: Head,
}

/// Checks an export: the first line's seal, each record's hash, the links, the count and the end. `anchor` is the end as it was noted
/// elsewhere: the chain's head metric, or a run's head.
///
/// # Errors
/// The first fault.
pub fn verify(text: &str, anchor: Option<&Head>) -> Result<Verified, Fault> {
    let mut lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let Strict(first) = lines
        .next()
        .and_then(|(_, line)| serde_json::from_str(line).ok())
        .filter(|Strict(first)| first.get("kams_export") == Some(&Json::from(1)))
        .ok_or(Fault::NotAnExport)?;
    if first.get("seal") != Some(&Json::from(seal(&first))) {
        return Err(Fault::Unsealed);
    }
    let header: Header = serde_json::from_value(first).map_err(|_other| Fault::NotAnExport)?;
    let mut found = 0;
    let mut last: Option<Head> = None;
    for (number, line) in lines {
        let bad = Fault::NotARecord { line: number + 1 };
        let Strict(json) = serde_json::from_str(line).map_err(|_not_json| bad.clone())?;
        let record: Record = serde_json::from_value(json.clone()).map_err(|_no_record| bad)?;
        if hash(&json) != record.hash {
            return Err(Fault::Changed { n: record.n });
        }
        let (position, prev) = match &header.run {
            Some(run) => {
                if record.body.run != *run || header.user.as_ref() != Some(&record.body.user) {
                    return Err(Fault::Foreign { n: record.n });
                }
                (record.run_n, &record.run_prev)
            }
            None => (record.n, &record.prev),
        };
        let follows = match &last {
            Some(head) => position == head.n.saturating_add(1) && *prev == head.hash,
            // A run begins at its first record; a stretch of the chain may begin anywhere.
            None if header.run.is_some() || position == 1 => position == 1 && prev == GENESIS,
            None => true,
        };
        if !follows {
            return Err(Fault::Broken { n: record.n });
        }
        found += 1;
        last = Some(Head {
            n: position,
            hash: record.hash,
        });
    }
    let head = last.unwrap_or_default();
    if found != header.records || head.hash != header.head {
        return Err(Fault::CutTail {
            found,
            expected: header.records,
        });
    }
    if let Some(anchor) = anchor
        && *anchor != head
    {
        return Err(if head.n < anchor.n {
            Fault::CutTail {
                found: head.n,
                expected: anchor.n,
            }
        } else {
            Fault::OtherHead
        });
    }
    Ok(Verified {
        run: header.run,
        records: found,
        head,
    })
}
