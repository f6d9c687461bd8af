//! Schema versions. A migration, once released, is never edited: a change is a new entry at the end.

use std::path::Path;

use rusqlite::Connection;

use crate::StoreError;

const MIGRATIONS: &[&str] = &["
    CREATE TABLE baselines (
        uid INTEGER NOT NULL,
        server TEXT NOT NULL,
        item TEXT NOT NULL,              -- tool:NAME, prompt:NAME, resource:URI, instructions
        state TEXT NOT NULL CHECK (state IN ('provisional', 'pinned')),
        digest TEXT NOT NULL,
        definition TEXT NOT NULL,
        version TEXT,
        seen_digest TEXT,                -- last definition seen, where it differs from the baseline
        seen_definition TEXT,
        first_seen INTEGER NOT NULL,     -- nanoseconds since the epoch, as all times here
        changed_at INTEGER NOT NULL,
        changed_by INTEGER,              -- uid of who pinned or accepted; null: Kams itself
        PRIMARY KEY (uid, server, item)
    ) WITHOUT ROWID;
    CREATE TABLE lists (
        uid INTEGER NOT NULL,
        server TEXT NOT NULL,
        capabilities TEXT NOT NULL,
        items TEXT NOT NULL,             -- JSON array of item keys
        seen_at INTEGER NOT NULL,
        PRIMARY KEY (uid, server, capabilities)
    ) WITHOUT ROWID;
    CREATE TABLE findings (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        uid INTEGER NOT NULL,
        server TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        detector TEXT NOT NULL,
        severity INTEGER NOT NULL,       -- 0 low ... 3 critical
        record TEXT NOT NULL
    );
    CREATE INDEX findings_by_user ON findings (uid, seq);
", "
    CREATE TABLE decisions (
        n INTEGER PRIMARY KEY,           -- number in the chain; a number that is not there was lost or has expired
        at INTEGER NOT NULL,
        uid INTEGER,
        user TEXT NOT NULL,
        run TEXT NOT NULL,               -- empty: no run is concerned
        record TEXT NOT NULL
    );
    CREATE INDEX decisions_by_run ON decisions (run, n);
    CREATE TABLE held (
        kind TEXT NOT NULL CHECK (kind IN ('restriction', 'approval')),
        id INTEGER NOT NULL,
        body TEXT NOT NULL,              -- JSON
        PRIMARY KEY (kind, id)
    ) WITHOUT ROWID;
", "
    CREATE TABLE held_now (
        kind TEXT NOT NULL CHECK (kind IN ('restriction', 'approval', 'exception')),
        id INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (kind, id)
    ) WITHOUT ROWID;
    INSERT INTO held_now SELECT kind, id, body FROM held;
    DROP TABLE held;
    ALTER TABLE held_now RENAME TO held;
", "
    CREATE TABLE known_servers (
        uid INTEGER NOT NULL,
        server TEXT NOT NULL,
        seen_at INTEGER NOT NULL,
        PRIMARY KEY (uid, server)
    ) WITHOUT ROWID;
"];

/// Brings the schema to the newest version, each step in a transaction of its own.
pub(crate) fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let found: i64 = db.query_row("PRAGMA user_version", [], |r| r.get(0))?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(StoreError::TooNew {
            path: path.to_owned(),
            found,
            known,
        });
    }
    for (version, sql) in (1_i64..).zip(MIGRATIONS).skip_while(|(v, _)| *v <= found) {
        let step = db.transaction()?;
        step.execute_batch(sql)?;
        step.pragma_update(None, "user_version", version)?;
        step.commit()?;
    }
    Ok(())
}
