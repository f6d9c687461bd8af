//! Requests and notifications.

use std::borrow::Cow;
use std::sync::Arc;

use super::identity::canonical;
use super::{Place, Session};
use crate::Direction;
use crate::envelope::Envelope;
use crate::event::{
    Asked, Cancelled, Event, EventKind, Notification, NotificationKind, PageKey, Progress, Request,
    RequestKind, ToolCall,
};
use crate::id::RequestId;
use crate::json::{Json, cut, pick, string};
use crate::meta::{Meta, token_of};
use crate::method::{ListKind, Method};

/// Longest tool, prompt, resource or task name that is kept with an open request, in bytes.
const MAX_SUBJECT: usize = 1024;

impl Session {
    pub(super) fn request<'f>(&mut self, place: Place, envelope: Envelope<'f>, out: &mut Vec<Event<'f>>) {
        self.stats.requests += 1;
        let method = Method::from_name(envelope.method.as_deref().unwrap_or_default());
        let params = envelope
            .params
            .as_ref()
            .and_then(Json::borrowed)
            .unwrap_or_default();
        let meta = Meta::of(params);
        self.learn_of_client(place, &method, params, meta.as_ref(), out);

        let kind = request_kind(&method, params);
        let page = self.page(place, &kind, meta.as_ref());
        // An id that cannot be tracked stands as null; the oddities say so.
        let tracked = envelope.id.and_then(Result::ok);
        let mut request = Request {
            id: tracked.clone().unwrap_or(RequestId::Null),
            method,
            params: envelope.params,
            meta,
            id_reused: false,
            kind,
        };
        let Some(id) = tracked else {
            out.push(place.event(envelope.oddities, EventKind::Request(Box::new(request))));
            return;
        };
        let added = {
            let asked = asked(place, &request, page);
            let cap = self.config.pending;
            self.pending(place.direction).add(asked, cap)
        };
        request.id_reused = added.reused;
        self.stats.reused_ids += u64::from(added.reused);
        out.push(place.event(envelope.oddities, EventKind::Request(Box::new(request))));
        if let Some(evicted) = added.evicted {
            self.stats.evicted += 1;
            out.push(place.aside(EventKind::Evicted(Box::new(evicted))));
        }
        if let Some(held) = self.early(place.direction).take(&id)
            && let Some(asked) = self.pending(place.direction).answer_early(&id)
        {
            self.stats.early_responses += 1;
            self.reread(place.direction, &held, place.time, Some(asked), out);
        }
    }

    /// Takes what a request tells of the client.
    fn learn_of_client(
        &mut self,
        place: Place,
        method: &Method,
        params: &str,
        meta: Option<&Meta<'_>>,
        out: &mut Vec<Event<'_>>,
    ) {
        if place.direction != Direction::ToServer {
            return;
        }
        if *method == Method::Initialize {
            self.learn(place, out, |identity| {
                *identity = super::Identity::default();
                identity.opening(params);
            });
        } else if let Some(meta) = meta.filter(|_| !self.identity.initialized)
            && (meta.revision.is_some() || meta.client_info.is_some() || meta.client_capabilities.is_some())
        {
            self.learn(place, out, |identity| {
                identity.client(
                    meta.client_info.as_ref().map(Json::get),
                    meta.client_capabilities.as_ref().map(Json::get),
                );
                if let Some(revision) = &meta.revision {
                    identity.revision = Some(revision.clone());
                }
            });
        }
    }

    /// The page that a list request asks for.
    fn page(&mut self, place: Place, kind: &RequestKind<'_>, meta: Option<&Meta<'_>>) -> Option<PageKey> {
        let RequestKind::List { list, cursor } = kind else {
            return None;
        };
        let at = self.lists.ask(*list, cursor.as_deref());
        let stateless = meta.and_then(|meta| meta.client_capabilities.as_ref());
        Some(PageKey {
            list: at.list,
            page: at.page,
            from_start: at.from_start && !place.gap,
            capabilities: stateless
                .map(|capabilities| canonical(capabilities.get()))
                .or_else(|| self.identity.client_capabilities.clone()),
            revision: meta
                .and_then(|meta| meta.revision.clone())
                .or_else(|| self.identity.revision.clone()),
        })
    }

    pub(super) fn notification<'f>(
        &mut self,
        place: Place,
        envelope: Envelope<'f>,
        out: &mut Vec<Event<'f>>,
    ) {
        self.stats.notifications += 1;
        let method = Method::from_name(envelope.method.as_deref().unwrap_or_default());
        let params = envelope
            .params
            .as_ref()
            .and_then(Json::borrowed)
            .unwrap_or_default();
        let kind = match method {
            Method::Cancelled => EventKind::Cancelled(Box::new(self.cancelled(place, params))),
            Method::Progress => EventKind::Progress(Box::new(self.progress(place, params, envelope.params))),
            _ => EventKind::Notification(Box::new(Notification {
                kind: self.notification_kind(place, &method, params),
                meta: Meta::of(params),
                params: envelope.params,
                method,
            })),
        };
        out.push(place.event(envelope.oddities, kind));
    }

    /// A request is given up. It stays open: the answer may already be under way.
    fn cancelled<'f>(&mut self, place: Place, params: &'f str) -> Cancelled<'f> {
        let [id, reason] = pick(params, ["requestId", "reason"]);
        let id = id.and_then(token_of);
        let mut cancelled = Cancelled {
            id: None,
            reason: reason.and_then(string),
            method: None,
            subject: None,
        };
        if let Some(id) = id {
            if let Some(asked) = self.pending(place.direction).get_mut(&id) {
                asked.cancelled.get_or_insert(place.time);
                cancelled.method = Some(asked.method.clone());
                cancelled.subject.clone_from(&asked.subject);
            }
            cancelled.id = Some(id);
        }
        cancelled
    }

    fn progress<'f>(&mut self, place: Place, text: &'f str, params: Option<Json<'f>>) -> Progress<'f> {
        let [token, progress, total, message] = pick(text, ["progressToken", "progress", "total", "message"]);
        let token = token.and_then(token_of);
        let number = |text: &str| Json::checked(text).as_f64();
        let asked = token
            .as_ref()
            .and_then(|token| self.pending(place.direction.opposite()).by_token(token));
        Progress {
            progress: progress.and_then(number),
            total: total.and_then(number),
            message: message.and_then(string),
            request: asked.map(|asked| asked.id.clone()),
            method: asked.map(|asked| asked.method.clone()),
            subject: asked.and_then(|asked| asked.subject.clone()),
            token,
            params,
        }
    }

    fn notification_kind<'f>(&self, place: Place, method: &Method, params: &'f str) -> NotificationKind<'f> {
        match method {
            Method::ToolsCall => NotificationKind::ToolCall(tool_call(params)),
            Method::TaskStatus | Method::TaskNews => {
                let [id, status, result] = pick(params, ["taskId", "status", "result"]);
                let id = id.and_then(string);
                let call = id
                    .as_deref()
                    .and_then(|id| self.tasks.call(place.direction.opposite(), id))
                    .map(|call| Box::new(call.clone()));
                NotificationKind::Task {
                    id: id.map(|id| Arc::from(cut(&id, MAX_SUBJECT))),
                    status: status.and_then(string),
                    result: result.map(Json::checked),
                    call,
                }
            }
            _ => NotificationKind::Other,
        }
    }
}

/// What is kept of a request.
fn asked(place: Place, request: &Request<'_>, page: Option<PageKey>) -> Asked {
    let subject: Option<&str> = match &request.kind {
        RequestKind::ToolCall(call) => Some(&call.name),
        RequestKind::GetPrompt { name, .. } => name.as_deref(),
        RequestKind::ReadResource { uri } => uri.as_deref(),
        RequestKind::Task { id } => id.as_deref(),
        _ => None,
    };
    let meta = request.meta.as_ref();
    Asked {
        id: request.id.clone(),
        direction: place.direction,
        method: request.method.clone(),
        subject: subject.map(|subject| Arc::from(cut(subject, MAX_SUBJECT))),
        time: place.time,
        gap: place.gap,
        cancelled: None,
        ambiguous: false,
        progress_token: meta.and_then(|meta| meta.progress_token.clone()),
        correlation: meta.map(|meta| meta.correlation.clone()).unwrap_or_default(),
        page,
        revision: meta.and_then(|meta| meta.revision.clone()),
    }
}

fn request_kind<'f>(method: &Method, params: &'f str) -> RequestKind<'f> {
    let one = |name: &str| -> Option<Cow<'f, str>> { pick(params, [name])[0].and_then(string) };
    let list = |list: ListKind| RequestKind::List {
        list,
        cursor: one("cursor"),
    };
    match method {
        Method::ToolsCall => RequestKind::ToolCall(tool_call(params)),
        Method::PromptsGet => {
            let [name, arguments] = pick(params, ["name", "arguments"]);
            RequestKind::GetPrompt {
                name: name.and_then(string),
                arguments: arguments.map(Json::checked),
            }
        }
        Method::ResourcesRead => RequestKind::ReadResource { uri: one("uri") },
        Method::TasksGet | Method::TasksResult | Method::TasksCancel | Method::TasksUpdate => {
            RequestKind::Task { id: one("taskId") }
        }
        Method::SamplingCreateMessage => RequestKind::Sampling,
        Method::ElicitationCreate => RequestKind::Elicitation,
        other => other.list().map_or(RequestKind::Other, list),
    }
}

fn tool_call(params: &str) -> ToolCall<'_> {
    let [name, arguments, responses, task] = pick(params, ["name", "arguments", "inputResponses", "task"]);
    ToolCall {
        name: name.and_then(string).unwrap_or_default(),
        arguments: arguments.map(Json::checked),
        input_responses: responses.map(Json::checked),
        as_task: task.is_some_and(|task| task.starts_with('{')),
    }
}
