//! `kams servers`, `kams tools`, and the agents behind them.

use serde::{Deserialize, Serialize};

use super::Time;

/// Where a server stands between its start and its end.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Looks like one by its descriptors; no MCP was spoken yet.
    #[default]
    Candidate,
    /// MCP was spoken; Kams reads along.
    Observed,
    /// Ran before Kams did; Kams reads along from the middle.
    Adopted,
    /// A relay stands between agent and server.
    Relayed,
    /// Has ended.
    Gone,
    /// Known from a configuration file to be reached over HTTP: not watched.
    Http,
    /// A word that this version does not know.
    #[serde(other)]
    Unknown,
}

impl ServerState {
    /// All states, as metric label values and filter words.
    pub const ALL: [Self; 6] = [
        Self::Candidate,
        Self::Observed,
        Self::Adopted,
        Self::Relayed,
        Self::Gone,
        Self::Http,
    ];

    /// The wire name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Observed => "observed",
            Self::Adopted => "adopted",
            Self::Relayed => "relayed",
            Self::Gone => "gone",
            Self::Http => "http",
            Self::Unknown => "unknown",
        }
    }
}

/// What carries the stream.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Two pipes.
    #[default]
    Pipe,
    /// One or two AF_UNIX sockets.
    Socket,
    /// HTTP.
    Http,
    /// A word that this version does not know.
    #[serde(other)]
    Unknown,
}

/// One agent process.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct AgentView {
    /// Number within this daemon instance; never reused.
    pub id: u64,
    /// Owner.
    pub uid: u32,
    /// Owner's login name, or the uid in digits.
    pub user: String,
    /// Name of the agent, such as `claude`.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// When it started.
    pub started: Time,
    /// Whether its process lives.
    pub live: bool,
    /// Known by a pattern (true), or learned because it spoke MCP (false).
    pub known: bool,
    /// Servers of it that live now.
    pub servers: u32,
    /// Tool calls so far.
    pub calls: u64,
}

/// One MCP server process and its conversation.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ServerView {
    /// Number within this daemon instance; never reused.
    pub id: u64,
    /// Owner.
    pub uid: u32,
    /// Owner's login name, or the uid in digits.
    pub user: String,
    /// Name of the agent that started it.
    pub agent: String,
    /// Process id of that agent.
    pub agent_pid: u32,
    /// Package or script behind the launcher, such as `npm:@modelcontextprotocol/server-memory`.
    pub identity: String,
    /// Version in the launch, where it names one.
    pub version: Option<String>,
    /// Name by which the server introduced itself: its own claim.
    pub name: Option<String>,
    /// Version by which the server introduced itself: its own claim.
    pub claimed_version: Option<String>,
    /// Where it stands.
    pub state: ServerState,
    /// Process id of the server (of the launcher, where there is one).
    pub pid: u32,
    /// What carries the stream.
    pub transport: Transport,
    /// Negotiated protocol revision.
    pub revision: Option<String>,
    /// When it started (or was adopted).
    pub started: Time,
    /// When it ended.
    pub ended: Option<Time>,
    /// Last message in either direction.
    pub last_message: Option<Time>,
    /// Tool calls.
    pub calls: u64,
    /// Tool calls that failed (`isError` or a JSON-RPC error).
    pub errors: u64,
    /// Tools in its last complete list.
    pub tools: Option<u32>,
    /// Bytes from agent to server.
    pub bytes_to_server: u64,
    /// Bytes from server to agent.
    pub bytes_to_agent: u64,
    /// Whether calls can be refused.
    pub enforced: bool,
    /// Gaps in what was read.
    pub gaps: u64,
    /// Findings on it.
    pub findings: u64,
    /// Tokens that its tool definitions occupy in the model's context: an estimate.
    pub definition_tokens: Option<u64>,
    /// Tokens that its results put into the context so far: an estimate.
    pub result_tokens: Option<u64>,
    /// Tokens that its results put into the context by the provider's count; covers the turns that were reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub true_result_tokens: Option<u64>,
    /// How it is cut off the network; none where it is not to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkView>,
    /// The filter of system calls that policy wants it under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp: Option<SeccompView>,
}

/// A server that is cut off the network, or is to be.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct NetworkView {
    /// The kernel refuses it the network. False where that could not be had: `failed` says why.
    pub cut_off: bool,
    /// Why it is to be: `policy` (`network: none`) or `restriction` (`block_egress`).
    pub reason: String,
    /// Attempts that were refused.
    pub refused: u64,
    /// Connections and listeners that were open and were closed.
    pub closed: u64,
    /// What is open still and could be used.
    pub left_open: u64,
    /// Why it is not cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A server's filter of system calls.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct SeccompView {
    /// What policy says: `deny` or `notify`; empty where only the filter itself is known, after a restart.
    pub setting: String,
    /// `waiting` (for the image that the launcher starts), `refusing`, `allowing` or `failed`.
    pub state: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Set-user-id programs and file capabilities have no effect in this server.
    pub no_new_privs: bool,
    /// Sockets that a filter that asks was asked for.
    pub asked: u64,
    /// Those that were refused.
    pub refused: u64,
}

/// One tool of one server and user.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ToolView {
    /// Owner.
    pub uid: u32,
    /// Owner's login name, or the uid in digits.
    pub user: String,
    /// Identity of the server.
    pub server: String,
    /// Number of the server instance.
    pub server_id: u64,
    /// Tool name as the server gives it.
    pub tool: String,
    /// Title as the server gives it.
    pub title: Option<String>,
    /// Description as the server gives it, at most 300 characters.
    pub description: Option<String>,
    /// Calls.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Median time to the answer, in microseconds.
    pub median_us: Option<u64>,
    /// Tokens of the definition: an estimate.
    pub definition_tokens: Option<u64>,
    /// `provisional` or `pinned`; none where no baseline is kept.
    pub baseline: Option<String>,
    /// What was listed last differs from the baseline.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub baseline_changed: bool,
    /// What restricts it now, in words.
    pub restriction: Option<String>,
    /// When it was first listed or called.
    pub first_seen: Option<Time>,
    /// When it was last listed or called.
    pub last_seen: Option<Time>,
}
