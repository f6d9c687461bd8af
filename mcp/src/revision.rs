//! Protocol revisions.

use std::fmt;
use std::sync::Arc;

/// A revision of the Model Context Protocol, by its date. Ordered by age; unknown ones come last.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Revision {
    /// The first public one.
    V2024_11_05,
    /// Streamable HTTP, tool annotations, batches (the only revision that has them).
    V2025_03_26,
    /// Structured results, elicitation; no batches.
    V2025_06_18,
    /// Tasks, URL elicitation, sampling with tools.
    V2025_11_25,
    /// Stateless: no `initialize`, no requests by servers, `_meta` on every request.
    V2026_07_28,
    /// A revision that this code does not know, as it was written (at most 64 bytes).
    Other(Arc<str>),
}

impl Revision {
    /// The revision of this name.
    pub fn from_name(name: &str) -> Self {
        match name {
            "2024-11-05" => Self::V2024_11_05,
            "2025-03-26" => Self::V2025_03_26,
            "2025-06-18" => Self::V2025_06_18,
            "2025-11-25" => Self::V2025_11_25,
            "2026-07-28" => Self::V2026_07_28,
            other => Self::Other(Arc::from(crate::json::cut(other, 64))),
        }
    }

    /// Its name on the wire.
    pub fn name(&self) -> &str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
            Self::Other(name) => name,
        }
    }

    /// Whether the revision describes batches.
    pub const fn allows_batches(&self) -> bool {
        matches!(self, Self::V2025_03_26)
    }

    /// Whether sessions open without `initialize` and identity travels in `_meta`.
    pub const fn is_stateless(&self) -> bool {
        matches!(self, Self::V2026_07_28)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
