//! SQLite state.
#![forbid(unsafe_code)]
