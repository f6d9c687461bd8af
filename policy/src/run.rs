//! Runs.
pub(crate) mod key;
