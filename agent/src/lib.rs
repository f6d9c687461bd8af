//! Wiring of kamsd and kams.

pub mod clients;
pub mod discover;
