//! Findings, numbered in the order in which they were written.

use rusqlite::{Connection, params};

use crate::StoreError;

/// How much is kept. Both limits hold at once.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Findings kept per user.
    pub findings_per_user: u32,
    /// Days after which a finding goes.
    pub days: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            findings_per_user: 10_000,
            days: 90,
        }
    }
}

/// A finding as stored: columns to search by, and the record as `kams-export` wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct FindingRow {
    /// Number in the store; 0 until it was written.
    pub seq: i64,
    /// Nanoseconds since the epoch.
    pub at: i64,
    /// User concerned.
    pub uid: u32,
    /// Server identity.
    pub server: String,
    /// Same cause, same value.
    pub fingerprint: String,
    /// Detector name.
    pub detector: String,
    /// 0 low to 3 critical.
    pub severity: u8,
    /// JSON record.
    pub record: String,
}

/// What to select.
#[derive(Clone, Debug, Default)]
pub struct FindingFilter {
    /// Only this user.
    pub uid: Option<u32>,
    /// Only after this number.
    pub after_seq: i64,
    /// At least this severity.
    pub min_severity: u8,
    /// Only this server identity.
    pub server: Option<String>,
    /// The newest so many; 0 means 1,000.
    pub limit: u32,
}

pub(crate) fn select(db: &Connection, filter: &FindingFilter) -> Result<Vec<FindingRow>, StoreError> {
    let FindingFilter {
        uid,
        after_seq,
        min_severity,
        server,
        limit,
    } = filter;
    let limit = if *limit == 0 { 1_000 } else { *limit };
    let mut query = db.prepare_cached(
        "SELECT seq, at, uid, server, fingerprint, detector, severity, record FROM findings
         WHERE seq > ?1 AND (?2 IS NULL OR uid = ?2) AND severity >= ?3 AND (?4 IS NULL OR server = ?4)
         ORDER BY seq DESC LIMIT ?5",
    )?;
    let rows = query.query_map(params![after_seq, uid, min_severity, server, limit], |r| {
        Ok(FindingRow {
            seq: r.get(0)?,
            at: r.get(1)?,
            uid: r.get(2)?,
            server: r.get(3)?,
            fingerprint: r.get(4)?,
            detector: r.get(5)?,
            severity: r.get(6)?,
            record: r.get(7)?,
        })
    })?;
    let mut found: Vec<_> = rows.collect::<Result<_, _>>()?;
    found.reverse();
    Ok(found)
}

pub(crate) fn add(db: &Connection, f: &FindingRow) -> Result<(), rusqlite::Error> {
    db.prepare_cached(
        "INSERT INTO findings (at, uid, server, fingerprint, detector, severity, record)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        f.at,
        f.uid,
        f.server,
        f.fingerprint,
        f.detector,
        f.severity,
        f.record
    ])?;
    Ok(())
}

/// Drops what is over the limits; `now` in nanoseconds since the epoch.
pub(crate) fn expire(db: &Connection, keep: Retention, now: i64) -> Result<usize, rusqlite::Error> {
    let oldest = now.saturating_sub(i64::from(keep.days).saturating_mul(86_400_000_000_000));
    let mut gone = db.execute("DELETE FROM findings WHERE at < ?1", params![oldest])?;
    gone += db.execute(
        "DELETE FROM findings WHERE seq IN (
            SELECT seq FROM (SELECT seq, row_number() OVER (PARTITION BY uid ORDER BY seq DESC) AS place FROM findings)
            WHERE place > ?1)",
        params![keep.findings_per_user],
    )?;
    Ok(gone)
}
