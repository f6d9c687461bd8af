//! Opening the file: private to root, checked, and set aside when damaged.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags};

use crate::{StoreError, migrate};

const BUSY: Duration = Duration::from_secs(5);

pub(crate) fn open_for_writing(path: &Path) -> Result<(Connection, Option<String>), StoreError> {
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|source| StoreError::Folder {
                path: dir.to_owned(),
                source,
            })?;
    }
    match open_checked(path) {
        Err(e) if e.is_damage() => {
            let aside = set_aside(path)?;
            let notice = format!(
                "{} is damaged ({e}) and was set aside as {}; Kams starts with an empty database: baselines \
                 are learned anew and pins are gone until `kams baseline import`",
                path.display(),
                aside.display()
            );
            Ok((open_checked(path)?, Some(notice)))
        }
        other => other.map(|db| (db, None)),
    }
}

pub(crate) fn open_for_reading(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY)?;
    db.pragma_update(None, "query_only", true)?;
    Ok(db)
}

fn open_checked(path: &Path) -> Result<Connection, StoreError> {
    let mut db = Connection::open(path)?;
    db.busy_timeout(BUSY)?;
    // The database names what colleagues run: nobody but root reads it, whatever the umask.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(|source| StoreError::Folder {
        path: path.to_owned(),
        source,
    })?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "foreign_keys", true)?;
    let verdict: String = db.query_row("PRAGMA quick_check(1)", [], |r| r.get(0))?;
    if verdict != "ok" {
        return Err(StoreError::Sqlite(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
            Some(verdict),
        )));
    }
    migrate::migrate(&mut db, path)?;
    Ok(db)
}

/// Moves the database and its companions to a name that says when; nothing is overwritten.
fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let stamp = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let renamed = |suffix: &str, tail: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name.push(tail);
        PathBuf::from(name)
    };
    let tail = format!(".damaged-{stamp}");
    for suffix in ["", "-wal", "-shm"] {
        let from = renamed(suffix, "");
        if from.exists() {
            fs::rename(&from, renamed(suffix, &tail)).map_err(|source| StoreError::SetAside {
                path: path.to_owned(),
                source,
            })?;
        }
    }
    Ok(renamed("", &tail))
}
