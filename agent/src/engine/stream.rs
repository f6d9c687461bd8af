//! One direction of one stream: calls put together from their chunks, in order.
//!
//! The kernel side hands over a large call in numbered chunks. Chunks of calls that two threads or processes made
//! at the same time may come mixed; the bytes of one call belong together, so the others wait until it is whole.

use std::collections::VecDeque;

use bytes::Bytes;
use kams_mcp::{Frame, FrameKind, Framer, Nanos};

/// Chunks that may wait for a call in front of them to become whole, and their bytes: a bound for the case that
/// its end was lost without a word.
const WAITING: usize = 4_096;
const WAITING_BYTES: usize = 64 << 20;
/// Ticks without a piece of an incomplete call after which its rest counts as lost. Ticks, and not the time that the
/// pieces carry: an engine that is behind reads pieces that are old, and loses none.
const PATIENCE: u32 = 10;

/// A piece of what one call moved.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Number of the call, unique on the host.
    pub call: u64,
    /// Whether this is its last piece.
    pub last: bool,
    /// When the call returned, nanoseconds since boot.
    pub time: Nanos,
    /// The bytes.
    pub data: Bytes,
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Begins {
    /// At the stream's first byte.
    AtStart,
    /// Between two calls, perhaps after the first ones: a piece that does not begin like a message is the rest of
    /// a line.
    Unsure,
}

/// Puts pieces together and frames them.
#[derive(Debug)]
pub struct Stream {
    framer: Framer,
    joining: Joining,
    /// The call in progress, and the ticks since its last piece.
    current: Option<(u64, u32)>,
    waiting: VecDeque<Piece>,
    waiting_bytes: usize,
}

impl Stream {
    /// A stream that is read from where `begins` says. `cap` is the longest line in bytes.
    pub fn new(cap: usize, begins: Begins) -> Self {
        let framer = Framer::new(cap);
        Self {
            framer,
            joining: match begins {
                Begins::AtStart => Joining::Done,
                Begins::Unsure => Joining::Unsure,
            },
            current: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// Takes a piece; `sink` gets the frames that it completes, with the time at which they were complete.
    pub fn push(&mut self, piece: Piece, sink: &mut dyn FnMut(Frame<'_>, Nanos)) {
        match self.current {
            Some((call, _)) if call != piece.call => {
                self.waiting_bytes += piece.data.len();
                self.waiting.push_back(piece);
                if self.waiting.len() > WAITING || self.waiting_bytes > WAITING_BYTES {
                    self.gap(0, sink);
                }
            }
            _ => {
                self.take(&piece, sink);
                self.release(sink);
            }
        }
    }

    /// Bytes were lost at this place; 0 where their number is unknown.
    pub fn gap(&mut self, lost: u64, sink: &mut dyn FnMut(Frame<'_>, Nanos)) {
        self.framer.gap(lost);
        self.current = None;
        self.release(sink);
    }

    /// Gives up on a call whose end does not come. Called about once a second.
    pub fn tick(&mut self, sink: &mut dyn FnMut(Frame<'_>, Nanos)) {
        let Some((_, quiet)) = &mut self.current else {
            return;
        };
        *quiet += 1;
        if *quiet > PATIENCE {
            self.gap(0, sink);
        }
    }

    /// The stream has ended.
    pub fn finish(&mut self, now: Nanos, sink: &mut dyn FnMut(Frame<'_>, Nanos)) {
        if self.current.is_some() {
            self.gap(0, sink);
        }
        if let Some(frame) = self.framer.finish() {
            sink(self.joining.first(frame), now);
        }
    }

    fn take(&mut self, piece: &Piece, sink: &mut dyn FnMut(Frame<'_>, Nanos)) {
        self.current = (!piece.last).then_some((piece.call, 0));
        let mut data: &[u8] = &piece.data;
        while let Some(frame) = self.framer.next_frame(&mut data) {
            sink(self.joining.first(frame), piece.time);
        }
    }

    /// Takes what waited, as long as it belongs to the call in progress or none is.
    fn release(&mut self, sink: &mut dyn FnMut(Frame<'_>, Nanos)) {
        loop {
            let next = match self.current {
                None => (!self.waiting.is_empty()).then_some(0),
                Some((call, _)) => self.waiting.iter().position(|piece| piece.call == call),
            };
            let Some(piece) = next.and_then(|at| self.waiting.remove(at)) else {
                return;
            };
            self.waiting_bytes -= piece.data.len();
            self.take(&piece, sink);
        }
    }
}

/// How far a stream is that may have been joined in the middle of a line. The end of a line can begin as a line does.
#[derive(Debug)]
enum Joining {
    /// Nothing was seen of it.
    Unsure,
    /// Its first line was cut.
    Cut,
    Done,
}

impl Joining {
    /// A first line that is no JSON was cut, which is no fault of who wrote it: it is a gap.
    fn first<'a>(&mut self, frame: Frame<'a>) -> Frame<'a> {
        match (&self, frame.kind) {
            (Self::Done, _) | (_, FrameKind::Blank) => frame,
            (Self::Unsure, FrameKind::Line(line) | FrameKind::Unterminated(line))
                if serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err() =>
            {
                *self = Self::Cut;
                let kind = FrameKind::Damaged {
                    seen: line.len() as u64,
                    lost: 0,
                };
                Frame { kind, ..frame }
            }
            (Self::Cut, _) => {
                *self = Self::Done;
                let after_gap = true;
                Frame { after_gap, ..frame }
            }
            (Self::Unsure, _) => {
                *self = Self::Done;
                frame
            }
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn piece(call: u64, last: bool, text: &'static str) -> Piece {
        Piece {
            call,
            last,
            time: call,
            data: Bytes::from_static(text.as_bytes()),
        }
    }

    fn shown(frame: &Frame<'_>) -> Option<String> {
        match frame.kind {
            FrameKind::Line(line) => {
                let mark = if frame.after_gap { "!" } else { "" };
                Some(format!("{mark}{}", String::from_utf8_lossy(line)))
            }
            FrameKind::Blank => None,
            other => format!("{other:?}").split([' ', '(']).next().map(str::to_owned),
        }
    }

    fn lines(pieces: Vec<Piece>, gap_after: Option<usize>) -> Vec<String> {
        let mut stream = Stream::new(1_000, Begins::AtStart);
        let mut seen = Vec::new();
        let mut sink = |frame: Frame<'_>, _| seen.extend(shown(&frame));
        for (at, piece) in pieces.into_iter().enumerate() {
            stream.push(piece, &mut sink);
            if gap_after == Some(at) {
                stream.gap(3, &mut sink);
            }
        }
        stream.finish(99, &mut sink);
        seen
    }

    #[test]
    fn calls_that_come_mixed_are_put_together() {
        let pieces = vec![
            piece(1, false, "a"),
            piece(2, false, "x"),
            piece(2, true, "y\n"),
            piece(1, false, "b"),
            piece(3, true, "z\n"),
            piece(1, true, "c\n"),
        ];
        assert_eq!(lines(pieces, None), ["abc", "xy", "z"]);
    }

    #[test]
    fn a_lost_end_of_a_call_does_not_hold_the_others() {
        let pieces = vec![piece(1, false, "a"), piece(2, true, "x\n"), piece(3, true, "y\n")];
        assert_eq!(lines(pieces, Some(1)), ["Damaged", "!y"]);
    }

    #[test]
    fn the_end_of_a_line_that_begins_as_one_does_is_a_gap() {
        for (first, expected) in [
            ("{\"name\":\"x\"},\"id\":1}", vec!["Damaged", "!{}", "[]"]),
            ("x\"}", vec!["Damaged", "!{}", "[]"]),
            ("{\"id\":1}", vec!["{\"id\":1}", "{}", "[]"]),
        ] {
            let mut stream = Stream::new(1_000, Begins::Unsure);
            let mut seen = Vec::new();
            for text in [first, "\n\n{}\n[]\n"] {
                let data = Bytes::copy_from_slice(text.as_bytes());
                let piece = Piece {
                    data,
                    ..piece(1, true, "")
                };
                stream.push(piece, &mut |frame, _| seen.extend(shown(&frame)));
            }
            assert_eq!(seen, expected, "{first}");
        }
    }

    #[test]
    fn a_call_that_never_ends_is_given_up() {
        let mut stream = Stream::new(1_000, Begins::AtStart);
        let mut seen = 0;
        let mut sink = |_: Frame<'_>, _| seen += 1;
        stream.push(piece(1, false, "a"), &mut sink);
        stream.push(piece(2, true, "x\ny\n"), &mut sink);
        for _ in 0..PATIENCE {
            stream.tick(&mut sink);
        }
        // Still patient: a piece now would go on.
        stream.tick(&mut sink);
        assert_eq!(seen, 2, "the damaged line and the one after it");
    }
}
