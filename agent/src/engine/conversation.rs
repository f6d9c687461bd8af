//! One agent and one server: two streams, one session, and what is told of them.

use std::sync::Arc;

use kams_export::view::{EventView, Time, Transport};
use kams_mcp::{Direction, Event, Frame, FrameKind, Nanos, Session};

use super::describe::{self, Tally};
use super::judge::{self, Case, Judge};
use super::sink::Sink;
use super::stream::{Begins, Piece, Stream};

/// Whose conversation it is.
#[derive(Clone, Debug)]
pub struct Party {
    /// Number of the server instance in this daemon.
    pub server_id: u64,
    /// User.
    pub uid: u32,
    /// Login name, or the uid in digits.
    pub user: Arc<str>,
    /// Name of the agent.
    pub agent: Arc<str>,
    /// Its process.
    pub agent_pid: u32,
    /// When that process started, nanoseconds since boot: numbers of processes are used again.
    pub agent_start: u64,
    /// Identity of the server.
    pub server: Arc<str>,
    /// Process of the server (of the launcher, where there is one).
    pub server_pid: u32,
    /// When that process started, nanoseconds since boot; 0 where only a user says which process it is.
    pub server_start: u64,
    /// What carries the streams.
    pub transport: Transport,
    /// A relay stands between the two: what policy decides is carried out, where its mode is enforce.
    pub relayed: bool,
}

/// How boot time, in which the kernel counts, becomes wall-clock time.
pub type ToWall = fn(Nanos) -> Time;

/// A conversation from its first byte, or from where it was joined.
#[derive(Debug)]
pub struct Conversation {
    party: Party,
    to_wall: ToWall,
    to_server: Stream,
    to_client: Stream,
    session: Session,
    tally: Tally,
}

/// Sizes of a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest message in bytes; longer ones are reported and skipped.
    pub max_message: usize,
}

impl Conversation {
    /// A conversation seen from its start, or joined midway.
    pub fn new(
        party: Party,
        begins: Begins,
        limits: Limits,
        session: kams_mcp::Config,
        to_wall: ToWall,
    ) -> Self {
        let stream = |cap| Stream::new(cap, begins);
        Self {
            party,
            to_wall,
            to_server: stream(limits.max_message),
            to_client: stream(limits.max_message),
            session: Session::new(session),
            tally: Tally::default(),
        }
    }

    /// Who talks.
    pub fn party(&self) -> &Party {
        &self.party
    }

    /// Takes a better name for the server, or for the agent.
    pub fn rename(&mut self, server: Arc<str>, agent: Arc<str>) {
        self.party.server = server;
        self.party.agent = agent;
    }

    /// The session's state.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Takes a piece of one direction.
    pub fn push(&mut self, direction: Direction, piece: Piece, judge: &mut Judge, sink: &mut dyn Sink) {
        self.with(direction, judge, sink, |stream, on_frame| {
            stream.push(piece, on_frame);
        });
    }

    /// Bytes of one direction were lost.
    pub fn gap(
        &mut self,
        direction: Direction,
        lost: u64,
        time: Nanos,
        judge: &mut Judge,
        sink: &mut dyn Sink,
    ) {
        let mut event = self.event(kams_export::view::EventKind::Gap, time);
        event.direction = Some(describe::direction(direction));
        event.bytes = (lost > 0).then_some(lost);
        event.gap = true;
        sink.event(event);
        self.with(direction, judge, sink, |stream, on_frame| {
            stream.gap(lost, on_frame);
        });
    }

    /// Lets time limits take effect. `settled` is a time, in nanoseconds since boot, before which everything has been
    /// pushed.
    pub fn tick(&mut self, settled: Nanos, judge: &mut Judge, sink: &mut dyn Sink) {
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.with(direction, judge, sink, |stream, on_frame| {
                stream.tick(on_frame);
            });
        }
        let events = self.session.tick(settled);
        self.tell(&events, judge, sink);
    }

    /// The conversation is over.
    pub fn finish(&mut self, now: Nanos, judge: &mut Judge, sink: &mut dyn Sink) {
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.with(direction, judge, sink, |stream, on_frame| {
                stream.finish(now, on_frame);
            });
        }
        let events = self.session.finish(now);
        self.tell(&events, judge, sink);
    }

    fn tell(&mut self, events: &[Event<'_>], judge: &mut Judge, sink: &mut dyn Sink) {
        for event in events {
            told(
                &self.party,
                self.to_wall,
                &self.session,
                event,
                &mut self.tally,
                judge,
                sink,
            );
        }
    }

    /// An event about this conversation with nothing else known.
    pub fn event(&self, kind: kams_export::view::EventKind, time: Nanos) -> EventView {
        describe::base(&self.party, kind, (self.to_wall)(time))
    }

    fn with(
        &mut self,
        direction: Direction,
        judge: &mut Judge,
        sink: &mut dyn Sink,
        work: impl FnOnce(&mut Stream, &mut dyn FnMut(Frame<'_>, Nanos)),
    ) {
        let Self {
            party,
            to_wall,
            to_server,
            to_client,
            session,
            tally,
        } = self;
        let stream = match direction {
            Direction::ToServer => to_server,
            Direction::ToClient => to_client,
        };
        work(stream, &mut |frame, time| {
            count(&frame, sink);
            for event in session.feed(direction, frame, time) {
                told(party, *to_wall, session, &event, tally, judge, sink);
            }
        });
    }
}

fn told(
    party: &Party,
    to_wall: ToWall,
    session: &Session,
    event: &Event<'_>,
    tally: &mut Tally,
    judge: &mut Judge,
    sink: &mut dyn Sink,
) {
    let time = to_wall(event.time);
    describe::describe(party, time, session, event, tally, sink);
    let request_id = judge::request_id(event);
    let case = Case {
        party,
        time,
        mono: event.time,
        session,
        request_id,
        gap: event.gap,
    };
    judge.look(&case, event, sink);
}

fn count(frame: &Frame<'_>, sink: &mut dyn Sink) {
    match frame.kind {
        FrameKind::Oversized { .. } => sink.frame("oversize"),
        FrameKind::Damaged { .. } => sink.frame("gap"),
        FrameKind::Blank => sink.frame("malformed"),
        // Counted by what they turn out to be.
        FrameKind::Line(_) | FrameKind::Unterminated(_) => {}
    }
}
