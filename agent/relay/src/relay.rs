//! The relay's loop: one thread, two lanes, one link.

mod hearing;

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::denial::{self, Form};
use crate::end::End;
use crate::fail::{FailMode, Fallback, Why, decide, patience};
use crate::held::Waiting;
use crate::lane::{BACKLOG, Item, Lane, State};
use crate::link::{Connector, Link};
use crate::open::Open;
use crate::peek::Head;
use crate::wire::{self, Frame, FromEngine, Hello, Meta, Onward, Unjudged, Verdict, Way, Welcome};

/// Bytes of the beginning of an oversized message that the engine gets to see.
const BEGINNING: usize = 64 << 10;
/// Kinds of unjudged messages that are kept apart until somebody listens.
const TOLD: usize = 64;

/// What the relay stands between. The four ends must be nobody else's to read or write.
#[derive(Debug)]
pub struct Ends {
    /// What the agent writes is read here.
    pub from_agent: OwnedFd,
    /// What the agent reads is written here.
    pub to_agent: OwnedFd,
    /// The server's input.
    pub to_server: OwnedFd,
    /// The server's output.
    pub from_server: OwnedFd,
    /// The descriptions of pipes are nobody else's, so that their flags may be changed.
    pub sole: bool,
}

/// How a relay begins.
#[derive(Debug)]
pub struct Settings {
    /// Whom it serves.
    pub meta: Meta,
    /// Holds until the engine says otherwise.
    pub fail: FailMode,
    /// Longest message that is inspected, in bytes.
    pub limit: usize,
    /// Readable (or at its end) once the server's process has ended: what is not in the pipe then does not come.
    pub server_ended: Option<OwnedFd>,
}

/// Default limit of inspection: 16 MB, and the newline of a message that is just that long.
pub const LIMIT: usize = 16 << 20;

/// Why it ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// Both directions have ended.
    Closed,
    /// The engine ordered it.
    Ordered,
}

/// A relay.
#[derive(Debug)]
pub struct Relay {
    meta: Meta,
    lanes: [Lane; 2],
    link: Link,
    open: Open,
    held: Waiting,
    welcome: Welcome,
    seq: u64,
    /// The engine did not answer the last message in time: others do not wait as long until it speaks again.
    silent: bool,
    unjudged: Vec<Unjudged>,
    server_ended: Option<OwnedFd>,
    draining: bool,
    ordered: bool,
}

/// Told with the refusal of a held call whose engine is gone.
const NOBODY_ASKS: &str = "kamsd stopped while the call waited for a person; call again to ask again.";

impl Relay {
    /// Takes the ends.
    pub fn new(ends: Ends, settings: Settings, connector: Connector) -> std::io::Result<Self> {
        let end = |fd| End::new(fd, ends.sole);
        let (mut from_agent, mut to_agent) = (end(ends.from_agent)?, end(ends.to_agent)?);
        let (mut from_server, mut to_server) = (end(ends.from_server)?, end(ends.to_server)?);
        from_agent.pair_up(&mut to_agent)?;
        from_server.pair_up(&mut to_server)?;
        let idle = matches!(connector, Connector::Nobody);
        Ok(Self {
            meta: settings.meta,
            lanes: [
                Lane::new(Way::ToServer, from_agent, to_server),
                Lane::new(Way::ToAgent, from_server, to_agent),
            ],
            link: Link::new(connector, Instant::now()),
            open: Open::default(),
            held: Waiting::default(),
            welcome: Welcome {
                version: wire::VERSION,
                fail: settings.fail,
                limit: settings.limit,
                idle,
                typed_results: false,
                server: None,
            },
            seq: 0,
            silent: false,
            unjudged: Vec::new(),
            server_ended: settings.server_ended,
            draining: false,
            ordered: false,
        })
    }

    /// Relays until both directions have ended. After an order to end the ends are closed when it is dropped.
    pub fn run(&mut self) -> std::io::Result<Ended> {
        loop {
            let now = Instant::now();
            if self.link.connect(now) {
                self.greet(now);
            }
            self.ask(now);
            self.expire(now);
            self.move_on(now);
            if self.ordered || self.lanes.iter().all(Lane::is_closed) {
                break;
            }
            self.wait(now)?;
        }
        let now = Instant::now();
        self.tell_unjudged(now);
        self.link.send(&wire::BYE, &[], now);
        Ok(if self.ordered {
            Ended::Ordered
        } else {
            Ended::Closed
        })
    }

    fn lane(&mut self, way: Way) -> &mut Lane {
        &mut self.lanes[way.index()]
    }

    fn greet(&mut self, now: Instant) {
        self.silent = false;
        let hello = Hello {
            version: wire::VERSION,
            meta: self.meta.clone(),
            resumed: self.open.any(),
            before: self.open.before(),
        };
        let (head, body) = hello.packet();
        self.link.send(&head, &body, now);
        for lane in &mut self.lanes {
            lane.ask_again();
        }
    }

    /// Sends what the engine has not seen.
    fn ask(&mut self, now: Instant) {
        self.tell_unjudged(now);
        for lane in &mut self.lanes {
            let way = lane.way;
            while let Some(item) = lane.unsent() {
                if self.welcome.idle {
                    item.state = State::Ready;
                    let oversize = item.oversize;
                    if oversize {
                        lane.decide_over(None);
                    }
                    continue;
                }
                if !self.link.is_up() || self.link.blocked {
                    break;
                }
                let frame = Frame {
                    way,
                    seq: item.seq,
                    length: item.bytes.len() as u64,
                    unterminated: item.unterminated,
                    oversize: item.oversize,
                };
                let text = if item.oversize {
                    item.bytes.get(..BEGINNING).unwrap_or(&item.bytes)
                } else {
                    &item.bytes
                };
                if !self.link.send(&frame.head(), text, now) {
                    break;
                }
                item.state = State::Asked;
            }
        }
    }

    fn tell_unjudged(&mut self, now: Instant) {
        while self.link.is_up() && !self.link.blocked {
            let Some(told) = self.unjudged.first() else { break };
            let packet = told.packet();
            if !self.link.send(&packet, &[], now) {
                break;
            }
            self.unjudged.remove(0);
        }
    }

    /// Applies the fail mode to what waited long enough.
    fn expire(&mut self, now: Instant) {
        for way in [Way::ToServer, Way::ToAgent] {
            while let Some(due) = self.due(way)
                && due <= now
            {
                let Some(seq) = self.lane(way).first_waiting().map(|item| item.seq) else {
                    break;
                };
                self.silent = true;
                let why = if self.link.is_up() {
                    Why::Deadline
                } else {
                    Why::Gone
                };
                self.give_up(way, seq, why, now);
            }
        }
        let engine = self.link.is_up();
        while let Some(held) = self.held.expired(now, engine) {
            self.note(&held.item, held.way, Why::Held);
            let text = if engine {
                held.text
            } else {
                format!("{} {NOBODY_ASKS}", held.text)
            };
            let form = self.form(denial::DENIED, &text);
            if let Some(answer) = denial::answer_to(&held.item.head, form) {
                self.lane(held.way.back()).say(answer);
            }
        }
    }

    /// Until when the first message of a lane waits for its verdict.
    fn due(&self, way: Way) -> Option<Instant> {
        let item = self.lanes[way.index()].first_waiting()?;
        // While the engine says nothing each message has its own time only, and not that of those before it.
        Some(if self.silent && !self.link.is_up() {
            item.since
        } else {
            item.since + patience(item.bytes.len())
        })
    }

    fn give_up(&mut self, way: Way, seq: u64, why: Why, now: Instant) {
        let fail = self.welcome.fail;
        let Some(item) = self.lane(way).get_mut(seq) else {
            return;
        };
        let oversize = item.oversize;
        let (head, bytes) = (item.head.clone(), item.bytes.len());
        self.note_of(&head, bytes, way, why);
        match decide(fail, if oversize { Why::Oversize } else { why }) {
            Fallback::Pass => {
                if let Some(item) = self.lane(way).get_mut(seq) {
                    item.state = State::Ready;
                }
                if oversize {
                    self.lane(way).decide_over(None);
                }
            }
            Fallback::Refuse => {
                let text = match why {
                    Why::Oversize => "Kams refused this message: it is longer than what is inspected.",
                    _ => {
                        "Kams refused this message: its engine did not judge it in time, and the policy for this \
                         server is `fail: closed`. Try again later; if it stays so, an administrator should look \
                         at kamsd."
                    }
                };
                self.refuse(way, seq, denial::UNJUDGED, text.to_owned(), now);
            }
        }
    }

    /// Refuses a message by the relay's own means.
    fn refuse(&mut self, way: Way, seq: u64, code: i32, text: String, now: Instant) {
        let Some(item) = self.lane(way).get_mut(seq) else {
            return;
        };
        if item.oversize {
            item.oversize = false;
            let bytes = self.lane(way).take_bytes(seq);
            self.lane(way).replace(seq, Vec::new());
            self.lane(way).decide_over(Some((&bytes, text)));
            return;
        }
        let head = item.head.clone();
        let bytes = self.lane(way).take_bytes(seq);
        let form = self.form(code, &text);
        let onward = self.refusal(way, &head, &bytes, form);
        // The place in the line stays: what was refused is answered in order.
        self.lane(way).replace(seq, onward.unwrap_or_default());
        self.move_on(now);
    }

    /// Says what goes on in a refused message's place; what is to go back is sent.
    fn refusal(&mut self, way: Way, head: &Head, bytes: &[u8], form: Form<'_>) -> Option<Vec<u8>> {
        let back = if head.batch {
            denial::answers_to_batch(bytes, form)
        } else {
            denial::answer_to(head, form)
        };
        self.lanes[way.back().index()].say(back.unwrap_or_default());
        if head.batch {
            let answers = crate::peek::elements(bytes)
                .into_iter()
                .filter_map(|element| self.stand_in(way, &Head::of(element), form));
            return denial::array(answers.collect::<Vec<_>>().into_iter());
        }
        self.stand_in(way, head, form)
    }

    /// The answer that takes the place of a refused answer, so that nobody waits for ever.
    fn stand_in(&self, way: Way, head: &Head, form: Form<'_>) -> Option<Vec<u8>> {
        let id = head.id.as_deref().filter(|_| head.is_answer())?;
        let asked = self.open.asked(head).filter(|_| way == Way::ToAgent);
        Some(match asked {
            Some(asked) if asked.has_method("tools/call") && !asked.as_task => denial::tool_error(id, form),
            _ => denial::error(id, form),
        })
    }

    fn form<'t>(&self, code: i32, text: &'t str) -> Form<'t> {
        Form {
            code,
            text,
            typed_results: self.welcome.typed_results,
        }
    }

    fn note(&mut self, item: &Item, way: Way, why: Why) {
        self.note_of(&item.head, item.bytes.len(), way, why);
    }

    fn note_of(&mut self, head: &Head, bytes: usize, way: Way, why: Why) {
        let mode = self.welcome.fail;
        let same = |told: &&mut Unjudged| (told.why, told.mode, told.way) == (why, mode, way);
        if let Some(told) = self.unjudged.iter_mut().find(same) {
            told.count += 1;
            told.bytes += bytes as u64;
        } else if self.unjudged.len() < TOLD {
            let text = |json: &Option<Box<str>>| serde_json::from_str(json.as_deref()?).ok();
            self.unjudged.push(Unjudged {
                why,
                mode,
                way,
                count: 1,
                bytes: bytes as u64,
                method: text(&head.method),
                subject: text(&head.subject),
            });
        }
    }

    /// Moves what may go on to where it is written, and writes it; passes ends on.
    fn move_on(&mut self, now: Instant) {
        for way in [Way::ToServer, Way::ToAgent] {
            while let Some(item) = self.lane(way).next_ready(now) {
                if !item.bytes.is_empty() {
                    // Half an answer is none.
                    if item.head.whole || !item.unterminated {
                        self.open.passed(way, &item.head, &item.bytes);
                    }
                    self.lane(way).send(item.bytes);
                }
            }
        }
        self.end_of_server(now);
        for way in [Way::ToServer, Way::ToAgent] {
            let held = self.held.any(way);
            let lane = self.lane(way);
            if lane.wants_writing() && !lane.write() {
                self.broken(way);
            } else if lane.is_drained() && !held {
                lane.close();
            }
        }
    }

    /// The server says nothing more: what it owes is answered for it.
    fn end_of_server(&mut self, _now: Instant) {
        let lane = &self.lanes[Way::ToAgent.index()];
        if !lane.has_ended_but_for_writing() || lane.is_closed() {
            return;
        }
        let text = "The MCP server ended before it answered.";
        let form = self.form(denial::SERVER_GONE, text);
        let mut owed = self.open.take();
        owed.extend(
            self.held
                .take_all()
                .into_iter()
                .filter(|held| held.way == Way::ToServer)
                .map(|held| held.item.head),
        );
        let server_gone = self.lanes[Way::ToServer.index()].is_closed();
        if server_gone {
            owed.extend(
                self.lane(Way::ToServer)
                    .take_queue()
                    .into_iter()
                    .map(|item| item.head),
            );
        }
        for head in owed {
            if let (Some(id), Some(_)) = (&head.id, &head.method) {
                let line = denial::error(id, form);
                self.lanes[Way::ToAgent.index()].say(line);
            }
        }
    }

    /// The reader of a lane is gone.
    fn broken(&mut self, way: Way) {
        self.lane(way).broken();
        if way == Way::ToAgent {
            self.lane(way).take_queue();
            // Nobody is left who could be told of what waits.
            if self.lanes[Way::ToServer.index()].source.is_none() {
                self.held.take_all();
            }
        }
    }

    fn wait(&mut self, now: Instant) -> std::io::Result<()> {
        let timeout = self.next_event().map(|at| at.saturating_duration_since(now));
        let timeout = timeout.map(timespec);
        // Someone who does not read the answers is not listened to any further.
        let open = [0, 1].map(|way: usize| {
            self.lanes[way].wants_reading() && self.lanes[1 - way].out_bytes() < 4 * BACKLOG
        });
        let mut fds = Vec::with_capacity(6);
        let mut who = Vec::with_capacity(6);
        // The engine's word comes before what its deeds may have caused.
        if let Some(socket) = &self.link.socket() {
            let what = if self.link.blocked {
                PollFlags::IN | PollFlags::OUT
            } else {
                PollFlags::IN
            };
            fds.push(PollFd::from_borrowed_fd(*socket, what));
            who.push(Who::Engine);
        }
        for (at, lane) in self.lanes.iter().enumerate() {
            let way = if at == 0 { Way::ToServer } else { Way::ToAgent };
            if let (Some(source), true) = (&lane.source, open[at]) {
                fds.push(PollFd::new(source, PollFlags::IN));
                who.push(Who::Source(way));
            }
            if let Some(sink) = &lane.sink {
                let what = if lane.wants_writing() {
                    PollFlags::OUT
                } else {
                    PollFlags::empty()
                };
                fds.push(PollFd::new(sink, what));
                who.push(Who::Sink(way));
            }
        }
        if let Some(ended) = &self.server_ended {
            fds.push(PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN));
            who.push(Who::ServerEnded);
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<(Who, PollFlags)> = who
            .into_iter()
            .zip(fds.iter().map(PollFd::revents))
            .filter(|(_, flags)| !flags.is_empty())
            .collect();
        drop(fds);
        let now = Instant::now();
        for (who, flags) in ready {
            match who {
                Who::Engine => {
                    if flags.contains(PollFlags::OUT) {
                        self.link.blocked = false;
                    }
                    self.hear(now);
                }
                Who::Source(way) => self.read(way, now),
                Who::Sink(way) => {
                    let lane = self.lane(way);
                    let gone = flags.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
                    // What a socket's peer has not read before it went is lost, as it would be without us.
                    if gone && !lane.is_closed() && (!lane.wants_writing() || !lane.write()) {
                        self.broken(way);
                    }
                }
                Who::ServerEnded => {
                    self.server_ended = None;
                    self.draining = true;
                }
            }
        }
        if self.draining {
            self.drain(now);
        }
        Ok(())
    }

    fn read(&mut self, way: Way, now: Instant) {
        let (limit, mut seq) = (self.welcome.limit, self.seq);
        let lane = &mut self.lanes[way.index()];
        let mut dropped = lane.read(limit, self.draining && way == Way::ToAgent, &mut seq, now);
        while let Some((head, text)) = dropped {
            let form = self.form(denial::DENIED, &text);
            if let Some(onward) = self.refusal(way, &head, &[], form) {
                self.lane(way).say(onward);
            }
            dropped = self.lanes[way.index()].cut(limit, &mut seq, now);
        }
        self.seq = seq;
    }

    /// The server's process is gone: what it left is read, and nothing is waited for.
    fn drain(&mut self, now: Instant) {
        let way = Way::ToAgent;
        while self.lanes[way.index()].wants_reading() {
            self.read(way, now);
        }
        self.lane(Way::ToServer).broken();
    }

    fn next_event(&self) -> Option<Instant> {
        let due = [Way::ToServer, Way::ToAgent]
            .into_iter()
            .filter_map(|way| self.due(way));
        let retry = if self.link.is_up() {
            None
        } else {
            self.link.next_try()
        };
        due.chain(self.held.next_end()).chain(retry).min()
    }
}

#[derive(Clone, Copy)]
enum Who {
    Source(Way),
    Sink(Way),
    Engine,
    ServerEnded,
}

const fn way_of(seq: u64) -> Way {
    if seq & 1 == 0 { Way::ToServer } else { Way::ToAgent }
}

/// Never too early, or the loop would turn for nothing.
fn timespec(duration: Duration) -> Timespec {
    let duration = duration + Duration::from_micros(500);
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
