//! Answers, once their request is known.

use std::sync::Arc;

use super::{Place, Session};
use crate::Direction;
use crate::envelope::Envelope;
use crate::event::{Asked, Event, EventKind, ListPage, Outcome, PageKey, Response, ResponseKind, RpcError};
use crate::json::{Json, cut, pick, string};
use crate::meta::Meta;
use crate::method::{ListKind, Method};

/// The members of a result that the session itself reads.
#[derive(Clone, Copy, Default)]
struct Parts<'f> {
    meta: Option<&'f str>,
    is_error: bool,
    result_type: Option<&'f str>,
    /// `content` or `structuredContent` is there: a client will show it, whatever else the result says.
    has_content: bool,
    task: Option<&'f str>,
    task_id: Option<&'f str>,
    status: Option<&'f str>,
    inner: Option<&'f str>,
    inner_error: Option<&'f str>,
    input_requests: Option<&'f str>,
    next_cursor: Option<&'f str>,
}

impl<'f> Parts<'f> {
    fn of(result: &'f str) -> Self {
        let [meta, is_error, result_type, content, structured, task, task_id] = pick(
            result,
            [
                "_meta",
                "isError",
                "resultType",
                "content",
                "structuredContent",
                "task",
                "taskId",
            ],
        );
        let parts = Self {
            meta,
            is_error: is_error == Some("true"),
            result_type,
            has_content: content.or(structured).is_some(),
            task,
            task_id,
            ..Self::default()
        };
        if parts.has_content {
            return parts;
        }
        let [status, inner, inner_error, input_requests, next_cursor] = pick(
            result,
            ["status", "result", "error", "inputRequests", "nextCursor"],
        );
        Self {
            status,
            inner,
            inner_error,
            input_requests,
            next_cursor,
            ..parts
        }
    }

    fn result_type_is(&self, name: &str) -> bool {
        self.result_type.and_then(string).is_some_and(|t| t == name)
    }

    /// The task that a handle names: nested in 2025-11-25, flat in the 2026 extension.
    fn handle(&self) -> Option<(Option<&'f str>, Option<&'f str>)> {
        if let Some(task) = self.task.filter(|task| task.starts_with('{')) {
            let [id, status] = pick(task, ["taskId", "status"]);
            return Some((id, status));
        }
        self.result_type_is("task").then_some((self.task_id, self.status))
    }
}

impl Session {
    pub(super) fn answer<'f>(
        &mut self,
        place: Place,
        asked: Asked,
        envelope: Envelope<'f>,
        out: &mut Vec<Event<'f>>,
    ) {
        self.stats.responses += 1;
        let place = Place {
            gap: place.gap || asked.gap,
            ..place
        };
        let text = envelope
            .result
            .as_ref()
            .and_then(Json::borrowed)
            .unwrap_or_default();
        // Beside a result, `"error": null` is how JSON-RPC 1.0 writes success.
        let no_error = |error: &&Json<'_>| envelope.result.is_none() || error.get() != "null";
        let error = envelope.error.as_ref().filter(no_error).map(RpcError::read);
        let parts = Parts::of(text);
        let meta = parts.meta.and_then(Meta::read);
        let (outcome, kind) = match &error {
            Some(error) if envelope.result.is_none() => (Outcome::RpcError(error.code), ResponseKind::Other),
            // With both, some clients read the one and some the other; the result is what a model may read.
            _ => self.outcome(place, &asked, text, &parts, out),
        };
        if error.is_none() {
            self.learn_of_server(place, &asked, meta.as_ref(), out);
        }
        let latency = place.time.saturating_sub(asked.time);
        let response = Response {
            asked,
            latency,
            outcome,
            result: envelope.result,
            error,
            meta,
            kind,
        };
        out.push(place.event(envelope.oddities, EventKind::Response(Box::new(response))));
    }

    /// A stateless result names its server, and confirms the revision that its request spoke.
    fn learn_of_server(
        &mut self,
        place: Place,
        asked: &Asked,
        meta: Option<&Meta<'_>>,
        out: &mut Vec<Event<'_>>,
    ) {
        if place.direction != Direction::ToClient || self.identity.initialized {
            return;
        }
        let server = meta.and_then(|meta| meta.server_info.as_ref()).map(Json::get);
        if server.is_some() || asked.revision.is_some() {
            self.learn(place, out, |identity| {
                identity.server(server);
                if let Some(revision) = &asked.revision {
                    identity.revision = Some(revision.clone());
                }
            });
        }
    }

    fn outcome<'f>(
        &mut self,
        place: Place,
        asked: &Asked,
        text: &'f str,
        parts: &Parts<'f>,
        out: &mut Vec<Event<'f>>,
    ) -> (Outcome, ResponseKind<'f>) {
        let plain = if parts.is_error {
            Outcome::ToolError
        } else {
            Outcome::Ok
        };
        if parts.has_content && asked.method == Method::ToolsCall {
            let outcome = if parts.result_type_is("input_required") {
                Outcome::InputRequired
            } else {
                plain
            };
            return (
                outcome,
                ResponseKind::Tool {
                    result: Json::checked(text),
                    call: None,
                },
            );
        }
        if parts.result_type_is("input_required") {
            return (
                Outcome::InputRequired,
                ResponseKind::InputRequests(parts.input_requests.map(Json::checked)),
            );
        }
        if !is_task_method(&asked.method)
            && !parts.has_content
            && let Some((id, status)) = parts.handle()
        {
            let id = id.and_then(string);
            if let Some(id) = &id {
                self.tasks.begin(id, asked.clone(), self.config.tasks);
            }
            let id = id.map(|id| Arc::from(cut(&id, 1024)));
            let kind = ResponseKind::Task {
                id,
                status: status.and_then(string),
                call: None,
            };
            return (Outcome::Task, kind);
        }
        let kind = match &asked.method {
            Method::Initialize | Method::Discover if place.direction == Direction::ToClient => {
                let instructions = self.learn(place, out, |identity| identity.answer(text));
                ResponseKind::Handshake { instructions }
            }
            Method::ToolsCall => ResponseKind::Tool {
                result: Json::checked(text),
                call: None,
            },
            Method::PromptsGet => ResponseKind::Prompt,
            Method::ResourcesRead => ResponseKind::Resource,
            Method::SamplingCreateMessage => ResponseKind::Sampling,
            Method::ElicitationCreate => ResponseKind::Elicitation,
            method if is_task_method(method) => return self.task(asked, text, parts, plain),
            method => match (method.list(), &asked.page) {
                (Some(list), Some(key)) => ResponseKind::Page(self.list_page(place, list, key, text, parts)),
                _ => ResponseKind::Other,
            },
        };
        (plain, kind)
    }

    /// The answer to a request about a task: its result, its state, or its failure.
    fn task<'f>(
        &self,
        asked: &Asked,
        text: &'f str,
        parts: &Parts<'f>,
        plain: Outcome,
    ) -> (Outcome, ResponseKind<'f>) {
        let call = asked
            .subject
            .as_deref()
            .and_then(|id| self.tasks.call(asked.direction, id));
        let of_tool = call.is_none_or(|call| call.method == Method::ToolsCall);
        let boxed = || call.map(|call| Box::new(call.clone()));
        if asked.method == Method::TasksResult {
            let kind = match call.map(|call| &call.method) {
                Some(Method::SamplingCreateMessage) => ResponseKind::Sampling,
                Some(Method::ElicitationCreate) => ResponseKind::Elicitation,
                _ if parts.has_content || (call.is_some() && of_tool) => ResponseKind::Tool {
                    result: Json::checked(text),
                    call: boxed(),
                },
                _ => ResponseKind::Other,
            };
            return (plain, kind);
        }
        if parts.has_content && of_tool {
            return (
                plain,
                ResponseKind::Tool {
                    result: Json::checked(text),
                    call: boxed(),
                },
            );
        }
        if let Some(inner) = parts.inner.filter(|inner| of_tool && inner.starts_with('{')) {
            let failed = pick(inner, ["isError"])[0] == Some("true");
            let outcome = if failed { Outcome::ToolError } else { Outcome::Ok };
            return (
                outcome,
                ResponseKind::Tool {
                    result: Json::checked(inner),
                    call: boxed(),
                },
            );
        }
        if let Some(requests) = parts.input_requests {
            return (
                Outcome::InputRequired,
                ResponseKind::InputRequests(Some(Json::checked(requests))),
            );
        }
        let outcome = match parts.inner_error.filter(|error| error.starts_with('{')) {
            Some(error) => Outcome::RpcError(RpcError::read(&Json::checked(error)).code),
            None => plain,
        };
        let id = parts.task_id.and_then(string).map(|id| Arc::from(cut(&id, 1024)));
        let kind = ResponseKind::Task {
            id,
            status: parts.status.and_then(string),
            call: boxed(),
        };
        (outcome, kind)
    }

    fn list_page<'f>(
        &mut self,
        place: Place,
        list: ListKind,
        key: &PageKey,
        text: &'f str,
        parts: &Parts<'f>,
    ) -> ListPage<'f> {
        let [items] = pick(text, [list.member()]);
        let items = items.filter(|items| items.starts_with('['));
        let next = parts.next_cursor.and_then(string);
        let mut key = key.clone();
        key.from_start &= !place.gap && items.is_some();
        if let Some(next) = &next {
            let at = super::lists::Place {
                list: key.list,
                page: key.page,
                from_start: key.from_start,
            };
            self.lists.answered(list, at, next);
        }
        let complete = key.from_start && next.is_none();
        ListPage {
            list,
            key,
            items: items.map(Json::checked),
            next: next.is_some(),
            complete,
        }
    }
}

const fn is_task_method(method: &Method) -> bool {
    matches!(
        method,
        Method::TasksGet
            | Method::TasksResult
            | Method::TasksCancel
            | Method::TasksUpdate
            | Method::TasksList
    )
}

impl<'a> RpcError<'a> {
    /// Reads an `error` member.
    pub(crate) fn read(error: &Json<'a>) -> Self {
        let text = error.borrowed().unwrap_or_default();
        let [code, message, data] = pick(text, ["code", "message", "data"]);
        Self {
            code: code.and_then(|code| Json::checked(code).as_i64()).unwrap_or(0),
            message: message.and_then(string).unwrap_or_default(),
            data: data.map(Json::checked),
        }
    }
}
