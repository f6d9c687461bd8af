//! Wiring of kamsd and kams.

pub mod admin;
