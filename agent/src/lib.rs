//! Wiring of kamsd and kams.

pub mod admin;
pub mod config;
