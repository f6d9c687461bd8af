//! One connection of one agent and one server.
//!
//! Answers are paired with requests by direction and id, for as long as the session lives: there is no reply window.
//! Every table is bounded, and what a bound costs is an event or a counter, never silence. A session knows nothing
//! of other sessions.

mod answer;
mod ask;
mod identity;
mod lists;
mod pending;
mod tasks;

use std::sync::Arc;

pub use identity::{Identity, Implementation};

use self::lists::Lists;
use self::pending::{Early, Held, Pending};
use self::tasks::Tasks;
use crate::envelope::{Class, Envelope, Message, Oddities, Unreadable};
use crate::event::{Asked, BatchPlace, Event, EventKind, Malformed, RpcError, UnknownResponse};
use crate::framer::{Frame, FrameKind};
use crate::id::RequestId;
use crate::lenient;
use crate::revision::Revision;
use crate::{Direction, Nanos};

/// Limits of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Config {
    /// Open requests per direction; the oldest makes place.
    pub pending: usize,
    /// Answers per direction that wait for a request which the capture saw later. 0 where the order is certain, as
    /// in a relay.
    pub early: usize,
    /// Bytes of such answers per direction.
    pub early_bytes: usize,
    /// How long such an answer waits.
    pub early_wait: Nanos,
    /// Tasks whose result may still come.
    pub tasks: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pending: 16_384,
            early: 256,
            early_bytes: 4 << 20,
            early_wait: 250_000_000,
            tasks: 4096,
        }
    }
}

impl Config {
    /// Limits for a place that sees messages in their true order.
    #[must_use]
    pub fn in_order() -> Self {
        Self {
            early: 0,
            ..Self::default()
        }
    }
}

/// Counts of a session since its start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Requests, both directions.
    pub requests: u64,
    /// Answers that were paired.
    pub responses: u64,
    /// Notifications, progress and cancellations among them.
    pub notifications: u64,
    /// Batches.
    pub batches: u64,
    /// Answers without a request.
    pub unknown_responses: u64,
    /// Answers that the capture saw before their request.
    pub early_responses: u64,
    /// Requests whose id was in use.
    pub reused_ids: u64,
    /// Open requests that made place for newer ones.
    pub evicted: u64,
    /// Lines, batch elements and blank lines that are no message.
    pub malformed: u64,
    /// Lines over the cap.
    pub oversized: u64,
    /// Damaged lines.
    pub gaps: u64,
    /// Messages with at least one oddity.
    pub odd: u64,
}

/// One session.
#[derive(Debug, Default)]
pub struct Session {
    config: Config,
    identity: Arc<Identity>,
    /// Open requests by the direction they went.
    to_server: Pending,
    to_client: Pending,
    /// Early answers by the direction their request will go.
    early_to_server: Early,
    early_to_client: Early,
    lists: Lists,
    tasks: Tasks,
    stats: Stats,
}

/// What all events of one message share.
#[derive(Clone, Copy)]
struct Place {
    direction: Direction,
    time: Nanos,
    bytes: u64,
    gap: bool,
    unterminated: bool,
    batch: Option<BatchPlace>,
}

impl Place {
    fn event(self, oddities: Oddities, kind: EventKind<'_>) -> Event<'_> {
        let Self {
            direction,
            time,
            bytes,
            gap,
            unterminated,
            batch,
        } = self;
        Event {
            direction,
            time,
            bytes,
            gap,
            batch,
            unterminated,
            oddities,
            kind,
        }
    }

    /// An event that goes with a message without being one.
    fn aside(self, kind: EventKind<'_>) -> Event<'_> {
        Self { bytes: 0, ..self }.event(Oddities::default(), kind)
    }
}

impl Session {
    /// A session with these limits.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Takes one frame of one direction, seen at `time`, and gives what it means.
    ///
    /// An answer that waited in vain for its request is reported with the next frame, by [`Session::tick`] or by
    /// [`Session::finish`].
    pub fn feed<'f>(&mut self, direction: Direction, frame: Frame<'f>, time: Nanos) -> Vec<Event<'f>> {
        let mut out = Vec::new();
        self.expire(time, &mut out);
        let place = Place {
            direction,
            time,
            bytes: frame.wire_len,
            gap: frame.after_gap,
            unterminated: matches!(frame.kind, FrameKind::Unterminated(_)),
            batch: None,
        };
        match frame.kind {
            FrameKind::Line(line) | FrameKind::Unterminated(line) => self.line(place, line, &mut out),
            FrameKind::Blank => self.malformed(place, Malformed::Blank, &mut out),
            FrameKind::Oversized { length, .. } => {
                self.stats.oversized += 1;
                out.push(place.event(Oddities::default(), EventKind::Oversized { length }));
            }
            FrameKind::Damaged { seen, lost } => {
                self.stats.gaps += 1;
                let place = Place { gap: true, ..place };
                out.push(place.event(Oddities::default(), EventKind::Gap { seen, lost }));
            }
        }
        out
    }

    /// Lets time pass on a silent stream: answers that waited long enough for their request are reported.
    pub fn tick(&mut self, now: Nanos) -> Vec<Event<'static>> {
        let mut out = Vec::new();
        self.expire(now, &mut out);
        out
    }

    /// Ends the session at `now`: answers that still wait for a request are reported, and requests without an answer.
    pub fn finish(&mut self, now: Nanos) -> Vec<Event<'static>> {
        let mut out = Vec::new();
        for direction in [Direction::ToServer, Direction::ToClient] {
            while let Some(held) = self.early(direction).expired(Nanos::MAX, 0, 0) {
                self.give_up(direction, &held, &mut out);
            }
        }
        for direction in [Direction::ToServer, Direction::ToClient] {
            for asked in self.pending(direction).take_all() {
                let gap = asked.gap;
                let place = Place {
                    direction,
                    time: now,
                    bytes: 0,
                    gap,
                    unterminated: false,
                    batch: None,
                };
                out.push(place.aside(EventKind::Unanswered(Box::new(asked))));
            }
        }
        out
    }

    /// Who the two sides are, as far as they said.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Counts since the start.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Open requests that went this way.
    pub fn open_requests(&self, direction: Direction) -> usize {
        match direction {
            Direction::ToServer => self.to_server.len(),
            Direction::ToClient => self.to_client.len(),
        }
    }

    /// A request that was kept back goes on only now: how long its answer takes counts from here.
    pub fn goes_on(&mut self, direction: Direction, id: &RequestId, now: Nanos) {
        if let Some(asked) = self.pending(direction).get_mut(id) {
            asked.time = asked.time.max(now);
        }
    }

    fn pending(&mut self, direction: Direction) -> &mut Pending {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    fn early(&mut self, direction: Direction) -> &mut Early {
        match direction {
            Direction::ToServer => &mut self.early_to_server,
            Direction::ToClient => &mut self.early_to_client,
        }
    }

    /// Changes what is known of the two sides, and reports it if that is new.
    fn learn<T>(
        &mut self,
        place: Place,
        out: &mut Vec<Event<'_>>,
        change: impl FnOnce(&mut Identity) -> T,
    ) -> T {
        let mut identity = Identity::clone(&self.identity);
        let answer = change(&mut identity);
        if identity != *self.identity {
            self.identity = Arc::new(identity);
            out.push(place.aside(EventKind::Identity(Arc::clone(&self.identity))));
        }
        answer
    }

    fn malformed(&mut self, place: Place, reason: Malformed, out: &mut Vec<Event<'_>>) {
        self.stats.malformed += 1;
        out.push(place.event(Oddities::default(), EventKind::Malformed(reason)));
    }

    fn line<'f>(&mut self, place: Place, line: &'f [u8], out: &mut Vec<Event<'f>>) {
        match Message::parse(line) {
            Ok(Message::Single(envelope)) => self.envelope(place, envelope, out),
            Ok(Message::Batch(elements)) => {
                self.stats.batches += 1;
                let allowed = self
                    .identity
                    .revision
                    .as_ref()
                    .is_some_and(Revision::allows_batches);
                let of = elements.len();
                for (index, element) in elements.into_iter().enumerate() {
                    let place = Place {
                        batch: Some(BatchPlace {
                            index,
                            of,
                            unexpected: !allowed,
                        }),
                        bytes: if index == 0 { place.bytes } else { 0 },
                        ..place
                    };
                    match element {
                        Some(envelope) => self.envelope(place, envelope, out),
                        None => self.malformed(place, Malformed::BatchElement, out),
                    }
                }
            }
            Err(reason) => {
                let cut_short = place.unterminated.then_some(Malformed::CutShort);
                self.malformed(place, cut_short.unwrap_or(Malformed::Line(reason)), out);
                if matches!(reason, Unreadable::NotUtf8 | Unreadable::NotJson) {
                    self.forgiving(Place { bytes: 0, ..place }, line, out);
                }
            }
        }
    }

    /// Messages that a reader less strict than JSON finds in the line. The events are copies, because the text is not
    /// the caller's.
    fn forgiving(&mut self, place: Place, line: &[u8], out: &mut Vec<Event<'_>>) {
        for text in lenient::readings(line) {
            let Ok(message) = Message::parse(text.as_bytes()) else {
                continue;
            };
            let elements = match message {
                Message::Single(envelope) => vec![envelope],
                Message::Batch(elements) => elements.into_iter().flatten().collect(),
            };
            let mut events = Vec::new();
            for mut envelope in elements {
                if envelope.class() != Class::Malformed {
                    envelope.oddities.not_strict = true;
                    self.envelope(place, envelope, &mut events);
                }
            }
            for event in events {
                out.push(event.into_owned());
            }
        }
    }

    fn envelope<'f>(&mut self, place: Place, envelope: Envelope<'f>, out: &mut Vec<Event<'f>>) {
        if envelope.oddities.any() {
            self.stats.odd += 1;
        }
        match envelope.class() {
            // A method together with an answer to an open request: peers differ in what they take it for, so it is
            // reported as both.
            Class::Request if self.also_answers(place.direction, &envelope) => {
                self.request(place, envelope.clone(), out);
                self.response(Place { bytes: 0, ..place }, envelope, out);
            }
            Class::Request => self.request(place, envelope, out),
            Class::Notification => self.notification(place, envelope, out),
            Class::Response => self.response(place, envelope, out),
            Class::Malformed => self.malformed(place, Malformed::NoMessage, out),
        }
    }

    fn also_answers(&mut self, direction: Direction, envelope: &Envelope<'_>) -> bool {
        let Some(Ok(id)) = &envelope.id else {
            return false;
        };
        (envelope.result.is_some() || envelope.error.is_some())
            && self.pending(direction.opposite()).contains(id)
    }

    fn response<'f>(&mut self, place: Place, envelope: Envelope<'f>, out: &mut Vec<Event<'f>>) {
        let asked_by = place.direction.opposite();
        let Some(Ok(id)) = &envelope.id else {
            self.unknown(place, envelope, out);
            return;
        };
        // Clients in use take the id 7 for "7" and the reverse.
        let open = self.pending(asked_by);
        let alike = id
            .alike()
            .filter(|alike| !open.contains(id) && open.contains(alike));
        let asked = open.answer(alike.as_ref().unwrap_or(id));
        if let Some(asked) = asked {
            self.answer(place, asked, envelope, out);
            return;
        }
        let room = self.config.early_bytes;
        let text = envelope.json.get();
        if self.config.early == 0 || *id == RequestId::Null || text.len() > room {
            self.unknown(place, envelope, out);
            return;
        }
        let Place {
            time,
            bytes,
            gap,
            batch,
            ..
        } = place;
        let held = Held {
            id: id.clone(),
            time,
            line: text.into(),
            bytes,
            gap,
            batch,
        };
        self.early(asked_by).hold(held);
        self.shrink(asked_by, 0, out);
    }

    fn unknown<'f>(&mut self, place: Place, envelope: Envelope<'f>, out: &mut Vec<Event<'f>>) {
        self.stats.unknown_responses += 1;
        let unknown = UnknownResponse {
            id: envelope.id.and_then(Result::ok),
            result: envelope.result,
            error: envelope.error.as_ref().map(RpcError::read),
        };
        out.push(place.event(envelope.oddities, EventKind::UnknownResponse(Box::new(unknown))));
    }

    /// Gives up early answers whose request did not come in time.
    fn expire(&mut self, now: Nanos, out: &mut Vec<Event<'_>>) {
        for direction in [Direction::ToServer, Direction::ToClient] {
            if self.early(direction).len() > 0 {
                self.shrink(direction, now.saturating_sub(self.config.early_wait), out);
            }
        }
    }

    fn shrink(&mut self, asked_by: Direction, since: Nanos, out: &mut Vec<Event<'_>>) {
        let (count, bytes) = (self.config.early, self.config.early_bytes);
        while let Some(held) = self.early(asked_by).expired(since, count, bytes) {
            self.give_up(asked_by, &held, out);
        }
    }

    fn give_up(&mut self, asked_by: Direction, held: &Held, out: &mut Vec<Event<'_>>) {
        self.reread(asked_by, held, held.time, None, out);
    }

    /// Reads a held answer again, with its request if that has come. The events are copies, because the text is not
    /// the caller's.
    fn reread(
        &mut self,
        asked_by: Direction,
        held: &Held,
        time: Nanos,
        asked: Option<Asked>,
        out: &mut Vec<Event<'_>>,
    ) {
        let Ok(Message::Single(envelope)) = Message::parse(held.line.as_bytes()) else {
            return;
        };
        let place = Place {
            direction: asked_by.opposite(),
            time,
            bytes: held.bytes,
            gap: held.gap,
            unterminated: false,
            batch: held.batch,
        };
        let mut events = Vec::new();
        match asked {
            Some(asked) => self.answer(place, asked, envelope, &mut events),
            None => self.unknown(place, envelope, &mut events),
        }
        for event in events {
            out.push(event.into_owned());
        }
    }
}

#[cfg(test)]
mod tests;
