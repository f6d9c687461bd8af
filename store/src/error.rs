//! What can go wrong with the store, in words an operator can act on.

use std::path::PathBuf;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The state folder cannot be used.
    #[error("state folder {path}: {source}; create it, owned by root with mode 0700, or set state_dir")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file was written by a newer Kams.
    #[error("{path} has schema version {found}, this Kams knows {known}; upgrade Kams or move the file away")]
    TooNew {
        /// The database.
        path: PathBuf,
        /// Version in the file.
        found: i64,
        /// Newest version known.
        known: i64,
    },
    /// A damaged file could not be moved away.
    #[error("{path} is damaged and could not be set aside: {source}")]
    SetAside {
        /// The database.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// `SQLite` refused.
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The writer did not get through in time.
    #[error("the store did not finish writing within {0:?}: {1}")]
    Slow(std::time::Duration, String),
    /// The writer thread could not start.
    #[error("cannot start the store's writer: {0}")]
    Thread(std::io::Error),
}

impl StoreError {
    /// Whether the file itself is bad, as against a lock or a full disk.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Sqlite(rusqlite::Error::SqliteFailure(e, _))
                if matches!(e.code, rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase)
        )
    }
}
