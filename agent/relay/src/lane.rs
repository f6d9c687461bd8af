//! One direction: what was read, what waits for a verdict, what is to be written.
//!
//! Bounded: an end is not read while more than [`BACKLOG`] waits to go on, so that the sender waits as it would
//! without a relay. Only a single message may be longer, up to the limit of inspection.

use std::collections::VecDeque;
use std::time::Instant;

use memchr::memchr;

use crate::end::{End, Moved};
use crate::peek::{Head, Peek};
use crate::wire::Way;

/// Bytes that may wait in one direction before its end is no longer read.
pub(crate) const BACKLOG: usize = 1 << 20;
/// Bytes of one read.
const READ: usize = 64 << 10;
/// Bytes of one read while a long message comes in.
const READ_LONG: usize = 256 << 10;
/// Lines up to this length are copied out of the input buffer instead of taking it.
const SMALL: usize = 16 << 10;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// Not sent to the engine yet.
    New,
    /// Sent.
    Asked,
    /// May go on.
    Ready,
}

/// A message, or a piece of one that is not inspected.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) seq: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) head: Head,
    pub(crate) state: State,
    pub(crate) unterminated: bool,
    pub(crate) oversize: bool,
    /// When its time began to run.
    pub(crate) since: Instant,
}

/// A message longer than what is inspected.
#[derive(Debug, Default)]
enum Over {
    #[default]
    No,
    /// Its beginning stands in the queue; nothing is read until it is decided.
    Asked,
    /// The rest goes on as it comes.
    Passing,
    /// The rest is dropped; then the sender is told this.
    Dropping(Box<Peek>, String),
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) way: Way,
    pub(crate) source: Option<End>,
    pub(crate) sink: Option<End>,
    input: Vec<u8>,
    scanned: usize,
    queue: VecDeque<Item>,
    queued: usize,
    /// Items at the front of the queue that need not be sent any more.
    pub(crate) sent: usize,
    out: VecDeque<Vec<u8>>,
    written: usize,
    out_bytes: usize,
    over: Over,
    mid_line: bool,
    /// What was to be said in the middle of a long message.
    deferred: Vec<u8>,
}

/// A message that was dropped because of its length, and what its sender is told.
pub(crate) type Dropped = (Head, String);

impl Lane {
    pub(crate) fn new(way: Way, source: End, sink: End) -> Self {
        Self {
            way,
            source: Some(source),
            sink: Some(sink),
            input: Vec::new(),
            scanned: 0,
            queue: VecDeque::new(),
            queued: 0,
            sent: 0,
            out: VecDeque::new(),
            written: 0,
            out_bytes: 0,
            over: Over::No,
            mid_line: false,
            deferred: Vec::new(),
        }
    }

    pub(crate) fn wants_reading(&self) -> bool {
        self.source.is_some() && !matches!(self.over, Over::Asked) && self.queued + self.out_bytes < BACKLOG
    }

    pub(crate) fn wants_writing(&self) -> bool {
        self.sink.is_some() && !self.out.is_empty()
    }

    pub(crate) const fn out_bytes(&self) -> usize {
        self.out_bytes
    }

    /// Reads once. `drain`: what is not there now will not come.
    pub(crate) fn read(&mut self, limit: usize, drain: bool, seq: &mut u64, now: Instant) -> Option<Dropped> {
        let source = self.source.as_ref()?;
        let most = if self.input.len() >= READ { READ_LONG } else { READ };
        match source.read(&mut self.input, most) {
            Ok(Moved::Bytes(_)) => {}
            Ok(Moved::Later) if !drain => return None,
            // An end that cannot be read has ended.
            Ok(Moved::Later | Moved::Over) | Err(_) => {
                return self.end_source(seq, now);
            }
        }
        self.cut(limit, seq, now)
    }

    /// Cuts what was read into messages.
    pub(crate) fn cut(&mut self, limit: usize, seq: &mut u64, now: Instant) -> Option<Dropped> {
        let mut from = 0;
        let mut dropped = None;
        while dropped.is_none() && !matches!(self.over, Over::Asked) {
            let begin = from.max(self.scanned);
            let newline = memchr(b'\n', self.input.get(begin..).unwrap_or_default()).map(|at| begin + at + 1);
            let piece = self.input.get(from..newline.unwrap_or(self.input.len()));
            if let Over::Dropping(peek, _) = &mut self.over {
                peek.feed(piece.unwrap_or_default());
                from = newline.unwrap_or(self.input.len());
                if newline.is_none() {
                    break;
                }
                if let Over::Dropping(peek, text) = std::mem::take(&mut self.over) {
                    dropped = Some((peek.finish(), text));
                }
                continue;
            }
            let passing = matches!(self.over, Over::Passing);
            match newline {
                Some(end) => {
                    let bytes = self.take(from, end);
                    from = if self.input.is_empty() { 0 } else { end };
                    if passing {
                        self.over = Over::No;
                        self.push(seq, bytes, State::Ready, now);
                        let deferred = std::mem::take(&mut self.deferred);
                        if !deferred.is_empty() {
                            self.push(seq, deferred, State::Ready, now);
                        }
                    } else {
                        self.push(seq, bytes, State::New, now);
                    }
                }
                None if passing => {
                    let bytes = self.take(from, self.input.len());
                    from = self.input.len();
                    if !bytes.is_empty() {
                        self.push(seq, bytes, State::Ready, now);
                    }
                    break;
                }
                None => {
                    let length = self.input.len() - from;
                    if length > limit {
                        let bytes = self.take(from, self.input.len());
                        from = self.input.len();
                        self.push(seq, bytes, State::New, now);
                        if let Some(item) = self.queue.back_mut() {
                            item.oversize = true;
                        }
                        self.over = Over::Asked;
                    }
                    break;
                }
            }
        }
        self.input.drain(..from);
        self.scanned = match self.over {
            Over::No if dropped.is_none() => self.input.len(),
            _ => 0,
        };
        if self.input.is_empty() && self.input.capacity() > 2 * READ {
            self.input = Vec::new();
        }
        dropped
    }

    fn take(&mut self, from: usize, end: usize) -> Vec<u8> {
        if from == 0 && end == self.input.len() && end > SMALL {
            self.scanned = 0;
            return std::mem::take(&mut self.input);
        }
        self.input.get(from..end).unwrap_or_default().to_vec()
    }

    fn push(&mut self, seq: &mut u64, bytes: Vec<u8>, state: State, now: Instant) {
        let head = if state == State::New {
            Head::of(&bytes)
        } else {
            Head::default()
        };
        self.queued += bytes.len();
        // The lowest bit is the direction.
        *seq += 2;
        self.queue.push_back(Item {
            seq: *seq + self.way.index() as u64,
            bytes,
            head,
            state,
            unterminated: false,
            oversize: false,
            since: now,
        });
    }

    fn end_source(&mut self, seq: &mut u64, now: Instant) -> Option<Dropped> {
        if let Some(source) = self.source.take() {
            source.close_reading();
        }
        self.scanned = 0;
        let rest = std::mem::take(&mut self.input);
        match std::mem::take(&mut self.over) {
            Over::Dropping(mut peek, text) => {
                peek.feed(&rest);
                return Some((peek.finish(), text));
            }
            _ if rest.is_empty() => {}
            Over::Passing => self.push(seq, rest, State::Ready, now),
            Over::No | Over::Asked => {
                self.push(seq, rest, State::New, now);
                if let Some(item) = self.queue.back_mut() {
                    item.unterminated = true;
                }
            }
        }
        None
    }

    /// Nobody reads any more: the sender shall notice.
    pub(crate) fn broken(&mut self) {
        if let Some(sink) = self.sink.take() {
            sink.close_writing();
        }
        if let Some(source) = self.source.take() {
            source.close_reading();
        }
        self.input = Vec::new();
        self.out.clear();
        self.out_bytes = 0;
        self.written = 0;
    }

    /// Messages that wait for a verdict, or for those before them.
    pub(crate) fn take_queue(&mut self) -> Vec<Item> {
        self.queued = 0;
        self.sent = 0;
        std::mem::take(&mut self.queue).into()
    }

    /// The next one that the engine has not been sent.
    pub(crate) fn unsent(&mut self) -> Option<&mut Item> {
        while self
            .queue
            .get(self.sent)
            .is_some_and(|item| item.state != State::New)
        {
            self.sent += 1;
        }
        self.queue.get_mut(self.sent)
    }

    /// There is another engine: what was asked is asked again.
    pub(crate) fn ask_again(&mut self) {
        self.sent = 0;
        for item in &mut self.queue {
            if item.state == State::Asked {
                item.state = State::New;
            }
        }
    }

    /// The first one, if it waits for a verdict.
    pub(crate) fn first_waiting(&self) -> Option<&Item> {
        self.queue.front().filter(|item| item.state != State::Ready)
    }

    pub(crate) fn get_mut(&mut self, seq: u64) -> Option<&mut Item> {
        let at = self.queue.binary_search_by_key(&seq, |item| item.seq).ok()?;
        self.queue.get_mut(at)
    }

    /// How many messages wait for a verdict, or for those before them.
    pub(crate) fn unsettled(&self) -> usize {
        self.queue.len()
    }

    /// Takes one out of the line.
    pub(crate) fn remove(&mut self, seq: u64) -> Option<Item> {
        let at = self.queue.binary_search_by_key(&seq, |item| item.seq).ok()?;
        let item = self.queue.remove(at)?;
        self.queued -= item.bytes.len();
        if at < self.sent {
            self.sent -= 1;
        }
        Some(item)
    }

    /// The next one that may go on.
    pub(crate) fn next_ready(&mut self, now: Instant) -> Option<Item> {
        if self.queue.front()?.state != State::Ready {
            return None;
        }
        let item = self.queue.pop_front()?;
        self.queued -= item.bytes.len();
        self.sent = self.sent.saturating_sub(1);
        if let Some(next) = self.queue.front_mut() {
            next.since = now;
        }
        Some(item)
    }

    /// Takes the text of one, which no longer counts as waiting.
    pub(crate) fn take_bytes(&mut self, seq: u64) -> Vec<u8> {
        let bytes = self
            .get_mut(seq)
            .map_or_else(Vec::new, |item| std::mem::take(&mut item.bytes));
        self.queued = self.queued.saturating_sub(bytes.len());
        bytes
    }

    /// Changes the text of one.
    pub(crate) fn replace(&mut self, seq: u64, bytes: Vec<u8>) {
        let mut change = 0;
        if let Some(item) = self.get_mut(seq) {
            change = item.bytes.len();
            item.head = Head::of(&bytes);
            item.bytes = bytes;
            item.state = State::Ready;
        }
        let now = self.get_mut(seq).map_or(0, |item| item.bytes.len());
        self.queued = (self.queued + now).saturating_sub(change);
    }

    /// What becomes of the rest of a message over the limit whose beginning was judged.
    pub(crate) fn decide_over(&mut self, refusal: Option<(&[u8], String)>) {
        if !matches!(self.over, Over::Asked) {
            return;
        }
        self.over = match refusal {
            None => Over::Passing,
            Some((beginning, text)) => {
                let mut peek = Peek::default();
                peek.feed(beginning);
                Over::Dropping(Box::new(peek), text)
            }
        };
    }

    /// Puts bytes on their way.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) {
        if let Some(last) = bytes.last()
            && self.sink.is_some()
        {
            self.mid_line = *last != b'\n';
            self.out_bytes += bytes.len();
            self.out.push_back(bytes);
        }
    }

    /// Says something of our own, between two messages.
    pub(crate) fn say(&mut self, line: Vec<u8>) {
        if line.is_empty() {
        } else if matches!(self.over, Over::Passing) || (self.mid_line && self.source.is_some()) {
            self.deferred.extend_from_slice(&line);
        } else {
            if self.mid_line {
                self.send(b"\n".to_vec());
            }
            self.send(line);
        }
    }

    /// Writes what the other side takes; false when it takes nothing any more.
    pub(crate) fn write(&mut self) -> bool {
        let Some(sink) = &self.sink else { return true };
        while let Some(front) = self.out.front() {
            let rest = front.get(self.written..).unwrap_or_default();
            match sink.write(rest) {
                Ok(Moved::Bytes(count)) => {
                    self.out_bytes -= count;
                    self.written += count;
                    if self.written >= front.len() {
                        self.written = 0;
                        self.out.pop_front();
                    } else if count == 0 {
                        return true;
                    }
                }
                Ok(Moved::Later) => return true,
                Ok(Moved::Over) | Err(_) => return false,
            }
        }
        true
    }

    /// Everything that came has gone on.
    pub(crate) fn is_drained(&self) -> bool {
        self.source.is_none() && self.queue.is_empty() && self.out.is_empty()
    }

    /// Nothing waits between the ends but what is being written.
    pub(crate) fn has_ended_but_for_writing(&self) -> bool {
        self.source.is_none() && self.queue.is_empty()
    }

    /// The end of the stream goes on.
    pub(crate) fn close(&mut self) {
        if let Some(sink) = self.sink.take() {
            sink.close_writing();
        }
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.sink.is_none()
    }
}
