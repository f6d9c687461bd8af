//! Wire forms of events and findings, and the metrics registry.
#![forbid(unsafe_code)]
