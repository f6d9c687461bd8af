//! Decision records in their order, and the state they lead to: restrictions, requests for approval and
//! exceptions.
//!
//! Records are written behind the verdict, so a kill can take the last ones. [`HeadFile`] remembers the newest
//! number that was handed out, in the page cache at once: the next start then knows what is missing.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rusqlite::{Connection, params};

use crate::StoreError;

/// Records kept; the oldest go first.
const KEPT: i64 = 200_000;
/// Missing stretches that are told apart; beyond it the rest is one stretch.
const STRETCHES: usize = 64;

/// A record of the chain: columns to search by, and its text as it was hashed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DecisionRow {
    /// Number in the chain, from 1.
    pub n: u64,
    /// Nanoseconds since the epoch.
    pub at: i64,
    /// User concerned; none where the number is not known.
    pub uid: Option<u32>,
    /// Name of the user, as in the record.
    pub user: String,
    /// The run; empty where none is concerned.
    pub run: String,
    /// JSON record.
    pub record: String,
}

/// State of one restriction, one request for approval or one exception.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Held {
    /// A restriction in force.
    Restriction,
    /// A request for approval that waits, or an approval that is not used yet.
    Approval,
    /// An exception outside the policy file.
    Exception,
}

impl Held {
    const fn name(self) -> &'static str {
        match self {
            Self::Restriction => "restriction",
            Self::Approval => "approval",
            Self::Exception => "exception",
        }
    }
}

/// The newest record that was handed out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Noted {
    /// Its number.
    pub n: u64,
    /// Its hash, 64 hex digits.
    pub hash: String,
}

/// Remembers the newest record over a kill of the process. It survives no power cut: then the newest stored
/// record is the end.
#[derive(Debug)]
pub(crate) struct HeadFile(File);

impl HeadFile {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map(Self)
    }

    /// None where nothing was ever noted; an error of kind `InvalidData` where what is there is no note.
    pub(crate) fn read(&self) -> std::io::Result<Option<Noted>> {
        let mut text = Vec::new();
        (&self.0).take(256).read_to_end(&mut text)?;
        if text.is_empty() {
            return Ok(None);
        }
        let noted = std::str::from_utf8(&text).ok().and_then(noted);
        noted.map(Some).ok_or_else(|| {
            std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "it is no note of a decision record",
            )
        })
    }

    /// One write of fixed length into the page cache; the disk is not waited for.
    pub(crate) fn note(&self, head: &Noted) -> std::io::Result<()> {
        self.0
            .write_all_at(format!("{:020} {:64}\n", head.n, head.hash).as_bytes(), 0)
    }
}

fn noted(text: &str) -> Option<Noted> {
    let (n, hash) = text.lines().next()?.split_once(' ')?;
    let whole = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    Some(Noted {
        n: n.parse().ok()?,
        hash: hash.to_owned(),
    })
    .filter(|_| whole)
}

pub(crate) fn add(db: &Connection, row: &DecisionRow) -> Result<(), rusqlite::Error> {
    db.prepare_cached(
        "INSERT INTO decisions (n, at, uid, user, run, record) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        number(row.n),
        row.at,
        row.uid,
        row.user,
        row.run,
        row.record
    ])?;
    Ok(())
}

pub(crate) fn hold(db: &Connection, held: Held, id: u64, body: Option<&str>) -> Result<(), rusqlite::Error> {
    match body {
        Some(body) => db
            .prepare_cached("INSERT OR REPLACE INTO held (kind, id, body) VALUES (?1, ?2, ?3)")?
            .execute(params![held.name(), number(id), body])?,
        None => db
            .prepare_cached("DELETE FROM held WHERE kind = ?1 AND id = ?2")?
            .execute(params![held.name(), number(id)])?,
    };
    Ok(())
}

pub(crate) fn held(db: &Connection, held: Held) -> Result<Vec<String>, StoreError> {
    let mut query = db.prepare_cached("SELECT body FROM held WHERE kind = ?1 ORDER BY id")?;
    let rows = query.query_map(params![held.name()], |r| r.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Records of one run, of one user's or of anybody's, oldest first; at most `limit`.
pub(crate) fn of_run(
    db: &Connection,
    uid: Option<u32>,
    run: &str,
    limit: u32,
) -> Result<Vec<DecisionRow>, StoreError> {
    let mut query = db.prepare_cached(
        "SELECT n, at, uid, user, run, record FROM decisions WHERE run = ?1 AND (?2 IS NULL OR uid = ?2)
         ORDER BY n LIMIT ?3",
    )?;
    let rows = query.query_map(params![run, uid, limit], row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The last record of each of the newest runs, and the last record of all.
pub(crate) fn ends(db: &Connection, limit: u32) -> Result<Vec<DecisionRow>, StoreError> {
    let mut query = db.prepare_cached(
        "SELECT n, at, uid, user, run, record FROM decisions WHERE n IN (
            SELECT max(n) FROM decisions WHERE run <> '' GROUP BY user, run ORDER BY max(n) DESC LIMIT ?1)
         OR n = (SELECT max(n) FROM decisions) ORDER BY n",
    )?;
    let rows = query.query_map(params![limit], row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Stretches of numbers that no record has, first and last of each.
pub(crate) fn missing(db: &Connection) -> Result<Vec<(u64, u64)>, StoreError> {
    let mut query = db.prepare_cached(
        "SELECT n, following FROM (SELECT n, lead(n) OVER (ORDER BY n) AS following FROM decisions)
         WHERE following > n + 1 LIMIT ?1",
    )?;
    let limit = i64::try_from(STRETCHES).unwrap_or(i64::MAX);
    let rows = query.query_map(params![limit], |r| {
        let (before, after): (i64, i64) = (r.get(0)?, r.get(1)?);
        Ok((unsigned(before) + 1, unsigned(after).saturating_sub(1)))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Drops what is over the limits; `oldest` in nanoseconds since the epoch. Only a beginning of the chain goes.
pub(crate) fn expire(db: &Connection, oldest: i64) -> Result<usize, rusqlite::Error> {
    db.execute(
        "DELETE FROM decisions WHERE n <= max(
            (SELECT coalesce(max(n), 0) FROM decisions) - ?1,
            (SELECT coalesce(max(n), 0) FROM decisions WHERE at < ?2))",
        params![KEPT, oldest],
    )
}

fn row(r: &rusqlite::Row<'_>) -> Result<DecisionRow, rusqlite::Error> {
    Ok(DecisionRow {
        n: unsigned(r.get(0)?),
        at: r.get(1)?,
        uid: r.get(2)?,
        user: r.get(3)?,
        run: r.get(4)?,
        record: r.get(5)?,
    })
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}
