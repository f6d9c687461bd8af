//! Bytes to frames to JSON-RPC envelopes to MCP sessions. No IO, no clock, no unsafe; no input panics.
//!
//! The way of a byte: [`Framer`] (one per direction of a stream) cuts lines; [`Session`] (one per connection of an
//! agent and a server) reads each line as an [`Envelope`], pairs requests with answers and gives typed [`Event`]s.
//! [`Confirm`] answers the earlier question whether a stream is MCP at all; [`visible`] lists what a model reads of
//! an answer. Time is a value in nanoseconds, of any clock that does not run backwards by much.
//!
//! ```
//! use kams_mcp::{Direction, Framer, Session, visible};
//!
//! let mut to_server = Framer::default();
//! let mut to_client = Framer::default();
//! let mut session = Session::default();
//! let call = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"look\"}}\n";
//! to_server.push(call, |frame| {
//!     let events = session.feed(Direction::ToServer, frame, 1_000);
//!     let (_, call) = events[0].tool_call().unwrap();
//!     assert_eq!(call.name, "look");
//! });
//! let answer = b"{\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"fog\"}]},\"jsonrpc\":\"2.0\"}\n";
//! to_client.push(answer, |frame| {
//!     let events = session.feed(Direction::ToClient, frame, 5_000);
//!     let result = events[0].tool_result().unwrap();
//!     assert_eq!(result.call.unwrap().subject.as_deref(), Some("look"));
//!     assert_eq!(result.latency, Some(4_000));
//!     visible::texts(&result.result, &mut |text| {
//!         assert_eq!((text.path.to_string().as_str(), &*text.text), ("$.content[0].text", "fog"));
//!     });
//! });
//! ```
#![forbid(unsafe_code)]

pub mod confirm;
pub mod envelope;
pub mod event;
pub mod framer;
pub mod id;
pub mod json;
mod lenient;
pub mod meta;
pub mod method;
pub mod revision;
pub mod session;
pub mod visible;

pub use confirm::{Confirm, Verdict};
pub use envelope::{Envelope, Message};
pub use event::{Event, EventKind};
pub use framer::{Frame, FrameKind, Framer};
pub use id::RequestId;
pub use json::Json;
pub use meta::Meta;
pub use method::{ListKind, Method};
pub use revision::Revision;
pub use session::{Config, Session};

/// A point in time or a span, in nanoseconds. The crate never reads a clock: callers pass one value with each frame.
pub type Nanos = u64;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Direction {
    /// From the agent to the server: the server's standard input.
    ToServer,
    /// From the server to the agent: the server's standard output.
    ToClient,
}

impl Direction {
    /// The other direction.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}
