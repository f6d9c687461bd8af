//! What stood in the managed files before Kams changed them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Version of the record.
const SCHEMA: u32 = 1;

/// One key that was set.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Change {
    /// Keys from the top.
    pub path: Vec<String>,
    /// Value before; none where there was none.
    pub before: Option<Value>,
    /// Value that was set.
    pub after: Value,
}

/// One file that was changed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Changed {
    /// Agent whose file it is.
    pub agent: String,
    /// Where reports go.
    pub endpoint: String,
    /// Its text before; none where there was no file.
    pub original: Option<String>,
    /// SHA-256 of what was written, in hex.
    pub written: String,
    /// Folders that were made for it, outermost first.
    pub folders: Vec<PathBuf>,
    /// Keys that were set.
    pub changes: Vec<Change>,
}

/// All files that Kams has changed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Record {
    schema: u32,
    /// At most one for each agent.
    pub files: Vec<Changed>,
}

impl Record {
    /// Where it is kept, below the root folder of the host.
    pub fn path(root: &Path) -> PathBuf {
        root.join("var/lib/kams/telemetry.json")
    }

    /// Reads the record; empty where there is none.
    pub fn read(root: &Path) -> Result<Self, String> {
        let path = Self::path(root);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let record: Self = serde_json::from_str(&text).map_err(|error| {
                    format!("{}: {}", path.display(), kams_detect::redact::json_error(&error))
                })?;
                if record.schema == SCHEMA {
                    Ok(record)
                } else {
                    Err(format!("{}: written by another version of Kams", path.display()))
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self {
                schema: SCHEMA,
                files: Vec::new(),
            }),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Its text.
    pub fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// What was done to an agent's file.
    pub fn of(&self, agent: &str) -> Option<&Changed> {
        self.files.iter().find(|changed| changed.agent == agent)
    }

    /// Enters what was done, or (none) that it was undone.
    pub fn enter(&mut self, agent: &str, changed: Option<Changed>) {
        self.files.retain(|known| known.agent != agent);
        self.files.extend(changed);
    }
}

/// SHA-256 of a text, in hex.
pub fn hash(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}
