//! A session's events in the words of the admin API: names, counts and times, never what was said.
//!
//! Names, ids and unknown methods are the parties' own words: they are shown without the credentials in them.

use std::time::Duration;

use kams_detect::redact;
use kams_export::metrics::Operation;
use kams_export::view::{self, EventKind as Kind, EventView, Outcome as Told, Time};
use kams_mcp::event::{Asked, EventKind, Malformed, Outcome, Request, RequestKind, Response, ResponseKind};
use kams_mcp::{Direction, Event, ListKind, Method, RequestId, Session};

use super::conversation::Party;
use super::sink::Sink;

/// The wire word of a direction.
pub const fn direction(direction: Direction) -> view::Direction {
    match direction {
        Direction::ToServer => view::Direction::ToServer,
        Direction::ToClient => view::Direction::ToAgent,
    }
}

/// An event about a conversation with nothing else known.
pub fn base(party: &Party, kind: Kind, time: Time) -> EventView {
    EventView {
        agent: Some(party.agent.to_string()),
        agent_pid: Some(party.agent_pid),
        server: Some(party.server.to_string()),
        server_id: Some(party.server_id),
        server_pid: Some(party.server_pid),
        ..EventView::new(kind, time, party.uid, &*party.user)
    }
}

/// Tells `sink` what an event of the session means.
pub fn describe(
    party: &Party,
    time: Time,
    session: &Session,
    event: &Event<'_>,
    tally: &mut Tally,
    sink: &mut dyn Sink,
) {
    let mut told = EventView {
        direction: Some(direction(event.direction)),
        bytes: (event.bytes > 0).then_some(event.bytes.saturating_sub(1)),
        gap: event.gap,
        ..base(party, Kind::Unknown, time)
    };
    if let Some(key) = &event.oddities.duplicate_key {
        told.detail = Some(if redact::betrays(key) {
            "a key is repeated: agent and server may read it differently".to_owned()
        } else {
            format!("the key {key:?} is repeated: agent and server may read it differently")
        });
    }
    match &event.kind {
        EventKind::Request(request) => {
            sink.frame("request");
            asked(&mut told, request);
        }
        EventKind::Response(response) => {
            sink.frame("response");
            answered(party, &mut told, event, response, sink);
        }
        EventKind::Notification(notification) => {
            sink.frame("notification");
            told.event = if event.tool_call().is_some() {
                Kind::ToolCall
            } else {
                Kind::Notification
            };
            told.method = Some(method(&notification.method));
            told.tool = event.tool_call().map(|(_, call)| name(&call.name));
            told.reason = event.tool_call().map(|_| "without_id".to_owned());
        }
        EventKind::Progress(progress) => {
            sink.frame("notification");
            told.event = Kind::Notification;
            told.method = Some(Method::Progress.to_string());
            told.tool = subject(progress.method.as_ref(), progress.subject.as_deref());
            told.request_id = progress.request.as_ref().map(id);
        }
        EventKind::Cancelled(cancelled) => {
            sink.frame("notification");
            told.event = Kind::Notification;
            told.method = Some(Method::Cancelled.to_string());
            told.tool = subject(cancelled.method.as_ref(), cancelled.subject.as_deref());
            told.request_id = cancelled.id.as_ref().map(id);
        }
        EventKind::UnknownResponse(response) => {
            sink.frame("response");
            told.event = Kind::Response;
            told.request_id = response.id.as_ref().map(id);
            told.reason = Some("no_request".to_owned());
        }
        EventKind::Evicted(open) => unanswered(&mut told, open, "too_many_open"),
        EventKind::Unanswered(open) => unanswered(&mut told, open, "ended"),
        EventKind::Malformed(why) => {
            sink.frame("malformed");
            told.event = Kind::Malformed;
            told.reason = Some(malformed(*why).to_owned());
            told.detail = Some(why.to_string());
        }
        EventKind::Oversized { length } => {
            told.event = Kind::Malformed;
            told.reason = Some("over_limit".to_owned());
            told.bytes = Some(*length);
            told.detail = Some("longer than sensor.max_message; its content was not looked at".to_owned());
        }
        EventKind::Gap { seen, lost } => {
            told.event = Kind::Gap;
            told.reason = Some("resynchronised".to_owned());
            told.bytes = Some(seen.saturating_add(*lost));
        }
        // Identity among them: the registry takes it from the session, and it is no event of its own.
        _ => return,
    }
    let listed = tally.page(event, &told);
    let revision = session.identity().revision.as_ref();
    told.revision = revision
        .filter(|_| told.event == Kind::Response)
        .map(|r| name(r.name()));
    sink.event(told);
    if let Some(listed) = listed {
        sink.event(listed);
    }
}

fn asked(told: &mut EventView, request: &Request<'_>) {
    told.event = Kind::Request;
    told.method = Some(method(&request.method));
    told.request_id = Some(id(&request.id));
    told.reason = request.id_reused.then(|| "id_reused".to_owned());
    match &request.kind {
        RequestKind::ToolCall(call) => {
            told.event = Kind::ToolCall;
            told.tool = Some(name(&call.name));
        }
        RequestKind::GetPrompt {
            name: Some(prompt), ..
        } => told.tool = Some(name(prompt)),
        _ => {}
    }
}

fn answered(
    party: &Party,
    told: &mut EventView,
    event: &Event<'_>,
    response: &Response<'_>,
    sink: &mut dyn Sink,
) {
    let Response {
        asked,
        latency,
        outcome,
        ..
    } = response;
    let result = event.tool_result();
    // A task's result is told under the call that began the task.
    let about = result.as_ref().and_then(|r| r.call).unwrap_or(asked);
    let latency = result.as_ref().and_then(|r| r.latency).unwrap_or(*latency);
    told.event = if about.method == Method::ToolsCall {
        Kind::ToolResult
    } else {
        Kind::Response
    };
    told.method = Some(method(&about.method));
    told.request_id = Some(id(&about.id));
    told.latency_us = Some(latency / 1_000);
    told.gap |= about.gap;
    told.reason = about.ambiguous.then(|| "id_reused".to_owned());
    let word;
    let error = match outcome {
        Outcome::Ok | Outcome::Task | Outcome::InputRequired => None,
        Outcome::ToolError => Some("tool_error"),
        Outcome::RpcError(code) => {
            told.error_code = Some(*code);
            word = code.to_string();
            Some(word.as_str())
        }
    };
    told.outcome = Some(match outcome {
        _ if asked.cancelled.is_some() => Told::Cancelled,
        Outcome::Ok | Outcome::Task => Told::Ok,
        Outcome::ToolError => Told::ToolError,
        Outcome::RpcError(_) => Told::Error,
        Outcome::InputRequired => Told::InputRequired,
    });
    if *outcome == Outcome::Task {
        // The call is not over: only its handle came back.
        told.event = Kind::Response;
        told.reason = Some("task".to_owned());
    }
    told.tool = subject(Some(&about.method), about.subject.as_deref());
    if event.direction == Direction::ToClient {
        sink.answered(&Operation {
            server: &party.server,
            method: about.method.name(),
            tool: told.tool.as_deref(),
            error,
            transport: party.transport,
            duration: Duration::from_nanos(latency),
        });
    }
}

/// What has to be remembered between the pages of a list.
#[derive(Debug, Default)]
pub struct Tally {
    tools: u64,
}

impl Tally {
    /// The event that says how many tools a complete list holds.
    fn page(&mut self, event: &Event<'_>, told: &EventView) -> Option<EventView> {
        let EventKind::Response(response) = &event.kind else {
            return None;
        };
        let ResponseKind::Page(page) = &response.kind else {
            return None;
        };
        if page.list != ListKind::Tools {
            return None;
        }
        if page.key.page == 0 {
            self.tools = 0;
        }
        self.tools += page.items.as_ref()?.elements().count() as u64;
        page.complete.then(|| EventView {
            event: Kind::ToolsListed,
            count: Some(self.tools),
            bytes: None,
            latency_us: None,
            outcome: None,
            ..told.clone()
        })
    }
}

fn unanswered(told: &mut EventView, open: &Asked, why: &str) {
    told.event = if open.method == Method::ToolsCall {
        Kind::ToolResult
    } else {
        Kind::Response
    };
    told.method = Some(method(&open.method));
    told.tool = subject(Some(&open.method), open.subject.as_deref());
    told.request_id = Some(id(&open.id));
    // The answer would have come the other way.
    told.direction = Some(direction(open.direction.opposite()));
    told.outcome = Some(if open.cancelled.is_some() {
        Told::Cancelled
    } else {
        Told::NoAnswer
    });
    told.reason = Some(why.to_owned());
}

/// A name that a client or server chose, as it is shown.
pub fn name(text: &str) -> String {
    redact::shown(text).into_owned()
}

/// The tool or prompt that a request is about. The address of a resource is an argument, and not told.
fn subject(method: Option<&Method>, subject: Option<&str>) -> Option<String> {
    let named = matches!(method, Some(Method::ToolsCall | Method::PromptsGet));
    subject.filter(|_| named).map(name)
}

fn method(method: &Method) -> String {
    match method {
        Method::Other(text) => name(text),
        known => known.to_string(),
    }
}

/// An id as JSON text: `7`, `"a"`.
pub fn id(id: &RequestId) -> String {
    match id {
        RequestId::Text(text) => serde_json::Value::from(name(text)).to_string(),
        RequestId::Long(_) => serde_json::Value::from(id.to_string()).to_string(),
        other => other.to_string(),
    }
}

/// Bounded words for the reasons of a malformed line.
const fn malformed(why: Malformed) -> &'static str {
    match why {
        Malformed::Line(_) => "unreadable",
        Malformed::Blank => "blank",
        Malformed::NoMessage => "no_message",
        Malformed::BatchElement => "batch_element",
        Malformed::CutShort => "cut_short",
    }
}
