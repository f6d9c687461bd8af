//! Tokens spent for nothing: MCP calls, telemetry and ingested calls in, findings and true token counts out.
//!
//! Comparing arguments costs milliseconds for large ones, so none of it happens on the thread that judges messages: a
//! [`worker`] with bounded [`lanes`] owns the [`desk`], and what it finds goes to the judge as any other finding does. A
//! replay has no other thread and asks its desk at once.

mod allowance;
pub mod desk;
pub mod joins;
pub mod lanes;
mod per_user;
mod turns;
pub mod worker;

use std::sync::Arc;

use kams_detect::Finding;
use kams_detect::waste::{LlmCall, ToolDefinitions};
use kams_export::view::{Time, Transport};

use super::conversation::Party;
use super::judge::usage::Usage;
use joins::Ids;

/// Whom and what an observation is about.
#[derive(Clone, Debug)]
pub struct About {
    /// Agent and server; a party without a server where a model call is meant.
    pub party: Party,
    /// When.
    pub time: Time,
    /// The same on a clock that does not jump, in nanoseconds.
    pub mono: u64,
    /// Id of the request, as JSON text.
    pub request_id: Option<String>,
}

/// Who reports model calls, as the kernel says it.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    /// User of the process that sent.
    pub uid: u32,
    /// Its name.
    pub user: String,
    /// The agent that it is part of: its process and name.
    pub agent: Option<(u32, String)>,
    /// Name of the program, where it is part of no agent that Kams knows.
    pub program: String,
}

/// What the desk takes in.
#[derive(Debug)]
pub enum Input {
    /// An agent calls a tool.
    Called {
        /// Whom it is about.
        about: About,
        /// The tool.
        tool: String,
        /// `params.arguments` as written.
        arguments: String,
        /// By which the agent's telemetry names the same call.
        ids: Ids,
    },
    /// The call is answered.
    Answered {
        /// Whom it is about.
        about: About,
        /// The tool.
        tool: String,
        /// Digest of the arguments.
        arguments: u64,
        /// Bytes that enter the model's context.
        bytes: u64,
        /// By an error.
        failed: bool,
    },
    /// A server listed all its tools.
    Listed {
        /// Whom it is about.
        about: About,
        /// Their number and size.
        definitions: ToolDefinitions,
    },
    /// A server is gone.
    Left {
        /// Whose.
        uid: u32,
        /// The agent's process.
        agent_pid: u32,
        /// The server instance.
        server_id: u64,
    },
    /// An agent is gone.
    Gone {
        /// Whose.
        uid: u32,
        /// Its process.
        agent_pid: u32,
    },
    /// Model calls, measured at the door.
    Calls {
        /// Who reports them.
        sender: Sender,
        /// The calls, oldest first.
        calls: Vec<LlmCall>,
    },
    /// Other knobs.
    Knobs(Box<kams_detect::waste::Config>),
}

impl Input {
    /// Bytes held while it waits, roughly.
    pub fn cost(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Called { tool, arguments, .. } => tool.len() + arguments.len(),
                Self::Calls { calls, .. } => calls.iter().map(call_cost).sum(),
                _ => 0,
            }
    }
}

/// Bytes of a call that waits, roughly.
fn call_cost(call: &LlmCall) -> usize {
    let arguments: usize = call.tool_calls.iter().map(|tool| tool.arguments.cost()).sum();
    size_of::<LlmCall>() + arguments
}

/// What comes of it.
#[derive(Debug)]
pub enum Output {
    /// A rule fired.
    Found {
        /// Whom it is about.
        about: Box<About>,
        /// What was found.
        finding: Box<Finding>,
    },
    /// How much a turn's input really grew.
    Usage(Usage),
    /// A turn whose growth says nothing of the results in it (a compaction): they are no longer waited for.
    Passed {
        /// Whose.
        uid: u32,
        /// The agent's process.
        agent_pid: u32,
        /// Results that came before.
        before: Time,
    },
}

/// A party for findings about model calls: no server is concerned.
fn without_server(sender: &Sender) -> Party {
    let (agent_pid, agent) = match &sender.agent {
        Some((pid, name)) => (*pid, name.as_str()),
        None => (0, sender.program.as_str()),
    };
    Party {
        server_id: 0,
        uid: sender.uid,
        user: Arc::from(sender.user.as_str()),
        agent: Arc::from(agent),
        agent_pid,
        agent_start: 0,
        server: Arc::from(""),
        server_pid: 0,
        server_start: 0,
        transport: Transport::Unknown,
        relayed: false,
    }
}
