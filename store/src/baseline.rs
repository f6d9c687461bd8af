//! Baselines: what a server's definitions were when they were first seen, accepted or pinned.

use rusqlite::{Connection, Row, params};

use crate::StoreError;

/// How firm a baseline is (seed 001).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BaselineState {
    /// Learned at first sighting; a reported drift moves it once.
    Provisional,
    /// Confirmed by a person; never moves by itself.
    Pinned,
}

impl BaselineState {
    /// The contract name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Provisional => "provisional",
            Self::Pinned => "pinned",
        }
    }

    /// The state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Provisional, Self::Pinned]
            .into_iter()
            .find(|s| s.name() == name)
    }
}

/// One item of one user's server.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// Linux user id whose agent talks to the server.
    pub uid: u32,
    /// Server identity, such as `npm:@scope/name`.
    pub server: String,
    /// `tool:NAME`, `prompt:NAME`, `resource:URI`, `template:URI` or `instructions`.
    pub item: String,
    /// Provisional or pinned.
    pub state: BaselineState,
    /// Digest of `definition`.
    pub digest: String,
    /// The definition as the server sent it (JSON).
    pub definition: String,
    /// Version of the package, where known.
    pub version: Option<String>,
    /// The last definition seen with its digest, where it is not the baseline.
    pub seen: Option<(String, String)>,
    /// Nanoseconds since the epoch.
    pub first_seen: i64,
    /// Nanoseconds since the epoch.
    pub changed_at: i64,
    /// Who pinned or accepted it; none: Kams.
    pub changed_by: Option<u32>,
}

/// What a complete list held, for one set of client capabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct ListMembers {
    /// Canonical form of the capabilities (and the era) that the list depends on.
    pub capabilities: String,
    /// Item keys.
    pub items: Vec<String>,
}

pub(crate) fn of_server(db: &Connection, uid: u32, server: &str) -> Result<Vec<Baseline>, StoreError> {
    let mut query =
        db.prepare_cached("SELECT * FROM baselines WHERE uid = ?1 AND server = ?2 ORDER BY item")?;
    let rows = query.query_map(params![uid, server], row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn all(db: &Connection, uid: Option<u32>, limit: usize) -> Result<Vec<Baseline>, StoreError> {
    let mut query = db.prepare_cached(
        "SELECT * FROM baselines WHERE ?1 IS NULL OR uid = ?1 ORDER BY uid, server, item LIMIT ?2",
    )?;
    let rows = query.query_map(params![uid, i64::try_from(limit).unwrap_or(i64::MAX)], row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn lists(db: &Connection, uid: u32, server: &str) -> Result<Vec<ListMembers>, StoreError> {
    let mut query =
        db.prepare_cached("SELECT capabilities, items FROM lists WHERE uid = ?1 AND server = ?2")?;
    let rows = query.query_map(params![uid, server], |r| {
        let items: String = r.get(1)?;
        // Written by us; an unreadable cell only means that no removal is reported against this list.
        Ok(ListMembers {
            capabilities: r.get(0)?,
            items: serde_json::from_str(&items).unwrap_or_default(),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn put(db: &Connection, b: &Baseline) -> Result<(), rusqlite::Error> {
    let (seen_digest, seen_definition) = b.seen.as_ref().map(|(d, t)| (d, t)).unzip();
    db.prepare_cached(
        "INSERT OR REPLACE INTO baselines (uid, server, item, state, digest, definition, version, seen_digest,
         seen_definition, first_seen, changed_at, changed_by)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        b.uid,
        b.server,
        b.item,
        b.state.name(),
        b.digest,
        b.definition,
        b.version,
        seen_digest,
        seen_definition,
        b.first_seen,
        b.changed_at,
        b.changed_by
    ])?;
    Ok(())
}

pub(crate) fn remove(db: &Connection, uid: u32, server: &str, item: &str) -> Result<(), rusqlite::Error> {
    db.prepare_cached("DELETE FROM baselines WHERE uid = ?1 AND server = ?2 AND item = ?3")?
        .execute(params![uid, server, item])?;
    Ok(())
}

pub(crate) fn put_list(
    db: &Connection,
    uid: u32,
    server: &str,
    list: &ListMembers,
    at: i64,
) -> Result<(), rusqlite::Error> {
    let items = serde_json::to_string(&list.items).unwrap_or_default();
    db.prepare_cached("INSERT OR REPLACE INTO lists VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![uid, server, list.capabilities, items, at])?;
    Ok(())
}

fn row(r: &Row<'_>) -> Result<Baseline, rusqlite::Error> {
    let state: String = r.get("state")?;
    let seen_digest: Option<String> = r.get("seen_digest")?;
    let seen_definition: Option<String> = r.get("seen_definition")?;
    Ok(Baseline {
        uid: r.get("uid")?,
        server: r.get("server")?,
        item: r.get("item")?,
        // The schema's CHECK allows only the two names; the firmer one is the safe reading of anything else.
        state: BaselineState::from_name(&state).unwrap_or(BaselineState::Pinned),
        digest: r.get("digest")?,
        definition: r.get("definition")?,
        version: r.get("version")?,
        seen: seen_digest.zip(seen_definition),
        first_seen: r.get("first_seen")?,
        changed_at: r.get("changed_at")?,
        changed_by: r.get("changed_by")?,
    })
}
