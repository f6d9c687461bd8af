//! Verdicts for relays: what a relay sends in, what may go on comes out.
//!
//! The same session, detectors and policy as for streams that are only watched ([`super::conversation`]); what differs
//! is that the message still stands before the door. [`relayed`] judges one connection's messages, [`fate`] turns
//! decisions into what happens to one message, [`rewrite`] changes texts without touching other bytes, and [`service`]
//! speaks with the relays.

mod collect;
mod daemon;
mod fate;
mod held;
mod relayed;
mod rewrite;
pub mod service;

pub use daemon::Relays;
pub use relayed::{Effect, Relayed};
pub use service::{Parties, Peer, Verdicts};

#[cfg(test)]
mod tests;
