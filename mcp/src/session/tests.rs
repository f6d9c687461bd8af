//! Sessions as users of the crate rely on them.

use proptest::prelude::*;

use super::*;
use crate::Direction::{ToClient, ToServer};
use crate::event::{NotificationKind, Outcome, RequestKind, Response, ResponseKind};
use crate::framer::Framer;
use crate::method::Method;

const MS: Nanos = 1_000_000;

/// A session and a clock.
struct Wire {
    session: Session,
    now: Nanos,
}

impl Wire {
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        Self {
            session: Session::new(config),
            now: 0,
        }
    }

    fn line(&mut self, direction: Direction, line: &str) -> Vec<Event<'static>> {
        self.gapped(direction, line, false)
    }

    fn gapped(&mut self, direction: Direction, line: &str, after_gap: bool) -> Vec<Event<'static>> {
        self.now += MS;
        let frame = Frame {
            kind: FrameKind::Line(line.as_bytes()),
            wire_len: line.len() as u64 + 1,
            after_gap,
        };
        self.session
            .feed(direction, frame, self.now)
            .into_iter()
            .map(Event::into_owned)
            .collect()
    }

    fn ask(&mut self, line: &str) -> Vec<Event<'static>> {
        self.line(ToServer, line)
    }

    fn tell(&mut self, line: &str) -> Vec<Event<'static>> {
        self.line(ToClient, line)
    }

    fn initialize(&mut self, revision: &str, capabilities: &str) {
        self.ask(&format!(
            r#"{{"jsonrpc":"2.0","id":"init","method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{capabilities},"clientInfo":{{"name":"agent","version":"1"}}}}}}"#
        ));
        self.tell(&format!(
            r#"{{"jsonrpc":"2.0","id":"init","result":{{"protocolVersion":"{revision}","capabilities":{{}},"serverInfo":{{"name":"srv","version":"2"}},"instructions":"be kind"}}}}"#
        ));
    }
}

fn call(id: &str, tool: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"x":1.50}}}}}}"#
    )
}

fn text(id: &str, text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#)
}

fn only<'e>(events: &'e [Event<'static>]) -> &'e Event<'static> {
    match events {
        [event] => event,
        other => panic!("one event expected: {other:?}"),
    }
}

fn response<'e>(events: &'e [Event<'static>]) -> &'e Response<'static> {
    events
        .iter()
        .find_map(|event| match &event.kind {
            EventKind::Response(response) => Some(&**response),
            _ => None,
        })
        .expect("a response")
}

/// The tool that a result was paired with.
fn tool(events: &[Event<'static>]) -> Option<String> {
    events
        .iter()
        .find_map(|event| Some(event.tool_result()?.call?.subject.as_deref()?.to_owned()))
}

fn is_unknown(events: &[Event<'static>]) -> bool {
    matches!(only(events).kind, EventKind::UnknownResponse(_))
}

#[test]
fn a_call_is_paired_with_its_answer_after_ten_minutes() {
    let mut wire = Wire::new();
    let events = wire.ask(&call("7", "slow"));
    let (id, asked) = only(&events).tool_call().unwrap();
    assert_eq!(id, Some(&RequestId::Int(7)));
    assert_eq!(asked.name, "slow");
    assert_eq!(asked.arguments.as_ref().unwrap().get(), r#"{"x":1.50}"#);
    wire.now += 600_000 * MS;
    let events = wire.tell(&text("7", "late"));
    let answer = response(&events);
    assert_eq!(answer.latency, 600_001 * MS);
    assert_eq!(answer.outcome, Outcome::Ok);
    assert_eq!(tool(&events).as_deref(), Some("slow"));
    assert_eq!(wire.session.open_requests(ToServer), 0);
}

#[test]
fn what_was_kept_back_counts_from_when_it_goes_on() {
    let mut wire = Wire::new();
    wire.ask(&call("7", "slow"));
    wire.now += 60_000 * MS;
    let now = wire.now;
    wire.session.goes_on(ToServer, &RequestId::Int(7), now);
    // No other request, no other direction, and never back in time.
    wire.session.goes_on(ToServer, &RequestId::Int(8), now);
    wire.session.goes_on(ToClient, &RequestId::Int(7), now + MS);
    wire.session.goes_on(ToServer, &RequestId::Int(7), now - MS);
    wire.now += 4 * MS;
    let events = wire.tell(&text("7", "done"));
    assert_eq!(response(&events).latency, 5 * MS);
}

#[test]
fn ids_are_independent_per_direction() {
    let mut wire = Wire::new();
    wire.ask(&call("0", "a"));
    let events = wire.tell(r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#);
    assert!(matches!(&only(&events).kind, EventKind::Request(r) if r.method == Method::RootsList));
    let events = wire.ask(r#"{"jsonrpc":"2.0","id":0,"result":{"roots":[]}}"#);
    assert_eq!(response(&events).asked.method, Method::RootsList);
    assert_eq!(tool(&wire.tell(&text("0", "x"))).as_deref(), Some("a"));
}

#[test]
fn answers_come_in_any_order() {
    let mut wire = Wire::new();
    for (id, name) in [("1", "a"), ("\"1\"", "b"), ("2.5", "c")] {
        wire.ask(&call(id, name));
    }
    assert_eq!(tool(&wire.tell(&text("2.5", "x"))).as_deref(), Some("c"));
    assert_eq!(tool(&wire.tell(&text("\"1\"", "x"))).as_deref(), Some("b"));
    assert_eq!(tool(&wire.tell(&text("1", "x"))).as_deref(), Some("a"));
}

#[test]
fn all_outcomes_of_a_call_are_told_apart() {
    let mut wire = Wire::new();
    let mut outcome = |answer: &str| {
        wire.ask(&call("1", "t"));
        let events = wire.tell(&format!(r#"{{"jsonrpc":"2.0","id":1,{answer}}}"#));
        (response(&events).outcome, tool(&events).is_some())
    };
    assert_eq!(outcome(r#""result":{"content":[]}"#), (Outcome::Ok, true));
    assert_eq!(outcome(r#""result":{}"#), (Outcome::Ok, true));
    assert_eq!(
        outcome(r#""result":{"content":[],"isError":true}"#),
        (Outcome::ToolError, true)
    );
    assert_eq!(
        outcome(r#""error":{"code":-32602,"message":"no"}"#),
        (Outcome::RpcError(-32602), false)
    );
    assert_eq!(
        outcome(r#""result":{"resultType":"input_required","inputRequests":{"a":{}}}"#),
        (Outcome::InputRequired, false)
    );
    assert_eq!(
        outcome(r#""result":{"task":{"taskId":"t1","status":"working"}}"#),
        (Outcome::Task, false)
    );
    assert_eq!(
        outcome(r#""result":{"resultType":"task","taskId":"t2","status":"working"}"#),
        (Outcome::Task, false)
    );
    // A result that a client would show is a result, whatever it also claims to be.
    assert_eq!(
        outcome(r#""result":{"task":{"taskId":"t"},"content":[]}"#),
        (Outcome::Ok, true)
    );
    assert_eq!(
        outcome(r#""result":{"resultType":"input_required","content":[]}"#),
        (Outcome::InputRequired, true)
    );
}

#[test]
fn a_cancelled_request_stays_open_for_the_answer_under_way() {
    let mut wire = Wire::new();
    wire.ask(&call("3", "t"));
    let events = wire.ask(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"user"}}"#,
    );
    let EventKind::Cancelled(cancelled) = &only(&events).kind else {
        panic!("{events:?}")
    };
    assert_eq!(cancelled.subject.as_deref(), Some("t"));
    assert_eq!(cancelled.reason.as_deref(), Some("user"));
    let events = wire.tell(&text("3", "x"));
    assert_eq!(response(&events).asked.cancelled, Some(2 * MS));
    // Cancelling what was answered is no news.
    let events = wire.ask(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#);
    assert!(matches!(&only(&events).kind, EventKind::Cancelled(c) if c.method.is_none()));
}

#[test]
fn progress_names_its_request() {
    let mut wire = Wire::new();
    wire.ask(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}"#,
    );
    let told = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":4,"message":"step"}}"#;
    let events = wire.tell(told);
    let EventKind::Progress(progress) = &only(&events).kind else {
        panic!("{events:?}")
    };
    assert_eq!(progress.request, Some(RequestId::Int(1)));
    assert_eq!((progress.progress, progress.total), (Some(1.0), Some(4.0)));
    assert_eq!(progress.subject.as_deref(), Some("t"));
    wire.tell(&text("1", "x"));
    let events = wire.tell(told);
    assert!(matches!(&only(&events).kind, EventKind::Progress(p) if p.request.is_none()));
}

#[test]
fn an_answer_that_the_capture_saw_first_is_paired() {
    let mut wire = Wire::new();
    assert!(wire.tell(&text("1", "x")).is_empty());
    let events = wire.ask(&call("1", "t"));
    assert_eq!(events.len(), 2);
    assert!(events[0].tool_call().is_some());
    assert_eq!(tool(&events).as_deref(), Some("t"));
    assert!(response(&events).asked.ambiguous);
    assert_eq!(wire.session.open_requests(ToServer), 0);
    // It may have been a forgery; the answer that comes in order is not lost.
    assert_eq!(tool(&wire.tell(&text("1", "second"))).as_deref(), Some("t"));
    assert_eq!(wire.session.stats().early_responses, 1);
}

#[test]
fn an_answer_nobody_asked_for_is_reported() {
    let mut wire = Wire::new();
    assert!(wire.tell(&text("99", "x")).is_empty());
    wire.now += 1000 * MS;
    let events = wire.ask(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert!(matches!(&events[0].kind, EventKind::UnknownResponse(u) if u.id == Some(RequestId::Int(99))));
    assert_eq!(events.len(), 2);
    assert!(wire.tell(&text("100", "x")).is_empty());
    assert!(wire.session.tick(wire.now + 1).is_empty());
    assert!(is_unknown(&wire.session.tick(wire.now + 1000 * MS)));
    assert!(wire.tell(&text("101", "x")).is_empty());
    assert!(is_unknown(&wire.session.finish(u64::MAX)));
    let mut relay = Wire::with(Config::in_order());
    assert!(is_unknown(&relay.tell(&text("99", "x"))));
}

#[test]
fn held_answers_are_bounded_by_number_and_bytes() {
    let mut wire = Wire::with(Config {
        early: 3,
        early_wait: Nanos::MAX,
        ..Config::default()
    });
    let mut reported = 0;
    for id in 0..10 {
        reported += wire.tell(&text(&id.to_string(), "x")).len();
    }
    assert_eq!(reported, 7);
    let mut wire = Wire::with(Config {
        early_bytes: 300,
        early_wait: Nanos::MAX,
        ..Config::default()
    });
    assert!(is_unknown(&wire.tell(&text("1", &"x".repeat(400)))));
    assert!(wire.tell(&text("1", &"x".repeat(200))).is_empty());
    assert!(is_unknown(&wire.tell(&text("2", &"x".repeat(200)))));
}

#[test]
fn open_requests_are_bounded_and_the_oldest_goes_aloud() {
    let mut wire = Wire::with(Config {
        pending: 2,
        ..Config::in_order()
    });
    wire.ask(&call("1", "a"));
    wire.ask(&call("2", "b"));
    let events = wire.ask(&call("3", "c"));
    assert!(matches!(&events[1].kind, EventKind::Evicted(e) if e.id == RequestId::Int(1)));
    assert!(is_unknown(&wire.tell(&text("1", "x"))));
    assert_eq!(tool(&wire.tell(&text("2", "x"))).as_deref(), Some("b"));
    assert_eq!(tool(&wire.tell(&text("3", "x"))).as_deref(), Some("c"));
    assert_eq!(wire.session.stats().evicted, 1);
}

#[test]
fn an_id_in_use_twice_is_reported_and_both_answers_pair() {
    let mut wire = Wire::with(Config::in_order());
    wire.ask(&call("1", "first"));
    let events = wire.ask(&call("1", "second"));
    assert!(matches!(&only(&events).kind, EventKind::Request(r) if r.id_reused));
    let events = wire.tell(&text("1", "x"));
    assert_eq!(tool(&events).as_deref(), Some("first"));
    assert!(response(&events).asked.ambiguous);
    assert_eq!(tool(&wire.tell(&text("1", "x"))).as_deref(), Some("second"));
    assert!(is_unknown(&wire.tell(&text("1", "x"))));
    // After its answer an id is free.
    let events = wire.ask(&call("1", "third"));
    assert!(matches!(&only(&events).kind, EventKind::Request(r) if !r.id_reused));
}

#[test]
fn a_handshake_tells_who_speaks() {
    let mut wire = Wire::new();
    wire.initialize("2025-06-18", r#"{"roots":{},"elicitation":{"url":{},"form":{}}}"#);
    let identity = wire.session.identity();
    assert_eq!(identity.revision, Some(Revision::V2025_06_18));
    assert_eq!(&*identity.client.as_ref().unwrap().name, "agent");
    assert_eq!(&*identity.server.as_ref().unwrap().name, "srv");
    assert_eq!(identity.instructions.as_deref(), Some("be kind"));
    assert_eq!(
        identity.client_capabilities.as_deref(),
        Some(r#"{"elicitation":{"form":{},"url":{}},"roots":{}}"#)
    );
    wire.initialize("2099-01-01", "{}");
    assert_eq!(
        wire.session.identity().revision.as_ref().unwrap().name(),
        "2099-01-01"
    );
}

#[test]
fn a_stateless_session_tells_who_speaks() {
    let mut wire = Wire::new();
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"agent","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"sampling":{}}}"#;
    let events = wire.ask(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{{}},{meta}}}}}"#
    ));
    assert!(matches!(&events[0].kind, EventKind::Identity(i) if i.client.is_some()));
    let events = wire.tell(
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"srv","version":"2"}}}}"#,
    );
    assert_eq!(events.len(), 2);
    let identity = wire.session.identity();
    assert_eq!(identity.revision, Some(Revision::V2026_07_28));
    assert_eq!(
        identity.client_capabilities.as_deref(),
        Some(r#"{"sampling":{}}"#)
    );
    assert_eq!(&*identity.server.as_ref().unwrap().version, "2");
    // The same again is no news.
    assert_eq!(
        wire.ask(&format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"ping","params":{{{meta}}}}}"#
        ))
        .len(),
        1
    );
}

#[test]
fn a_failed_probe_of_the_new_revision_changes_nothing() {
    let mut wire = Wire::new();
    let probe = r#"{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    wire.ask(probe);
    wire.tell(r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"no"}}"#);
    wire.initialize("2025-11-25", "{}");
    wire.ask(probe);
    assert_eq!(wire.session.identity().revision, Some(Revision::V2025_11_25));
}

fn page(wire: &mut Wire, id: u32, cursor: Option<&str>, next: Option<&str>) -> (u64, u32, bool, bool) {
    let params = cursor.map_or(String::new(), |c| format!(r#","params":{{"cursor":"{c}"}}"#));
    wire.ask(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"{params}}}"#
    ));
    let next = next.map_or(String::new(), |c| format!(r#","nextCursor":"{c}""#));
    let events = wire.tell(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{{"name":"a"}}]{next}}}}}"#
    ));
    let ResponseKind::Page(page) = &response(&events).kind else {
        panic!("{events:?}")
    };
    assert_eq!(page.items.as_ref().unwrap().elements().count(), 1);
    (page.key.list, page.key.page, page.next, page.complete)
}

#[test]
fn pages_add_up_to_a_list() {
    let mut wire = Wire::new();
    wire.initialize("2025-11-25", r#"{"roots":{}}"#);
    assert_eq!(page(&mut wire, 1, None, Some("p1")), (0, 0, true, false));
    assert_eq!(page(&mut wire, 2, Some("p1"), Some("p2")), (0, 1, true, false));
    // Begun anew midway: another list, while the old one can still end.
    assert_eq!(page(&mut wire, 3, None, Some("q1")), (1, 0, true, false));
    assert_eq!(page(&mut wire, 4, Some("q1"), None), (1, 1, false, true));
    assert_eq!(page(&mut wire, 5, Some("p2"), None), (0, 2, false, true));
    // A cursor of unknown origin never makes a full list.
    assert_eq!(page(&mut wire, 6, Some("other"), None), (2, 0, false, false));
    wire.ask(r#"{"jsonrpc":"2.0","id":9,"method":"tools/list"}"#);
    let events = wire.tell(r#"{"jsonrpc":"2.0","id":9,"result":{"tools":[]}}"#);
    let ResponseKind::Page(page) = &response(&events).kind else {
        panic!("{events:?}")
    };
    assert_eq!(page.key.capabilities.as_deref(), Some(r#"{"roots":{}}"#));
    assert_eq!(page.key.revision, Some(Revision::V2025_11_25));
}

#[test]
fn a_gap_within_a_list_keeps_it_incomplete() {
    let mut wire = Wire::new();
    wire.ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let events = wire.gapped(
        ToClient,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":"n"}}"#,
        true,
    );
    assert!(events[0].gap);
    wire.ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"n"}}"#);
    let events = wire.tell(r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}"#);
    assert!(matches!(&response(&events).kind, ResponseKind::Page(page) if !page.complete));
}

#[test]
fn a_gap_before_a_request_shows_on_its_answer() {
    let mut wire = Wire::new();
    wire.gapped(ToServer, &call("1", "t"), true);
    let events = wire.tell(&text("1", "x"));
    assert!(only(&events).gap);
}

#[test]
fn the_result_of_a_task_is_paired_with_its_call() {
    let mut wire = Wire::new();
    wire.ask(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"research","task":{"ttl":1}}}"#,
    );
    wire.tell(r#"{"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"T","status":"working"}}}"#);
    wire.ask(r#"{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"T"}}"#);
    let events = wire.tell(r#"{"jsonrpc":"2.0","id":2,"result":{"taskId":"T","status":"completed"}}"#);
    let ResponseKind::Task { status, call, .. } = &response(&events).kind else {
        panic!("{events:?}")
    };
    assert_eq!(status.as_deref(), Some("completed"));
    assert_eq!(call.as_ref().unwrap().id, RequestId::Int(1));
    wire.ask(r#"{"jsonrpc":"2.0","id":3,"method":"tasks/result","params":{"taskId":"T"}}"#);
    let events = wire.tell(&text("3", "done"));
    let result = only(&events).tool_result().unwrap();
    assert_eq!(result.call.unwrap().subject.as_deref(), Some("research"));
    assert_eq!(result.latency, Some(5 * MS));
}

#[test]
fn the_2026_extension_brings_results_by_poll_and_by_notification() {
    let mut wire = Wire::new();
    wire.ask(&call("1", "t"));
    wire.tell(r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"T","status":"working"}}"#);
    let state = r#""taskId":"T","status":"completed","result":{"content":[{"type":"text","text":"x"}],"isError":true}"#;
    wire.ask(r#"{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"T"}}"#);
    let events = wire.tell(&format!(
        r#"{{"jsonrpc":"2.0","id":2,"result":{{"resultType":"complete",{state}}}}}"#
    ));
    assert_eq!(tool(&events).as_deref(), Some("t"));
    assert_eq!(response(&events).outcome, Outcome::ToolError);
    let events = wire.tell(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/tasks","params":{{{state}}}}}"#
    ));
    assert_eq!(tool(&events).as_deref(), Some("t"));
    assert_eq!(only(&events).tool_result().unwrap().outcome, Outcome::ToolError);
}

#[test]
fn a_result_of_a_task_begun_unseen_is_still_a_result() {
    let mut wire = Wire::new();
    wire.ask(r#"{"jsonrpc":"2.0","id":3,"method":"tasks/result","params":{"taskId":"?"}}"#);
    let events = wire.tell(&text("3", "done"));
    assert!(only(&events).tool_result().unwrap().call.is_none());
}

#[test]
fn a_continued_call_shows_what_it_answers() {
    let mut wire = Wire::new();
    let events = wire.ask(
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{},"inputResponses":{"q":{"action":"accept","content":{"k":"v"}}},"requestState":"s"}}"#,
    );
    let (_, call) = only(&events).tool_call().unwrap();
    assert!(call.input_responses.as_ref().unwrap().get().contains("accept"));
}

#[test]
fn a_call_without_an_id_is_not_overlooked() {
    let mut wire = Wire::new();
    let events =
        wire.ask(r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t","arguments":{"a":1}}}"#);
    let (id, call) = only(&events).tool_call().unwrap();
    assert_eq!((id, &*call.name), (None, "t"));
    assert!(matches!(&only(&events).kind,
        EventKind::Notification(n) if matches!(n.kind, NotificationKind::ToolCall(_))));
    let events = wire.ask(&call_with_id("[1]"));
    assert!(only(&events).tool_call().is_some());
    assert!(only(&events).oddities.bad_id.is_some());
    let events = wire.ask(&call_with_id("null"));
    assert!(only(&events).oddities.null_id);
}

fn call_with_id(id: &str) -> String {
    call(id, "t")
}

#[test]
fn sampling_and_elicitation_are_told_from_other_requests() {
    let mut wire = Wire::new();
    let events =
        wire.tell(r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[]}}"#);
    assert!(matches!(&only(&events).kind, EventKind::Request(r) if matches!(r.kind, RequestKind::Sampling)));
    let events = wire.ask(
        r#"{"jsonrpc":"2.0","id":1,"result":{"role":"assistant","content":{"type":"text","text":"s"}}}"#,
    );
    assert!(matches!(response(&events).kind, ResponseKind::Sampling));
    wire.tell(r#"{"jsonrpc":"2.0","id":2,"method":"elicitation/create","params":{"message":"m"}}"#);
    let events = wire.ask(r#"{"jsonrpc":"2.0","id":2,"result":{"action":"accept","content":{"n":"v"}}}"#);
    assert!(matches!(response(&events).kind, ResponseKind::Elicitation));
}

#[test]
fn reads_and_prompts_name_their_subject() {
    let mut wire = Wire::new();
    wire.ask(r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a"}}"#);
    let events = wire.tell(r#"{"jsonrpc":"2.0","id":1,"result":{"contents":[]}}"#);
    assert!(matches!(response(&events).kind, ResponseKind::Resource));
    assert_eq!(response(&events).asked.subject.as_deref(), Some("file:///a"));
    wire.ask(
        r#"{"jsonrpc":"2.0","id":2,"method":"prompts/get","params":{"name":"p","arguments":{"k":"v"}}}"#,
    );
    let events = wire.tell(r#"{"jsonrpc":"2.0","id":2,"result":{"messages":[]}}"#);
    assert!(matches!(response(&events).kind, ResponseKind::Prompt));
    assert_eq!(response(&events).asked.subject.as_deref(), Some("p"));
}

#[test]
fn batches_give_an_event_per_element() {
    let batch = format!(
        r#"[{},{{"jsonrpc":"2.0","method":"notifications/initialized"}},17]"#,
        call("1", "in-batch")
    );
    for (revision, unexpected) in [("2025-03-26", false), ("2025-06-18", true)] {
        let mut wire = Wire::new();
        wire.initialize(revision, "{}");
        let events = wire.ask(&batch);
        let places: Vec<_> = events.iter().map(|e| e.batch.unwrap()).collect();
        assert_eq!(places.iter().map(|p| p.index).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(places.iter().all(|p| p.of == 3 && p.unexpected == unexpected));
        assert!(matches!(
            events[2].kind,
            EventKind::Malformed(Malformed::BatchElement)
        ));
        assert_eq!(
            events.iter().map(|e| e.bytes).sum::<u64>(),
            batch.len() as u64 + 1
        );
        assert_eq!(
            tool(&wire.tell(&format!("[{}]", text("1", "x")))).as_deref(),
            Some("in-batch")
        );
    }
}

#[test]
fn correlation_ids_reach_the_answer() {
    let mut wire = Wire::new();
    wire.ask(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"claudecode/toolUseId":"toolu_1","traceparent":"00-a-b-01"}}}"#,
    );
    let events = wire.tell(&text("1", "x"));
    let ids = &response(&events).asked.correlation;
    assert_eq!(ids.tool_use_id.as_deref(), Some("toolu_1"));
    assert_eq!(ids.traceparent.as_deref(), Some("00-a-b-01"));
    wire.ask(
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"callId":"c","x-codex-turn-metadata":{"session_id":"s","thread_id":"h","turn_id":"u"}}}}"#,
    );
    let events = wire.tell(&text("2", "x"));
    let ids = &response(&events).asked.correlation;
    assert_eq!(
        [&ids.call_id, &ids.session_id, &ids.thread_id, &ids.turn_id].map(|id| id.as_deref().unwrap()),
        ["c", "s", "h", "u"]
    );
}

#[test]
fn a_message_that_is_request_and_answer_is_taken_for_both() {
    let mut wire = Wire::new();
    wire.ask(&call("1", "t"));
    let events = wire.tell(r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{"content":[]}}"#);
    assert!(matches!(&events[0].kind, EventKind::Request(r) if r.method == Method::Ping));
    assert_eq!(tool(&events).as_deref(), Some("t"));
    assert!(events.iter().all(|event| event.oddities.mixed));
    let events = wire.tell(r#"{"jsonrpc":"2.0","id":9,"method":"ping","result":{}}"#);
    assert!(matches!(only(&events).kind, EventKind::Request(_)));
}

#[test]
fn a_line_that_only_forgiving_readers_read_is_told_and_read() {
    let mut wire = Wire::new();
    let lines: [fn(&str) -> String; 4] = [
        |id| text(id, "x").replace("\"x\"", "\"x\",\"n\":NaN"),
        |id| format!("junk\r{}", text(id, "x")),
        |id| format!("\u{feff}{}", text(id, "x")),
        |id| text(id, "x").replace("\"x\"", "\"\tx\""),
    ];
    for (id, line) in lines.iter().enumerate() {
        let id = id.to_string();
        wire.ask(&call(&id, "t"));
        let events = wire.tell(&line(&id));
        assert!(
            matches!(events[0].kind, EventKind::Malformed(Malformed::Line(_))),
            "{events:?}"
        );
        assert_eq!(tool(&events).as_deref(), Some("t"), "{events:?}");
        assert!(events[1].oddities.not_strict);
    }
    let line: Vec<u8> = text("9", "?")
        .bytes()
        .map(|b| if b == b'?' { 0xff } else { b })
        .collect();
    // The helpers want what lives on.
    let line = line.leak();
    wire.ask(&call("9", "t"));
    let frame = Frame {
        kind: FrameKind::Line(line),
        wire_len: 1,
        after_gap: false,
    };
    let events = wire.session.feed(ToClient, frame, wire.now);
    assert_eq!(tool(&events).as_deref(), Some("t"), "{events:?}");
}

#[test]
fn an_answer_is_paired_as_clients_pair_it() {
    let mut wire = Wire::new();
    for id in ["\"7\"", "\" 7 \"", "\"0x7\"", "\"7.0\"", "\"+7\""] {
        wire.ask(&call("7", "t"));
        assert_eq!(tool(&wire.tell(&text(id, "x"))).as_deref(), Some("t"), "{id}");
    }
    wire.ask(&call("\"7\"", "text"));
    wire.ask(&call("7", "number"));
    assert_eq!(tool(&wire.tell(&text("\"7\"", "x"))).as_deref(), Some("text"));
    assert_eq!(tool(&wire.tell(&text("7", "x"))).as_deref(), Some("number"));
    wire.ask(&call("8", "t"));
    let both = text("8", "x").replace("\"result\"", "\"error\":null,\"result\"");
    assert_eq!(tool(&wire.tell(&both)).as_deref(), Some("t"));
    wire.ask(&call("8", "t"));
    let both = text("8", "x").replace(
        "\"result\"",
        "\"error\":{\"code\":1,\"message\":\"m\"},\"result\"",
    );
    assert_eq!(tool(&wire.tell(&both)).as_deref(), Some("t"));
}

#[test]
fn lines_that_are_no_message_are_reported_and_harmless() {
    let mut wire = Wire::new();
    wire.ask(&call("1", "t"));
    assert!(matches!(
        only(&wire.tell("not json")).kind,
        EventKind::Malformed(Malformed::Line(_))
    ));
    assert!(matches!(
        only(&wire.tell(r#"{"id":1}"#)).kind,
        EventKind::Malformed(Malformed::NoMessage)
    ));
    let frame = |kind| Frame {
        kind,
        wire_len: 1,
        after_gap: false,
    };
    let mut kind = |kind| {
        let events = wire.session.feed(ToClient, frame(kind), wire.now);
        match &events[..] {
            [event] => format!("{:?}", event.kind),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(kind(FrameKind::Blank), "Malformed(Blank)");
    assert_eq!(
        kind(FrameKind::Unterminated(b"{\"jsonrpc\"")),
        "Malformed(CutShort)"
    );
    assert_eq!(
        kind(FrameKind::Oversized { length: 9, head: b"" }),
        "Oversized { length: 9 }"
    );
    assert_eq!(
        kind(FrameKind::Damaged { seen: 1, lost: 2 }),
        "Gap { seen: 1, lost: 2 }"
    );
    assert_eq!(tool(&wire.tell(&text("1", "x"))).as_deref(), Some("t"));
    assert_eq!(wire.session.stats().malformed, 4);
}

#[test]
fn a_last_message_without_a_newline_counts() {
    let mut wire = Wire::new();
    wire.ask(&call("1", "t"));
    let line = text("1", "x");
    let frame = Frame {
        kind: FrameKind::Unterminated(line.as_bytes()),
        wire_len: line.len() as u64,
        after_gap: false,
    };
    let events = wire.session.feed(ToClient, frame, wire.now);
    assert!(events[0].unterminated && events[0].tool_result().is_some());
}

/// A script of calls and answers of one session, in an order a real one could have.
fn script() -> impl Strategy<Value = Vec<(bool, u8)>> {
    prop::collection::vec((any::<bool>(), 0u8..6), 1..40)
}

/// Runs one step: a call of a new number, or the answer to one that is open.
fn step(
    wire: &mut Wire,
    open: &mut Vec<u32>,
    next: &mut u32,
    name: &str,
    (asks, pick): (bool, u8),
) -> Vec<(String, String)> {
    if asks || open.is_empty() {
        wire.ask(&call(&next.to_string(), &format!("{name}-{next}")));
        open.push(*next);
        *next += 1;
        return Vec::new();
    }
    let id = open.remove(usize::from(pick) % open.len());
    let events = wire.tell(&text(&id.to_string(), &format!("{name}-{id}")));
    events
        .iter()
        .filter_map(|event| {
            let result = event.tool_result()?;
            let mut said = String::new();
            crate::visible::texts(&result.result, &mut |t| said.push_str(&t.text));
            Some((result.call?.subject.as_deref()?.to_owned(), said))
        })
        .collect()
}

proptest! {
    #[test]
    fn two_sessions_with_the_same_ids_never_cross(
        first in script(),
        second in script(),
        order in prop::collection::vec(any::<bool>(), 0..80),
    ) {
        let mut sides = [(Wire::new(), Vec::new(), 0, "a", first.into_iter()), (Wire::new(), Vec::new(), 0, "b", second.into_iter())];
        for which in order {
            let (wire, open, next, name, steps) = &mut sides[usize::from(which)];
            if let Some(one) = steps.next() {
                let asked = one.0 || open.is_empty();
                let results = step(wire, open, next, name, one);
                prop_assert_eq!(results.len(), usize::from(!asked));
                for (tool, said) in results {
                    prop_assert!(tool.starts_with(*name));
                    prop_assert_eq!(tool, said);
                }
            }
        }
        for (wire, open, ..) in &sides {
            prop_assert_eq!(wire.session.open_requests(ToServer), open.len());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(pieces in prop::collection::vec((any::<bool>(), noise()), 0..30)) {
        let mut session = Session::new(Config { pending: 3, early: 2, early_bytes: 200, early_wait: 5, tasks: 2 });
        let mut framers = [Framer::new(400), Framer::new(400)];
        let mut confirm = crate::Confirm::new(1000, 1000);
        for (time, (to_client, bytes)) in pieces.iter().enumerate() {
            let direction = if *to_client { ToClient } else { ToServer };
            confirm.feed(direction, bytes);
            framers[usize::from(*to_client)].push(bytes, |frame| {
                for event in session.feed(direction, frame, time as u64) {
                    if let Some(result) = event.tool_result() {
                        crate::visible::texts(&result.result, &mut |_| {});
                    }
                    drop(event.into_owned());
                }
            });
        }
        session.finish(u64::MAX);
    }
}

/// Random bytes, and fragments that make half-valid messages likely.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        prop::sample::select(vec![
            "\n", "{", "}", "[", "]", ",", ":", "\"", "\\", "\"jsonrpc\":\"2.0\",", "\"id\":1,", "\"id\":\"x\",",
            "\"method\":\"tools/call\",", "\"method\":\"tools/list\"", "\"params\":{\"name\":\"t\",\"taskId\":\"T\"}",
            "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"\\ud800\"}]}", "\"error\":{\"code\":1}",
            "\"result\":{\"task\":{\"taskId\":\"T\"}}", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}\n",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"nextCursor\":\"c\",\"tools\":[1]}}\n",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"x\"}}\n",
        ])
        .prop_map(|s| s.as_bytes().to_vec()),
    ];
    prop::collection::vec(fragment, 0..12).prop_map(|parts| parts.concat())
}
