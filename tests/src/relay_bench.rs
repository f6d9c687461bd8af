//! What a relay adds to a tool call: one agent, one server, and in turn nothing, a floor, Kams or another guard between
//! them.
//!
//! The server answers with plain prose of the size that is asked for. Direct and relayed sessions are both open and take
//! turns, so that what else the machine does falls on both. Only medians of one run may be compared.

pub mod floor;
pub mod measure;
pub mod remote;
pub mod server;
pub mod session;
