//! `kams doctor`: what the kernel offers, what is used, what is missing, what to do.

use serde::{Deserialize, Serialize};

/// How a check went, best first.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// As it should be.
    Ok,
    /// For information.
    #[default]
    Info,
    /// Works, with a limit or a cost that `detail` states.
    Warn,
    /// Does not work; `remedy` says what to do.
    Fail,
    /// A word that this version does not know.
    #[serde(other)]
    Unknown,
}

/// One check.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct CheckView {
    /// Heading under which it stands: `kernel`, `sensor`, `permissions`, `configuration`, ...
    pub area: String,
    /// What was looked at.
    pub name: String,
    /// How it went.
    pub result: CheckResult,
    /// What was found, in words, costs included.
    pub detail: String,
    /// What to do; none where there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// All checks in the order in which they should be read.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DoctorView {
    /// [`super::SCHEMA`].
    pub schema: u32,
    /// The checks.
    pub checks: Vec<CheckView>,
}

impl DoctorView {
    /// The worst result among the checks; `Ok` where there are none.
    pub fn worst(&self) -> CheckResult {
        let known = self.checks.iter().map(|c| c.result);
        known
            .filter(|r| *r != CheckResult::Unknown)
            .max()
            .unwrap_or(CheckResult::Ok)
    }
}
