//! What a session says it saw. One message gives one event of its own kind; identity changes, evictions and answers
//! that waited for their request come as further events of the same call.

mod owned;

use std::borrow::Cow;
use std::sync::Arc;

use crate::envelope::{Oddities, Unreadable};
use crate::id::RequestId;
use crate::json::Json;
use crate::meta::{Correlation, Meta};
use crate::method::{ListKind, Method};
use crate::revision::Revision;
use crate::session::Identity;
use crate::{Direction, Nanos};

/// One thing that happened on a session.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// Which way the message went.
    pub direction: Direction,
    /// When, as the caller said.
    pub time: Nanos,
    /// Length of the line on the wire, newline included. A batch's line counts with its first element; 0 for an
    /// event without a message of its own.
    pub bytes: u64,
    /// Bytes of this direction were lost just before the message; for an answer also: before its request.
    pub gap: bool,
    /// The message's place in a batch.
    pub batch: Option<BatchPlace>,
    /// The stream ended before the newline of this message.
    pub unterminated: bool,
    /// What is odd about the message.
    pub oddities: Oddities,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// A message's place in a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchPlace {
    /// From 0.
    pub index: usize,
    /// How many messages the batch has.
    pub of: usize,
    /// The session's revision is not known to be 2025-03-26, the only one with batches.
    pub unexpected: bool,
}

/// What happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// A request; from the server when the direction is [`Direction::ToClient`].
    Request(Box<Request<'a>>),
    /// An answer, paired with its request.
    Response(Box<Response<'a>>),
    /// A notification without a kind of its own here.
    Notification(Box<Notification<'a>>),
    /// `notifications/progress`
    Progress(Box<Progress<'a>>),
    /// `notifications/cancelled`
    Cancelled(Box<Cancelled<'a>>),
    /// Who the two sides are, whenever something new is known of it.
    Identity(Arc<Identity>),
    /// An answer whose request was not seen, was evicted, or was already answered.
    UnknownResponse(Box<UnknownResponse<'a>>),
    /// A request that waited so long, with so many others open, that its place was given up.
    Evicted(Box<Asked>),
    /// A request that had no answer when the session ended.
    Unanswered(Box<Asked>),
    /// Something that is no message.
    Malformed(Malformed),
    /// A line over the framer's cap.
    Oversized {
        /// Bytes before the newline.
        length: u64,
    },
    /// Bytes were lost.
    Gap {
        /// Bytes of the damaged lines that were seen.
        seen: u64,
        /// Bytes lost, 0 where unknown.
        lost: u64,
    },
}

/// Why something is no message.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Malformed {
    /// The line cannot be read.
    #[error(transparent)]
    Line(#[from] Unreadable),
    /// A blank line.
    #[error("the line is blank")]
    Blank,
    /// An object without a method, a result or an error.
    #[error("the object is neither a request nor an answer")]
    NoMessage,
    /// An element of a batch that is no object.
    #[error("the batch element is no object")]
    BatchElement,
    /// The stream ended within a message.
    #[error("the stream ended within a message")]
    CutShort,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Its id.
    pub id: RequestId,
    /// Its method.
    pub method: Method,
    /// `params` as written.
    pub params: Option<Json<'a>>,
    /// `params._meta`.
    pub meta: Option<Meta<'a>>,
    /// Another request of the same direction and id is still open: the next answer goes to the older one.
    pub id_reused: bool,
    /// What it asks for.
    pub kind: RequestKind<'a>,
}

/// What a request asks for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RequestKind<'a> {
    /// `tools/call`
    ToolCall(ToolCall<'a>),
    /// A page of a list.
    List {
        /// Which list.
        list: ListKind,
        /// Where to go on.
        cursor: Option<Cow<'a, str>>,
    },
    /// `prompts/get`
    GetPrompt {
        /// The prompt.
        name: Option<Cow<'a, str>>,
        /// Its arguments.
        arguments: Option<Json<'a>>,
    },
    /// `resources/read`
    ReadResource {
        /// The resource.
        uri: Option<Cow<'a, str>>,
    },
    /// `tasks/get`, `tasks/result`, `tasks/cancel`, `tasks/update`
    Task {
        /// The task.
        id: Option<Cow<'a, str>>,
    },
    /// `sampling/createMessage`
    Sampling,
    /// `elicitation/create`
    Elicitation,
    /// Any other, `initialize` among them.
    Other,
}

/// A tool call.
#[derive(Clone, Debug)]
pub struct ToolCall<'a> {
    /// The tool, as the server names it; empty where `params.name` is no string.
    pub name: Cow<'a, str>,
    /// `params.arguments` as written.
    pub arguments: Option<Json<'a>>,
    /// Answers to what an earlier `input_required` result asked (2026-07-28): the call is a continuation of that
    /// one under a new id, not a retry.
    pub input_responses: Option<Json<'a>>,
    /// The caller asks for a task handle (2025-11-25).
    pub as_task: bool,
}

/// What is kept of a request until its answer has come.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its id.
    pub id: RequestId,
    /// Its direction.
    pub direction: Direction,
    /// Its method.
    pub method: Method,
    /// The tool, prompt, resource or task it names, cut to 1,024 bytes.
    pub subject: Option<Arc<str>>,
    /// When it was sent.
    pub time: Nanos,
    /// Bytes were lost just before it.
    pub gap: bool,
    /// When its cancellation was sent. An answer may still come.
    pub cancelled: Option<Nanos>,
    /// Its id was in use when it was sent, or was used again before its answer: the pairing is a guess.
    pub ambiguous: bool,
    /// Its progress token.
    pub progress_token: Option<RequestId>,
    /// The agent's own ids for it.
    pub correlation: Correlation,
    /// The page of a list it asks for.
    pub page: Option<PageKey>,
    /// The revision it said to speak in `_meta`.
    pub revision: Option<Revision>,
}

/// Which page of which list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PageKey {
    /// Counts lists of this session and kind from 0. A request without a cursor begins a new list.
    pub list: u64,
    /// Counts pages from 0.
    pub page: u32,
    /// All pages from the first on were seen without a gap.
    pub from_start: bool,
    /// The client's capabilities in canonical form, where known. Lists may depend on them.
    pub capabilities: Option<Arc<str>>,
    /// The revision, where known.
    pub revision: Option<Revision>,
}

/// An answer with its request.
#[derive(Clone, Debug)]
pub struct Response<'a> {
    /// The request.
    pub asked: Asked,
    /// Time between the two; 0 where the capture saw the answer first.
    pub latency: Nanos,
    /// How it went.
    pub outcome: Outcome,
    /// `result` as written.
    pub result: Option<Json<'a>>,
    /// `error`.
    pub error: Option<RpcError<'a>>,
    /// `result._meta`.
    pub meta: Option<Meta<'a>>,
    /// What it brings.
    pub kind: ResponseKind<'a>,
}

/// How a request went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// A result.
    Ok,
    /// A result with `isError: true`.
    ToolError,
    /// A JSON-RPC error with this code (0 where it has none).
    RpcError(i64),
    /// The server wants input first; the client will send the request again under a new id (2026-07-28).
    InputRequired,
    /// A task handle: the real result comes later.
    Task,
}

/// A JSON-RPC error.
#[derive(Clone, Debug)]
pub struct RpcError<'a> {
    /// `code`, 0 where it is no integer.
    pub code: i64,
    /// `message`, empty where it is no string.
    pub message: Cow<'a, str>,
    /// `data` as written.
    pub data: Option<Json<'a>>,
}

/// What an answer brings.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ResponseKind<'a> {
    /// `initialize` or `server/discover`.
    Handshake {
        /// The server's instructions, whole.
        instructions: Option<Cow<'a, str>>,
    },
    /// The result of a tool call, directly or through a task.
    Tool {
        /// The `CallToolResult` object, or what stands for it.
        result: Json<'a>,
        /// The call, where the result came through a task; then `asked` is the task request.
        call: Option<Box<Asked>>,
    },
    /// A page of a list.
    Page(ListPage<'a>),
    /// `prompts/get`
    Prompt,
    /// `resources/read`
    Resource,
    /// A sampled message, by the client.
    Sampling,
    /// What the user filled in, by the client.
    Elicitation,
    /// A task handle or a task's state without its result.
    Task {
        /// The task.
        id: Option<Arc<str>>,
        /// Its status as written.
        status: Option<Cow<'a, str>>,
        /// The request that began it, where it was seen.
        call: Option<Box<Asked>>,
    },
    /// What the server wants to know before it goes on (2026-07-28): `inputRequests` as written.
    InputRequests(Option<Json<'a>>),
    /// Anything else, errors among it.
    Other,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct ListPage<'a> {
    /// Which list.
    pub list: ListKind,
    /// Its place.
    pub key: PageKey,
    /// The array of items as written; none where the result has no such array.
    pub items: Option<Json<'a>>,
    /// Another page follows.
    pub next: bool,
    /// This is the last page and all pages before it were seen: a tool that is missing now is gone.
    pub complete: bool,
}

/// A notification.
#[derive(Clone, Debug)]
pub struct Notification<'a> {
    /// Its method.
    pub method: Method,
    /// `params` as written.
    pub params: Option<Json<'a>>,
    /// `params._meta`.
    pub meta: Option<Meta<'a>>,
    /// What it brings.
    pub kind: NotificationKind<'a>,
}

/// What a notification brings.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NotificationKind<'a> {
    /// A `tools/call` without an id: a server may still run it.
    ToolCall(ToolCall<'a>),
    /// News of a task; with its result where the revision sends it so.
    Task {
        /// The task.
        id: Option<Arc<str>>,
        /// Its status as written.
        status: Option<Cow<'a, str>>,
        /// Its result.
        result: Option<Json<'a>>,
        /// The request that began it, where it was seen.
        call: Option<Box<Asked>>,
    },
    /// Anything else.
    Other,
}

/// `notifications/progress`
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The token.
    pub token: Option<RequestId>,
    /// How far.
    pub progress: Option<f64>,
    /// Of how much.
    pub total: Option<f64>,
    /// A text for people.
    pub message: Option<Cow<'a, str>>,
    /// The open request that carries the token.
    pub request: Option<RequestId>,
    /// The method of that request.
    pub method: Option<Method>,
    /// What that request names.
    pub subject: Option<Arc<str>>,
    /// `params` as written.
    pub params: Option<Json<'a>>,
}

/// `notifications/cancelled`
#[derive(Clone, Debug)]
pub struct Cancelled<'a> {
    /// The request that is given up.
    pub id: Option<RequestId>,
    /// A text for people.
    pub reason: Option<Cow<'a, str>>,
    /// The method of that request, where it is still open.
    pub method: Option<Method>,
    /// What that request names.
    pub subject: Option<Arc<str>>,
}

/// An answer without a request.
#[derive(Clone, Debug)]
pub struct UnknownResponse<'a> {
    /// The id it answers; none where it has no usable one.
    pub id: Option<RequestId>,
    /// `result` as written.
    pub result: Option<Json<'a>>,
    /// `error`.
    pub error: Option<RpcError<'a>>,
}

/// A tool result, however it came.
#[derive(Clone, Debug)]
pub struct ToolResult<'e> {
    /// The call; none where a task's result came whose call was not seen.
    pub call: Option<&'e Asked>,
    /// How it went.
    pub outcome: Outcome,
    /// The result object.
    pub result: Json<'e>,
    /// Time since the call, where it was seen.
    pub latency: Option<Nanos>,
}

impl Event<'_> {
    /// The tool call of this event, with its id where it has one.
    pub fn tool_call(&self) -> Option<(Option<&RequestId>, &ToolCall<'_>)> {
        match &self.kind {
            EventKind::Request(request) => match &request.kind {
                RequestKind::ToolCall(call) => Some((Some(&request.id), call)),
                _ => None,
            },
            EventKind::Notification(notification) => match &notification.kind {
                NotificationKind::ToolCall(call) => Some((None, call)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The final result of a tool call, whether answered at once or through a task. Errors of JSON-RPC, task handles
    /// and `input_required` are not results: see [`Response::outcome`].
    pub fn tool_result(&self) -> Option<ToolResult<'_>> {
        let (call, result, outcome) = match &self.kind {
            EventKind::Response(response) => match &response.kind {
                ResponseKind::Tool { result, call } => {
                    let direct = (response.asked.method == Method::ToolsCall).then_some(&response.asked);
                    (call.as_deref().or(direct), result, response.outcome)
                }
                _ => return None,
            },
            EventKind::Notification(notification) => match &notification.kind {
                NotificationKind::Task {
                    result: Some(result),
                    call,
                    ..
                } => {
                    let failed = result.member("isError").and_then(|v| v.as_bool()) == Some(true);
                    (
                        call.as_deref(),
                        result,
                        if failed { Outcome::ToolError } else { Outcome::Ok },
                    )
                }
                _ => return None,
            },
            _ => return None,
        };
        let latency = call.map(|call| self.time.saturating_sub(call.time));
        Some(ToolResult {
            call,
            outcome,
            result: result.view(),
            latency,
        })
    }
}
