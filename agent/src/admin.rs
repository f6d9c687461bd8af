//! The admin API: HTTP/1 with JSON over a Unix socket, and the metrics endpoint.
//!
//! Who asks is what the kernel says (peer credentials), never what the request says. One request per
//! connection, so that credentials are always those of the asker at that moment.
//!
//! | route | who | answer |
//! | --- | --- | --- |
//! | `GET /v1/whoami` | anyone | uid, scope, whether the write verbs are open to the caller and why not |
//! | `GET /v1/status` | anyone | [`StatusView`](kams_export::view::StatusView) |
//! | `GET /v1/doctor` | anyone | [`DoctorView`](kams_export::view::DoctorView) |
//! | `GET /v1/agents` | own; all for root and the group | `{schema, agents: [..]}` |
//! | `GET /v1/servers?gone=1` | the same | `{schema, servers: [..]}` |
//! | `GET /v1/tools?server=` | the same | `{schema, tools: [..]}` |
//! | `GET /v1/events?since=&limit=&follow=1&instance=` + filters | the same | JSON lines of [`Record`](kams_export::view::Record), `hello` first |
//! | `GET /v1/findings` with the same parameters | the same | the same, from the store, then followed |
//! | `POST /v1/on`, `POST /v1/off` | root and the group, outside agents' trees | `{schema, enabled}` |
//! | `POST /v1/usage` | own agents; all for root and the group | `{schema, points: [..]}`, see [`Backend::usage`] |
//! | `POST /v1/llm-calls` | anyone, for themselves | `{schema, accepted}`, see [`Backend::llm_calls`] |
//! | `GET /v1/query/{name}` | as the backend decides | JSON |
//! | `POST /v1/command/{name}` | [`CommandRight`] | JSON |
//!
//! Filters of the record routes: `type` (words of [`EventKind`](kams_export::view::EventKind) or `finding`, comma
//! separated), `server`, `tool`, `agent`, `user` (globs), `min_severity`, `detector`, `from` (RFC 3339). An unknown
//! parameter is an error. Errors are `{"code", "message", "remedy"}` with a fitting status.

pub mod backend;
pub mod feed;
pub mod viewer;

mod authority;
mod connection;
mod endpoint;
mod error;
mod glob;
mod lines;
mod parameters;
mod refusals;
mod routes;
mod select;
mod socket;

pub use backend::{Backend, BackendError, CommandRight, FindingQuery, Scope, ServerQuery, ToolQuery};
pub use connection::Limits;
pub(crate) use connection::{Slots, serve};
pub use endpoint::MetricsServer;
pub use error::ApiError;
pub use feed::{Feed, FeedLimits};
pub(crate) use glob::matches;
pub use routes::{AdminGroup, AdminServer};
pub use select::Selection;
pub use socket::{BindError, group_id, patiently};
pub use viewer::Viewer;

#[cfg(test)]
mod tests;
