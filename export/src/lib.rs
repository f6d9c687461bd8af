//! Wire forms of events and findings, and the metrics registry: the only crate that knows wire names.
//!
//! The core crates hand over plain structs; what leaves the host (JSON lines, the admin API, Prometheus, SARIF)
//! is spelled here. A field that is serialised here is a promise: it may be added to, never renamed.
#![forbid(unsafe_code)]

pub mod jsonl;
pub mod metrics;
pub mod sarif;
pub mod text;
pub mod view;
