//! `_meta` of requests and results: identity in the stateless revision, and ids that correlate a call with the
//! agent's own records. All of it is said by the peer about itself.

use std::sync::Arc;

use crate::id::RequestId;
use crate::json::{Json, cut, pick, string};
use crate::revision::Revision;

const PREFIX: [&str; 5] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/serverInfo",
    "io.modelcontextprotocol/subscriptionId",
];
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// What is known in a `_meta` object.
#[derive(Clone, Debug)]
pub struct Meta<'a> {
    /// All of it, as written.
    pub json: Json<'a>,
    /// `progressToken`: a string or an integer.
    pub progress_token: Option<RequestId>,
    /// The revision a stateless request speaks.
    pub revision: Option<Revision>,
    /// `clientInfo` of a stateless request.
    pub client_info: Option<Json<'a>>,
    /// `clientCapabilities` of a stateless request.
    pub client_capabilities: Option<Json<'a>>,
    /// `serverInfo` of a stateless result.
    pub server_info: Option<Json<'a>>,
    /// The `subscriptions/listen` request that a notification belongs to.
    pub subscription: Option<RequestId>,
    /// The task that a message belongs to (2025-11-25).
    pub related_task: Option<Arc<str>>,
    /// Ids of agents and tracers.
    pub correlation: Correlation,
}

/// Ids that agents and tracers put into `_meta`, each cut to 256 bytes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Correlation {
    /// Claude Code's `claudecode/toolUseId`: the id of the tool use block the model wrote.
    pub tool_use_id: Option<Arc<str>>,
    /// Codex's `callId`.
    pub call_id: Option<Arc<str>>,
    /// Codex's `threadId`, or `thread_id` of its turn metadata.
    pub thread_id: Option<Arc<str>>,
    /// Codex's `sessionId`, or `session_id` of its turn metadata.
    pub session_id: Option<Arc<str>>,
    /// Codex's `turn_id` of its turn metadata.
    pub turn_id: Option<Arc<str>>,
    /// W3C trace context.
    pub traceparent: Option<Arc<str>>,
}

impl<'a> Meta<'a> {
    /// Reads the `_meta` member of a params or result object; none where there is none or it is no object.
    pub(crate) fn of(object: &'a str) -> Option<Self> {
        let [meta] = pick(object, ["_meta"]);
        Self::read(meta?)
    }

    pub(crate) fn read(text: &'a str) -> Option<Self> {
        if !text.starts_with('{') {
            return None;
        }
        let [version, client, capabilities, server, subscription] = pick(text, PREFIX);
        let [token, related, tool_use, call, thread, session, turn, trace] = pick(
            text,
            [
                "progressToken",
                RELATED_TASK,
                "claudecode/toolUseId",
                "callId",
                "threadId",
                "sessionId",
                "x-codex-turn-metadata",
                "traceparent",
            ],
        );
        let turn = turn
            .map(|t| pick(t, ["session_id", "thread_id", "turn_id"]))
            .unwrap_or_default();
        let [turn_session, turn_thread, turn_id] = turn;
        Some(Self {
            json: Json::checked(text),
            progress_token: token.and_then(token_of),
            revision: version.and_then(string).map(|name| Revision::from_name(&name)),
            client_info: client.map(Json::checked),
            client_capabilities: capabilities.map(Json::checked),
            server_info: server.map(Json::checked),
            subscription: subscription.and_then(token_of),
            related_task: related.and_then(|task| pick(task, ["taskId"])[0]).and_then(short),
            correlation: Correlation {
                tool_use_id: tool_use.and_then(short),
                call_id: call.and_then(short),
                thread_id: thread.or(turn_thread).and_then(short),
                session_id: session.or(turn_session).and_then(short),
                turn_id: turn_id.and_then(short),
                traceparent: trace.and_then(short),
            },
        })
    }

    /// A copy that borrows nothing.
    pub fn into_owned(self) -> Meta<'static> {
        Meta {
            json: self.json.into_owned(),
            progress_token: self.progress_token,
            revision: self.revision,
            client_info: self.client_info.map(Json::into_owned),
            client_capabilities: self.client_capabilities.map(Json::into_owned),
            server_info: self.server_info.map(Json::into_owned),
            subscription: self.subscription,
            related_task: self.related_task,
            correlation: self.correlation,
        }
    }
}

/// A progress token or subscription id: a string or a number.
pub(crate) fn token_of(text: &str) -> Option<RequestId> {
    RequestId::from_json(&Json::checked(text))
        .ok()
        .filter(|id| *id != RequestId::Null)
}

/// A string value, cut to 256 bytes.
pub(crate) fn short(text: &str) -> Option<Arc<str>> {
    string(text).map(|text| Arc::from(cut(&text, 256)))
}
