//! The detectors of Kams, one module each: pure functions over events and their own state.
//!
//! No IO, no clock and no unsafe code in this crate: time comes in as a value, and no input may panic.
#![forbid(unsafe_code)]

pub mod behaviour;
pub mod corpus;
pub mod cost;
pub mod egress;
pub mod finding;
pub mod integrity;
pub mod network;
pub mod redact;
pub mod relay;
pub mod seccomp;
pub mod text;
pub mod waste;

pub use finding::{Evidence, Finding, Kind, Severity};
