//! Runs: what the calls of one agent process add up to (seed 002, SPEC section 6).
//!
//! A call is *proposed* (looked at, nothing kept), *admitted* (in flight: it counts ahead) and *completed* (its
//! facts stay) or *failed* (they are taken back). Only declared identifiers, numbers and counts ever enter.

pub(crate) mod accumulator;
pub(crate) mod context;
pub(crate) mod fact;
pub(crate) mod key;
pub(crate) mod table;
pub(crate) mod window;
