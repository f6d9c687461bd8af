//! One relayed connection: its session, and what becomes of each of its messages.

mod effects;
mod saying;
mod waiting;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use kams_detect::redact::shown;
use kams_detect::relay as findings;
use kams_export::view::{EventKind as Kind, EventView, Time};
use kams_mcp::event::{EventKind, RequestKind, Response, ResponseKind};
use kams_mcp::{Config, Direction, Event, Frame, FrameKind, ListKind, Method, Nanos, RequestId, Session};
use kams_policy::{Action, Decision, Fail, Mode, Outcome, Remedy, Subject};
use kams_relay::FailMode;
use kams_relay::denial::{self, DENIED, Form};
use kams_relay::fail::{Fallback, Why, decide};
use kams_relay::peek::{Head, elements};
use kams_relay::relay::LIMIT;
use kams_relay::wire::{self, Before, FromEngine, Onward, Unjudged, Verdict, Way, Welcome};

use super::collect::{Collector, Decisions};
use super::fate::{self, Fate, Role};
use super::held::HeldCall;
use super::rewrite;
use crate::engine::conversation::{Party, ToWall};
use crate::engine::describe::{self, Tally};
use crate::engine::gate::Settled;
use crate::engine::judge::{self, Case, Judge};
use crate::engine::sink::Sink;

/// What policy wants done beyond the message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// End this process of the server.
    KillServer {
        /// The engine's number of the server.
        server_id: u64,
        /// Its process.
        pid: u32,
        /// When that started, nanoseconds since boot; 0 where it is another's to kill.
        start: u64,
    },
    /// Cut its process tree off the network.
    CutNetwork {
        /// The engine's number of the server.
        server_id: u64,
        /// Its process.
        pid: u32,
    },
}

/// A connection.
#[derive(Debug)]
pub struct Relayed {
    party: Party,
    to_wall: ToWall,
    session: Session,
    tally: Tally,
    held: Vec<HeldCall>,
    /// Tool blocks of which the client was told that its list is old.
    told: HashSet<u64>,
    effects: Vec<Effect>,
    /// Who can do something about a refusal.
    remedy: Remedy,
}

/// What is known of one message of a line.
#[derive(Debug, Default)]
struct Part {
    fate: Fate,
    list: Option<ListKind>,
    /// The id, where it is a request.
    id: Option<RequestId>,
    token: Option<String>,
    /// It answers a call, and with a result of a tool.
    answers_call: bool,
    /// It gives up a call that is held: the relay consumes both.
    consumed: bool,
}

/// What the verdict path needs of its surroundings.
struct Bench<'a> {
    judge: &'a mut Judge,
    sink: &'a mut dyn Sink,
    now: Nanos,
}

impl Relayed {
    /// A connection from its start, or taken up again with what passed `before`.
    pub fn new(party: Party, before: &[Before], to_wall: ToWall, now: Nanos) -> Self {
        let mut session = Session::new(Config::in_order());
        for one in before {
            let frame = line_frame(one.line.as_bytes(), one.line.len() as u64, false);
            drop(session.feed(direction(one.way), frame, now));
        }
        Self {
            party,
            to_wall,
            session,
            tally: Tally::default(),
            held: Vec::new(),
            told: HashSet::new(),
            effects: Vec::new(),
            remedy: Remedy::Administrator,
        }
    }

    /// Refusals tell what this one can do about them.
    #[must_use]
    pub const fn for_remedy(mut self, remedy: Remedy) -> Self {
        self.remedy = remedy;
        self
    }

    fn fate(&self, decisions: &Decisions, role: Role) -> Fate {
        fate::of(decisions, role, self.remedy)
    }

    /// Whose it is.
    pub const fn party(&self) -> &Party {
        &self.party
    }

    /// Better names: a launcher chain has reached them.
    pub fn rename(&mut self, server: &Arc<str>, agent: &Arc<str>) {
        self.party.server = Arc::clone(server);
        self.party.agent = Arc::clone(agent);
    }

    /// What the two sides said of themselves.
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// What policy wants done beyond messages, since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether calls wait for a person.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The relay's settings as policy has them now.
    pub fn welcome(&self, judge: &Judge) -> Welcome {
        let settings = judge.gate.policy().settings(&self.subject(None));
        Welcome {
            version: wire::VERSION,
            // What is only watched always passes.
            fail: match (settings.mode, settings.fail) {
                (Mode::Enforce, Fail::Closed) => FailMode::Closed,
                _ => FailMode::Open,
            },
            limit: LIMIT,
            idle: false,
            typed_results: self.is_typed(),
            server: Some(self.party.server.to_string()),
        }
    }

    /// Judges one message.
    pub fn take(
        &mut self,
        frame: &wire::Frame,
        text: &[u8],
        judge: &mut Judge,
        sink: &mut dyn Sink,
        now: Nanos,
    ) -> Vec<FromEngine> {
        let mut bench = Bench { judge, sink, now };
        let way = direction(frame.way);
        let framed = if frame.oversize {
            Frame {
                kind: FrameKind::Oversized {
                    length: frame.length,
                    head: text,
                },
                wire_len: frame.length,
                after_gap: false,
            }
        } else {
            line_frame(text, frame.length, frame.unterminated)
        };
        match framed.kind {
            FrameKind::Oversized { .. } => bench.sink.frame("oversize"),
            FrameKind::Blank => bench.sink.frame("malformed"),
            _ => {}
        }
        let events = self.session.feed(way, framed, now);
        let mut parts: Vec<Part> = Vec::new();
        let mut blocked = Vec::new();
        for event in &events {
            let index = event.batch.map_or(0, |place| place.index);
            if parts.len() <= index {
                parts.resize_with(index + 1, Part::default);
            }
            let decisions = self.judge(event, &mut bench);
            self.note_effects(&decisions, &mut blocked);
            self.decide(event, &decisions, &mut parts[index], &mut bench);
        }
        let mut said = self.answer(frame, text, parts, &mut bench);
        said.extend(self.tools_changed(&blocked));
        said
    }

    fn judge(&mut self, event: &Event<'_>, bench: &mut Bench<'_>) -> Decisions {
        let time = (self.to_wall)(event.time);
        describe::describe(
            &self.party,
            time,
            &self.session,
            event,
            &mut self.tally,
            bench.sink,
        );
        let mut collector = Collector::new(bench.sink);
        bench.judge.look(&self.case(event, time), event, &mut collector);
        collector.decisions
    }

    fn case(&self, event: &Event<'_>, time: Time) -> Case<'_> {
        Case {
            party: &self.party,
            time,
            mono: event.time,
            session: &self.session,
            request_id: judge::request_id(event),
            gap: event.gap,
        }
    }

    fn decide(&mut self, event: &Event<'_>, decisions: &Decisions, part: &mut Part, bench: &mut Bench<'_>) {
        let fate = match &event.kind {
            EventKind::Request(request) => {
                part.id = Some(request.id.clone());
                let token = request
                    .meta
                    .as_ref()
                    .and_then(|meta| meta.progress_token.as_ref());
                part.token = token.and_then(as_written);
                let role = match (&request.kind, event.direction) {
                    (RequestKind::ToolCall(_), Direction::ToServer) => Role::Call,
                    (_, Direction::ToServer) => Role::Outgoing,
                    (_, Direction::ToClient) => Role::Incoming,
                };
                let opens = matches!(request.method.name(), "initialize" | "server/discover");
                let start = decisions.start.as_ref().filter(|start| opens && !start.passes());
                if let Some(start) = start {
                    Fate::Refuse(fate::text(start, self.remedy))
                } else {
                    match self.fate(decisions, role) {
                        Fate::Pass if role != Role::Call => self.standing(&request.method, bench),
                        fate => fate,
                    }
                }
            }
            EventKind::Response(response) if event.direction == Direction::ToClient => {
                self.answered(event, response, decisions, part, bench)
            }
            EventKind::Response(_) => self.fate(decisions, Role::Outgoing),
            EventKind::Cancelled(cancelled) if event.direction == Direction::ToServer => {
                let held = cancelled
                    .id
                    .as_ref()
                    .and_then(|id| self.held.iter().position(|held| held.id == *id));
                if let Some(at) = held {
                    let held = self.held.remove(at);
                    let now = policy_now(self.to_wall, bench.now);
                    bench
                        .judge
                        .gate
                        .give_up(held.approval, &self.party, Some(&held.id), now, bench.sink);
                    part.consumed = true;
                }
                Fate::Pass
            }
            EventKind::Oversized { length } => self.oversized(event, *length, bench),
            _ => self.fate(decisions, Role::Incoming),
        };
        if rank(&fate) >= rank(&part.fate) {
            part.fate = fate;
        }
    }

    fn answered(
        &self,
        event: &Event<'_>,
        response: &Response<'_>,
        decisions: &Decisions,
        part: &mut Part,
        bench: &Bench<'_>,
    ) -> Fate {
        part.answers_call = event.tool_result().is_some() || response.asked.method == Method::ToolsCall;
        match &response.kind {
            ResponseKind::Page(page) => {
                part.list = Some(page.list);
                let fate = self.fate(decisions, Role::Page);
                if page.list != ListKind::Tools {
                    return fate;
                }
                let names = page.items.iter().flat_map(kams_mcp::Json::elements);
                let names = names.filter_map(|item| Some(item.member("name")?.as_str()?.into_owned()));
                let blocked: Vec<String> = names
                    .filter(|name| self.restriction(Some(name), bench).is_some())
                    .collect();
                match fate {
                    Fate::Without(mut names, text) => {
                        names.extend(blocked);
                        Fate::Without(names, text)
                    }
                    Fate::Pass if !blocked.is_empty() => {
                        Fate::Without(blocked.into_iter().collect(), String::new())
                    }
                    fate => fate,
                }
            }
            ResponseKind::Handshake { .. } => self.fate(decisions, Role::Greeting),
            _ => self.fate(decisions, Role::Incoming),
        }
    }

    /// Requests that are no calls, while the server or the agent is under a restriction.
    fn standing(&self, method: &Method, bench: &Bench<'_>) -> Fate {
        // What keeps a session alive says nothing to the model.
        if matches!(
            method.name(),
            "initialize" | "ping" | "server/discover" | "logging/setLevel"
        ) {
            return Fate::Pass;
        }
        self.restriction(None, bench).map_or(Fate::Pass, |decision| {
            Fate::Refuse(decision.denial_for(self.remedy))
        })
    }

    /// The refusal of a restriction in force, where policy is enforced.
    fn restriction(&self, tool: Option<&str>, bench: &Bench<'_>) -> Option<Decision> {
        let tool = tool.map(shown);
        let subject = self.subject(tool.as_deref());
        let gate = bench.judge.gate.gate();
        let found = gate
            .restrictions
            .check(&subject, policy_now(self.to_wall, bench.now))?;
        let enforced = self.party.relayed && gate.policy().settings(&subject).mode == Mode::Enforce;
        enforced.then(|| Decision {
            outcome: Outcome::Block,
            action: Some(found.action),
            rule: Some(found.rule.clone()),
            reason: gate.policy().reason(&found.rule).map(str::to_owned),
            restriction: Some(found.clone()),
            ..Decision::default()
        })
    }

    fn oversized(&self, event: &Event<'_>, length: u64, bench: &mut Bench<'_>) -> Fate {
        let finding = findings::oversize(length, event.direction == Direction::ToServer);
        let case = self.case(event, (self.to_wall)(event.time));
        let decision = bench.judge.report(&case, &finding, bench.sink);
        if !decision.passes() {
            return Fate::Refuse(decision.denial_for(self.remedy));
        }
        let fail = self.welcome(bench.judge).fail;
        match decide(fail, Why::Oversize) {
            Fallback::Pass => Fate::Pass,
            Fallback::Refuse => Fate::Refuse(format!(
                "Kams refused this message: it is longer than the {LIMIT} bytes that are inspected, and the policy for \
                 this server is `fail: closed`. Ask for less at once."
            )),
        }
    }

    /// Turns fates into what the relay is told.
    fn answer(
        &mut self,
        frame: &wire::Frame,
        text: &[u8],
        parts: Vec<Part>,
        bench: &mut Bench<'_>,
    ) -> Vec<FromEngine> {
        let seq = frame.seq;
        if frame.oversize {
            let fate = parts.into_iter().next().map(|part| part.fate);
            return vec![match fate {
                Some(Fate::Refuse(why)) => FromEngine::Refuse(seq, why),
                _ => FromEngine::Verdict(seq, Verdict::default()),
            }];
        }
        if parts.iter().all(|part| part.fate == Fate::Pass && !part.consumed) {
            return vec![FromEngine::Verdict(seq, Verdict::default())];
        }
        let line = trimmed(text);
        let ending = text.get(line.len()..).unwrap_or_default();
        if parts.len() == 1
            && let Some(part) = parts.first()
            && !Head::of(line).batch
        {
            if let Fate::Hold(held) = &part.fate {
                return vec![self.hold(seq, line, held, part, bench)];
            }
            let (onward, back) = self.single(frame.way, line, part, bench);
            let onward = match onward {
                Onward::Instead(mut bytes) if !bytes.ends_with(b"\n") => {
                    bytes.extend_from_slice(ending);
                    Onward::Instead(bytes)
                }
                onward => onward,
            };
            let back = back.unwrap_or_default();
            return vec![FromEngine::Verdict(seq, Verdict { onward, back })];
        }
        vec![FromEngine::Verdict(
            seq,
            self.batch(frame.way, line, parts, bench),
        )]
    }

    /// The relay tells what it had to decide on by itself.
    pub fn unjudged(&mut self, told: &Unjudged, judge: &mut Judge, sink: &mut dyn Sink, now: Nanos) {
        let passed = decide(told.mode, told.why) == Fallback::Pass;
        let to_server = told.way == Way::ToServer;
        let tool = told.subject.as_deref().map(|name| shown(name).into_owned());
        let finding = findings::unjudged(told.why.name(), passed, to_server, told.count, tool);
        let case = Case {
            party: &self.party,
            time: (self.to_wall)(now),
            mono: now,
            session: &self.session,
            request_id: None,
            gap: true,
        };
        judge.report(&case, &finding, sink);
        sink.failed(if passed { "open" } else { "closed" }, told.count);
    }

    /// The connection is over.
    pub fn finish(&mut self, why: &str, judge: &mut Judge, sink: &mut dyn Sink, now: Nanos) {
        let at = policy_now(self.to_wall, now);
        for held in std::mem::take(&mut self.held) {
            judge
                .gate
                .give_up(held.approval, &self.party, Some(&held.id), at, sink);
        }
        let events = self.session.finish(now);
        for event in events {
            let mut bench = Bench {
                judge: &mut *judge,
                sink: &mut *sink,
                now,
            };
            self.judge(&event, &mut bench);
        }
        let mut gone = self.event(Kind::ServerGone, now);
        gone.reason = Some(why.to_owned());
        sink.event(gone);
        judge.leave(&self.party);
    }

    /// An event about this connection with nothing else known.
    pub fn event(&self, kind: Kind, now: Nanos) -> EventView {
        describe::base(&self.party, kind, (self.to_wall)(now))
    }

    /// Whether results have a type (2026-07-28).
    pub(super) fn is_typed(&self) -> bool {
        let revision = self.session.identity().revision.as_ref();
        revision.is_some_and(kams_mcp::Revision::is_stateless)
    }

    fn form<'t>(&self, text: &'t str) -> Form<'t> {
        Form {
            code: DENIED,
            text,
            typed_results: self.is_typed(),
        }
    }

    fn subject<'a>(&'a self, tool: Option<&'a str>) -> Subject<'a> {
        Subject {
            user: &self.party.user,
            agent: &self.party.agent,
            server: &self.party.server,
            tool,
            relayed: self.party.relayed,
        }
    }
}

const fn rank(fate: &Fate) -> u8 {
    match fate {
        Fate::Pass => 0,
        Fate::Redact(_) => 1,
        Fate::Without(..) | Fate::WithoutInstructions(_) => 2,
        Fate::Hold(_) => 3,
        Fate::Refuse(_) => 4,
    }
}

fn all_there(line: &str, list: ListKind, names: &BTreeSet<String>) -> bool {
    let there = rewrite::names(line, list);
    names.iter().all(|name| there.contains(name))
}

/// A token as it was written; none of one so long that only its digest was kept.
fn as_written(id: &RequestId) -> Option<String> {
    Some(match id {
        RequestId::Int(n) => n.to_string(),
        RequestId::Number(text) => text.to_string(),
        RequestId::Text(text) => serde_json::Value::from(text.as_ref()).to_string(),
        RequestId::Null => "null".to_owned(),
        RequestId::Long(_) => return None,
    })
}

const fn direction(way: Way) -> Direction {
    match way {
        Way::ToServer => Direction::ToServer,
        Way::ToAgent => Direction::ToClient,
    }
}

fn policy_now(to_wall: ToWall, now: Nanos) -> kams_policy::Now {
    kams_policy::Now {
        wall_ms: u64::try_from(to_wall(now).unix_nanos() / 1_000_000).unwrap_or(0),
        mono_ms: now / 1_000_000,
    }
}

/// A line without what ends it.
fn trimmed(text: &[u8]) -> &[u8] {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    if line.len() < text.len() {
        line.strip_suffix(b"\r").unwrap_or(line)
    } else {
        line
    }
}

fn line_frame(text: &[u8], wire_len: u64, unterminated: bool) -> Frame<'_> {
    let line = trimmed(text);
    let kind = if line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
        FrameKind::Blank
    } else if unterminated {
        FrameKind::Unterminated(line)
    } else {
        FrameKind::Line(line)
    };
    Frame {
        kind,
        wire_len,
        after_gap: false,
    }
}
