//! Which processes are MCP servers, who starts them, and what they are called (DESIGN section 5).
//!
//! Everything here is a pure function or state machine over facts that the caller gathered: no IO, no clock. The
//! file system is reached through [`identity::Look`], time comes in as a value.

pub mod agents;
pub mod candidate;
pub mod glob;
pub mod identity;
pub mod opening;
pub mod tracker;
