//! The admin API: HTTP/1 with JSON over a Unix socket, and the loopback metrics endpoint.

pub mod backend;
pub mod feed;
pub mod viewer;

pub use backend::{Backend, BackendError, CommandRight, FindingQuery, Scope, ServerQuery, ToolQuery};
pub use feed::{Feed, FeedLimits};
pub use viewer::Viewer;
