//! Events that outlive their frame.

use std::borrow::Cow;

use super::{
    Cancelled, Event, EventKind, ListPage, Notification, NotificationKind, Progress, Request, RequestKind,
    Response, ResponseKind, RpcError, ToolCall, UnknownResponse,
};
use crate::json::Json;
use crate::meta::Meta;

fn text(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

fn maybe(value: Option<Cow<'_, str>>) -> Option<Cow<'static, str>> {
    value.map(text)
}

fn json(value: Option<Json<'_>>) -> Option<Json<'static>> {
    value.map(Json::into_owned)
}

impl Event<'_> {
    /// A copy that borrows nothing.
    pub fn into_owned(self) -> Event<'static> {
        Event {
            kind: self.kind.into_owned(),
            ..self
        }
    }
}

impl EventKind<'_> {
    fn into_owned(self) -> EventKind<'static> {
        match self {
            Self::Request(e) => EventKind::Request(Box::new(e.into_owned())),
            Self::Response(e) => EventKind::Response(Box::new(e.into_owned())),
            Self::Notification(e) => EventKind::Notification(Box::new(e.into_owned())),
            Self::Progress(e) => EventKind::Progress(Box::new(Progress {
                message: maybe(e.message),
                params: json(e.params),
                token: e.token,
                progress: e.progress,
                total: e.total,
                request: e.request,
                method: e.method,
                subject: e.subject,
            })),
            Self::Cancelled(e) => EventKind::Cancelled(Box::new(Cancelled {
                id: e.id,
                reason: maybe(e.reason),
                method: e.method,
                subject: e.subject,
            })),
            Self::UnknownResponse(e) => EventKind::UnknownResponse(Box::new(UnknownResponse {
                id: e.id,
                result: json(e.result),
                error: e.error.map(RpcError::into_owned),
            })),
            Self::Identity(e) => EventKind::Identity(e),
            Self::Evicted(e) => EventKind::Evicted(e),
            Self::Unanswered(e) => EventKind::Unanswered(e),
            Self::Malformed(e) => EventKind::Malformed(e),
            Self::Oversized { length } => EventKind::Oversized { length },
            Self::Gap { seen, lost } => EventKind::Gap { seen, lost },
        }
    }
}

impl RpcError<'_> {
    fn into_owned(self) -> RpcError<'static> {
        RpcError {
            code: self.code,
            message: text(self.message),
            data: json(self.data),
        }
    }
}

impl ToolCall<'_> {
    fn into_owned(self) -> ToolCall<'static> {
        ToolCall {
            name: text(self.name),
            arguments: json(self.arguments),
            input_responses: json(self.input_responses),
            as_task: self.as_task,
        }
    }
}

impl Request<'_> {
    fn into_owned(self) -> Request<'static> {
        Request {
            params: json(self.params),
            meta: self.meta.map(Meta::into_owned),
            kind: match self.kind {
                RequestKind::ToolCall(call) => RequestKind::ToolCall(call.into_owned()),
                RequestKind::List { list, cursor } => RequestKind::List {
                    list,
                    cursor: maybe(cursor),
                },
                RequestKind::GetPrompt { name, arguments } => RequestKind::GetPrompt {
                    name: maybe(name),
                    arguments: json(arguments),
                },
                RequestKind::ReadResource { uri } => RequestKind::ReadResource { uri: maybe(uri) },
                RequestKind::Task { id } => RequestKind::Task { id: maybe(id) },
                RequestKind::Sampling => RequestKind::Sampling,
                RequestKind::Elicitation => RequestKind::Elicitation,
                RequestKind::Other => RequestKind::Other,
            },
            id: self.id,
            method: self.method,
            id_reused: self.id_reused,
        }
    }
}

impl Response<'_> {
    fn into_owned(self) -> Response<'static> {
        Response {
            result: json(self.result),
            error: self.error.map(RpcError::into_owned),
            meta: self.meta.map(Meta::into_owned),
            kind: match self.kind {
                ResponseKind::Handshake { instructions } => ResponseKind::Handshake {
                    instructions: maybe(instructions),
                },
                ResponseKind::Tool { result, call } => ResponseKind::Tool {
                    result: result.into_owned(),
                    call,
                },
                ResponseKind::Page(page) => ResponseKind::Page(ListPage {
                    items: json(page.items),
                    list: page.list,
                    key: page.key,
                    next: page.next,
                    complete: page.complete,
                }),
                ResponseKind::Task { id, status, call } => ResponseKind::Task {
                    id,
                    status: maybe(status),
                    call,
                },
                ResponseKind::InputRequests(requests) => ResponseKind::InputRequests(json(requests)),
                ResponseKind::Prompt => ResponseKind::Prompt,
                ResponseKind::Resource => ResponseKind::Resource,
                ResponseKind::Sampling => ResponseKind::Sampling,
                ResponseKind::Elicitation => ResponseKind::Elicitation,
                ResponseKind::Other => ResponseKind::Other,
            },
            asked: self.asked,
            latency: self.latency,
            outcome: self.outcome,
        }
    }
}

impl Notification<'_> {
    fn into_owned(self) -> Notification<'static> {
        Notification {
            params: json(self.params),
            meta: self.meta.map(Meta::into_owned),
            kind: match self.kind {
                NotificationKind::ToolCall(call) => NotificationKind::ToolCall(call.into_owned()),
                NotificationKind::Task {
                    id,
                    status,
                    result,
                    call,
                } => NotificationKind::Task {
                    id,
                    status: maybe(status),
                    result: json(result),
                    call,
                },
                NotificationKind::Other => NotificationKind::Other,
            },
            method: self.method,
        }
    }
}
