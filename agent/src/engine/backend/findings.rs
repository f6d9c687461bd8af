//! Findings of this start of the daemon from the feed, older ones from the store.

use std::collections::HashSet;

use kams_export::view::{FindingRecord, Record};
use kams_store::{FindingFilter, FindingRow};

use super::DaemonBackend;
use crate::admin::{BackendError, FindingQuery, Scope, Selection};

/// Rows that are looked through when a filter picks among them.
const LOOKED_AT: u32 = 10_000;

impl DaemonBackend {
    pub(super) fn past_findings(
        &self,
        scope: Scope,
        query: &FindingQuery,
    ) -> Result<Vec<FindingRecord>, BackendError> {
        let selection = &query.selection;
        let only = |record: &Record| matches!(record, Record::Finding(f) if selection.admits_finding(f));
        let live: Vec<FindingRecord> = self
            .live
            .feed
            .since(scope, query.since, query.limit, &only)
            .iter()
            .filter_map(|record| match &**record {
                Record::Finding(finding) => Some(finding.clone()),
                _ => None,
            })
            .collect();
        // A reader that goes on from a number has seen what came before.
        if query.since > 0 || live.len() >= query.limit {
            return Ok(live);
        }
        let filter = FindingFilter {
            uid: match scope {
                Scope::All => None,
                Scope::User(uid) => Some(uid),
            },
            after_seq: 0,
            min_severity: selection.min_severity.map_or(0, |severity| severity as u8),
            server: None,
            limit: LOOKED_AT,
        };
        let rows = self
            .store
            .findings(&filter)
            .map_err(|error| BackendError::Unavailable {
                message: format!("the database cannot be read: {error}"),
                remedy: "see the daemon's log; `kams findings --follow` shows what comes".to_owned(),
            })?;
        Ok(joined(rows, live, selection, query.limit))
    }
}

/// What tells one finding from another of the same cause.
fn identity(f: &FindingRecord) -> (i64, u32, &str, Option<u64>, Option<&str>) {
    (
        f.time.unix_nanos(),
        f.uid,
        &f.fingerprint,
        f.server_id,
        f.request_id.as_deref(),
    )
}

/// Stored rows that are not among the live ones, then the live ones; the newest `limit`.
fn joined(
    rows: Vec<FindingRow>,
    live: Vec<FindingRecord>,
    selection: &Selection,
    limit: usize,
) -> Vec<FindingRecord> {
    let known: HashSet<_> = live.iter().map(identity).collect();
    let mut found: Vec<FindingRecord> = rows
        .into_iter()
        .filter_map(|row| {
            let mut record: FindingRecord = serde_json::from_str(&row.record).ok()?;
            // Who may see it is what the column says.
            record.uid = row.uid;
            record.seq = 0;
            Some(record)
        })
        .filter(|record| selection.admits_finding(record) && !known.contains(&identity(record)))
        .collect();
    drop(known);
    found.extend(live);
    found.split_off(found.len().saturating_sub(limit))
}

#[cfg(test)]
mod tests {
    use kams_detect::Severity;
    use kams_export::view::Time;

    use super::*;

    fn record(at: i64, severity: &str, seq: u64) -> FindingRecord {
        FindingRecord {
            time: Time::from_unix_nanos(at),
            severity: severity.to_owned(),
            fingerprint: "f".to_owned(),
            uid: 1000,
            seq,
            ..FindingRecord::default()
        }
    }

    fn row(record: &FindingRecord) -> FindingRow {
        FindingRow {
            seq: 1,
            at: record.time.unix_nanos(),
            uid: record.uid,
            server: String::new(),
            fingerprint: record.fingerprint.clone(),
            detector: String::new(),
            severity: 0,
            record: serde_json::to_string(record).unwrap_or_default(),
        }
    }

    #[test]
    fn each_finding_is_there_once_in_order_and_old_ones_have_no_number() {
        let rows = vec![
            row(&record(1, "HIGH", 7)),
            row(&record(2, "LOW", 8)),
            row(&record(3, "HIGH", 0)),
        ];
        let live = vec![record(3, "HIGH", 4), record(5, "HIGH", 6)];
        let times = |found: &[FindingRecord]| -> Vec<(i64, u64)> {
            found.iter().map(|f| (f.time.unix_nanos(), f.seq)).collect()
        };
        let all = joined(rows.clone(), live.clone(), &Selection::default(), 10);
        assert_eq!(times(&all), [(1, 0), (2, 0), (3, 4), (5, 6)]);
        let selection = Selection {
            min_severity: Some(Severity::High),
            ..Selection::default()
        };
        let chosen = joined(rows, live, &selection, 3);
        assert_eq!(
            times(&chosen),
            [(1, 0), (3, 4), (5, 6)],
            "the limit counts what the filter leaves"
        );
    }

    #[test]
    fn a_row_that_cannot_be_read_is_passed_over() {
        let mut bad = row(&record(1, "HIGH", 0));
        bad.record = "{".to_owned();
        assert!(joined(vec![bad], Vec::new(), &Selection::default(), 3).is_empty());
    }
}
