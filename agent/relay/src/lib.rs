//! `kams-relay`: stands between an agent and one MCP server.
//!
//! It copies bytes both ways, cuts them into lines, asks the engine what may pass, and obeys the fail mode when
//! nobody answers. It knows as little as that takes: no detector, no policy, no configuration. Whoever delivers the
//! four ends (the injector, through [`pool`], or `kams wrap`) has the server's processes; the relay never signals
//! one.
#![forbid(unsafe_code)]

pub mod confine;
pub mod denial;
pub mod end;
pub mod fail;
mod held;
pub mod holder;
pub mod identity;
mod lane;
mod link;
mod open;
pub mod peek;
pub mod pool;
pub mod relay;
pub mod wire;

pub use fail::FailMode;
pub use holder::client::HolderClient;
pub use link::{Connector, reaches};
pub use pool::{PoolError, RelayHandle, RelayPool};
pub use relay::{Ends, Relay, Settings};
