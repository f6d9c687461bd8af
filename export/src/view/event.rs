//! `kams events`: what happened, without what was said.

use serde::{Deserialize, Serialize};

use super::{SCHEMA, Time, Transport};

/// What happened.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// An agent process started or was learned.
    AgentStarted,
    /// An agent process ended.
    AgentGone,
    /// A process that may be a server started.
    ServerStarted,
    /// It spoke MCP.
    ServerConfirmed,
    /// A relay stands before it.
    ServerRelayed,
    /// It was to get a relay and runs without one: `reason` says why.
    ServerUnrelayed,
    /// It turned out to be no MCP server.
    ServerRejected,
    /// It ended.
    ServerGone,
    /// A request other than `tools/call`, in either direction.
    Request,
    /// The answer to one.
    Response,
    /// A `tools/call` request.
    ToolCall,
    /// Its answer.
    ToolResult,
    /// A message without an answer.
    Notification,
    /// A complete list of tools was seen.
    ToolsListed,
    /// A relay sent something else in a message's place, or answered it: `reason` says how, `detail` holds the exact
    /// bytes, unless arguments or a result are among them.
    Replaced,
    /// A line that is no JSON-RPC message.
    Malformed,
    /// Bytes of a stream are missing.
    Gap,
    /// Something was lost that belongs to no stream.
    Loss,
    /// `kams on`, `kams off`, a reload, a start or stop of the daemon.
    Daemon,
    /// A rule or a restriction decided on a call or a server start.
    Decision,
    /// A server is cut off the network: `reason` is `policy` or `restriction`. With `stage` `failed`, it is not: `detail`
    /// says why.
    NetworkCutOff,
    /// It may use the network again.
    NetworkRestored,
    /// It tried to use the network and was refused, `count` times since it was last told.
    NetworkRefused,
    /// A word that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl EventKind {
    /// All kinds that can be filtered for.
    pub const ALL: [Self; 23] = [
        Self::AgentStarted,
        Self::AgentGone,
        Self::ServerStarted,
        Self::ServerConfirmed,
        Self::ServerRelayed,
        Self::ServerUnrelayed,
        Self::ServerRejected,
        Self::ServerGone,
        Self::Request,
        Self::Response,
        Self::ToolCall,
        Self::ToolResult,
        Self::Notification,
        Self::ToolsListed,
        Self::Replaced,
        Self::Malformed,
        Self::Gap,
        Self::Loss,
        Self::Daemon,
        Self::Decision,
        Self::NetworkCutOff,
        Self::NetworkRestored,
        Self::NetworkRefused,
    ];

    /// The wire name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AgentStarted => "agent_started",
            Self::AgentGone => "agent_gone",
            Self::ServerStarted => "server_started",
            Self::ServerConfirmed => "server_confirmed",
            Self::ServerRelayed => "server_relayed",
            Self::ServerUnrelayed => "server_unrelayed",
            Self::ServerRejected => "server_rejected",
            Self::ServerGone => "server_gone",
            Self::Request => "request",
            Self::Response => "response",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
            Self::Notification => "notification",
            Self::ToolsListed => "tools_listed",
            Self::Replaced => "replaced",
            Self::Malformed => "malformed",
            Self::Gap => "gap",
            Self::Loss => "loss",
            Self::Daemon => "daemon",
            Self::Decision => "decision",
            Self::NetworkCutOff => "network_cut_off",
            Self::NetworkRestored => "network_restored",
            Self::NetworkRefused => "network_refused",
            Self::Unknown => "unknown",
        }
    }

    /// The kind with this wire name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// Which way a message went.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Agent to server.
    ToServer,
    /// Server to agent.
    ToAgent,
    /// A word that this version does not know.
    #[serde(other)]
    Unknown,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A result.
    Ok,
    /// A result with `isError: true`.
    ToolError,
    /// A JSON-RPC error; `error_code` tells which.
    Error,
    /// A `resultType: input_required` answer: the call goes on under another id.
    InputRequired,
    /// Cancelled by the side that asked.
    Cancelled,
    /// The stream ended first.
    NoAnswer,
    /// Refused by policy.
    Denied,
    /// A word that this version does not know.
    #[serde(other)]
    Unknown,
}

impl Outcome {
    /// The wire name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Error => "error",
            Self::InputRequired => "input_required",
            Self::Cancelled => "cancelled",
            Self::NoAnswer => "no_answer",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
        }
    }
}

/// One event. Members that do not apply are absent on the wire. Holds no argument, result or raw line.
///
/// Made with [`EventView::new`] and struct update: `EventView { method, ..EventView::new(kind, time, uid, user) }`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct EventView {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Number in the daemon's stream, rising; 0 until published.
    pub seq: u64,
    /// When the last byte of it was read.
    pub time: Time,
    /// What happened.
    pub event: EventKind,
    /// Whose process it was.
    pub uid: u32,
    /// Login name, or the uid in digits.
    pub user: String,
    /// Name of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Process id of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_pid: Option<u32>,
    /// Identity of the server (before it is known: the name of its executable).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Number of the server instance, as in [`super::ServerView`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_id: Option<u64>,
    /// Process id of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_pid: Option<u32>,
    /// What carries the stream (on server events).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Protocol revision (on `server_confirmed`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Which way the message went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// JSON-RPC method; on answers that of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Tool (or prompt) concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Id of the request as JSON text: `7`, `"a"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// From the request's last byte to the answer's last byte, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// How the request ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// JSON-RPC error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<i64>,
    /// Bytes of the message, newline left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Tokens that the message puts into the context: an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// How many, where the event is about a number: tools in a list, lost records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Stage of a loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Bounded word: why lost, malformed, rejected, gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The policy's rule (on `decision`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What was done, by the action's name (on `decision`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// What enforce would have done, where it was not done (on `decision`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would: Option<String>,
    /// One sentence for people. Never argument or result text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Bytes of the message, or of the stream before it, were lost.
    pub gap: bool,
    /// Whether the call could have been refused.
    pub enforced: bool,
}

impl EventView {
    /// An event of this kind with nothing else known.
    pub fn new(event: EventKind, time: Time, uid: u32, user: impl Into<String>) -> Self {
        Self {
            schema: SCHEMA,
            event,
            time,
            uid,
            user: user.into(),
            ..Self::default()
        }
    }
}
