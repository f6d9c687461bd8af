//! Cuts one direction of one stream into lines.
//!
//! MCP over stdio is one JSON-RPC message a line (specification, basic/transports, stdio). Nothing is known about how
//! the bytes arrive: a write may hold several messages or a third of one, and may split a character. So the framer
//! works on bytes; whether a line is UTF-8 is asked by its reader, once the line is whole.

use memchr::memchr;

/// Default bound of one line: 64 MiB.
pub const DEFAULT_CAP: usize = 64 << 20;

/// How much of an oversized line is kept for people to look at.
const HEAD: usize = 1024;

/// A buffer that grew beyond this is given back once its line is out.
const KEEP: usize = 1 << 20;

/// One line, or what is known of a line that cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frame<'a> {
    /// What it is.
    pub kind: FrameKind<'a>,
    /// Length on the wire in bytes, newline and carriage return included; for a damaged line what was seen of it.
    pub wire_len: u64,
    /// Bytes of this stream were lost between the previous message and this one. A blank line carries the flag and
    /// leaves it for the message that follows.
    pub after_gap: bool,
}

/// Kinds of frames.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FrameKind<'a> {
    /// A whole line without its newline and without one trailing carriage return. Never blank.
    Line(&'a [u8]),
    /// A line of nothing but spaces, tabs and carriage returns.
    Blank,
    /// A line longer than the cap. Its bytes were not kept.
    Oversized {
        /// Bytes before the newline.
        length: u64,
        /// The first bytes, at most 1,024.
        head: &'a [u8],
    },
    /// A line that lost bytes, reported where the framer found the next newline.
    Damaged {
        /// Bytes of it that were seen.
        seen: u64,
        /// Bytes that were lost, as far as the capture could tell. Several lines may be among them.
        lost: u64,
    },
    /// The stream ended without a newline: a message cut short, or a last one whose writer left the newline out.
    Unterminated(&'a [u8]),
}

/// Byte framer for one direction of one stream.
///
/// Memory is bounded by the cap. A line that lies whole in one chunk is not copied. The work is linear in the bytes
/// fed, however small the pieces.
#[derive(Clone, Debug)]
pub struct Framer {
    cap: usize,
    buf: Vec<u8>,
    /// Bytes of the current line so far, kept or not.
    seen: u64,
    /// The frame given out last stood in `buf`.
    spent: bool,
    /// The current line lost this many bytes.
    lost: Option<u64>,
    /// The stream was joined midway and nothing was seen of it yet.
    joining: bool,
    after_gap: bool,
}

impl Default for Framer {
    fn default() -> Self {
        Self::new(DEFAULT_CAP)
    }
}

impl Framer {
    /// A framer whose lines hold at most `cap` bytes, newline not counted.
    pub const fn new(cap: usize) -> Self {
        Self {
            cap,
            buf: Vec::new(),
            seen: 0,
            spent: false,
            lost: None,
            joining: false,
            after_gap: false,
        }
    }

    /// A framer that begins in the middle of a stream: everything up to the first newline is the rest of a line
    /// whose start was not seen, and is reported as damaged.
    pub const fn mid_stream(cap: usize) -> Self {
        Self {
            cap,
            buf: Vec::new(),
            seen: 0,
            spent: false,
            lost: Some(0),
            joining: true,
            after_gap: false,
        }
    }

    /// Takes the next frame from the front of `chunk`; none when the chunk is used up.
    ///
    /// Call it until it answers none: what it has not taken is still in `chunk`.
    #[expect(
        single_use_lifetimes,
        reason = "the rest of the chunk must keep its own, longer lifetime"
    )]
    pub fn next_frame<'a, 'c: 'a>(&'a mut self, chunk: &mut &'c [u8]) -> Option<Frame<'a>> {
        self.release();
        let Some(at) = memchr(b'\n', chunk) else {
            self.keep(chunk);
            *chunk = &[];
            return None;
        };
        let (line, rest) = chunk.split_at(at);
        *chunk = rest.get(1..).unwrap_or_default();
        if self.seen == 0 && self.lost.is_none() && line.len() <= self.cap {
            return Some(self.line_frame(line, true));
        }
        self.keep(line);
        Some(self.close(true))
    }

    /// Feeds a chunk and calls `sink` with each frame that it completes.
    pub fn push(&mut self, mut chunk: &[u8], mut sink: impl FnMut(Frame<'_>)) {
        while let Some(frame) = self.next_frame(&mut chunk) {
            sink(frame);
        }
    }

    /// Marks a loss of `lost` bytes at this place of the stream (0 where the number is unknown).
    ///
    /// What was collected of the current line is dropped, and so is everything up to the next newline: the bytes
    /// after a loss may be the middle of a message, and text of the message's own author must not be taken for a
    /// message.
    pub fn gap(&mut self, lost: u64) {
        self.release();
        self.buf.clear();
        self.joining = false;
        self.lost = Some(self.lost.unwrap_or(0).saturating_add(lost));
    }

    /// Ends the stream: reports what is left without a newline, if anything.
    pub fn finish(&mut self) -> Option<Frame<'_>> {
        self.release();
        if self.seen == 0 && (self.lost.is_none() || self.joining) {
            return None;
        }
        Some(self.close(false))
    }

    /// Bytes held for the line that is not complete yet.
    pub fn held(&self) -> usize {
        if self.spent { 0 } else { self.buf.len() }
    }

    /// Forgets the line that was given out last.
    fn release(&mut self) {
        if self.spent {
            self.spent = false;
            if self.buf.capacity() > KEEP {
                self.buf = Vec::new();
            } else {
                self.buf.clear();
            }
        }
    }

    /// Adds a piece to the current line.
    fn keep(&mut self, piece: &[u8]) {
        self.seen = self.seen.saturating_add(piece.len() as u64);
        if self.lost.is_some() {
            return;
        }
        if self.seen <= self.cap as u64 {
            self.buf.extend_from_slice(piece);
            return;
        }
        // Over the cap: only a head stays. The buffer is cut once, then nothing is added but the missing head.
        let head = HEAD.min(self.cap);
        if self.buf.len() > head {
            self.buf.truncate(head);
            self.buf.shrink_to(head);
        }
        let missing = head - self.buf.len();
        self.buf.extend_from_slice(piece.get(..missing).unwrap_or(piece));
    }

    /// Turns the collected line into a frame.
    fn close(&mut self, newline: bool) -> Frame<'_> {
        let seen = std::mem::take(&mut self.seen);
        let wire_len = seen.saturating_add(u64::from(newline));
        self.spent = true;
        self.joining = false;
        if let Some(lost) = self.lost.take() {
            let after_gap = std::mem::replace(&mut self.after_gap, true);
            return Frame {
                kind: FrameKind::Damaged { seen, lost },
                wire_len,
                after_gap,
            };
        }
        if seen > self.cap as u64 {
            let after_gap = std::mem::take(&mut self.after_gap);
            return Frame {
                kind: FrameKind::Oversized {
                    length: seen,
                    head: &self.buf,
                },
                wire_len,
                after_gap,
            };
        }
        let mut after_gap = self.after_gap;
        let frame = frame_of(&self.buf, newline, &mut after_gap);
        self.after_gap = after_gap;
        frame
    }

    /// A line that was never in the buffer.
    fn line_frame<'c>(&mut self, line: &'c [u8], newline: bool) -> Frame<'c> {
        frame_of(line, newline, &mut self.after_gap)
    }
}

fn frame_of<'l>(line: &'l [u8], newline: bool, after_gap: &mut bool) -> Frame<'l> {
    let wire_len = (line.len() as u64).saturating_add(u64::from(newline));
    let text = if newline {
        line.strip_suffix(b"\r").unwrap_or(line)
    } else {
        line
    };
    if text.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r')) {
        return Frame {
            kind: FrameKind::Blank,
            wire_len,
            after_gap: *after_gap,
        };
    }
    let kind = if newline {
        FrameKind::Line(text)
    } else {
        FrameKind::Unterminated(text)
    };
    Frame {
        kind,
        wire_len,
        after_gap: std::mem::take(after_gap),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame that owns its bytes.
    fn show(frame: Frame<'_>) -> String {
        let kind = match frame.kind {
            FrameKind::Line(line) => format!("line {}", String::from_utf8_lossy(line)),
            FrameKind::Blank => "blank".to_owned(),
            FrameKind::Oversized { length, head } => format!("over {length} {}", head.len()),
            FrameKind::Damaged { seen, lost } => format!("damaged {seen} {lost}"),
            FrameKind::Unterminated(line) => format!("rest {}", String::from_utf8_lossy(line)),
        };
        format!(
            "{kind} ({}{})",
            frame.wire_len,
            if frame.after_gap { ", gap" } else { "" }
        )
    }

    fn run(framer: &mut Framer, pieces: &[&[u8]]) -> Vec<String> {
        let mut frames = Vec::new();
        for piece in pieces {
            framer.push(piece, |frame| frames.push(show(frame)));
        }
        frames.extend(framer.finish().map(show));
        frames
    }

    #[test]
    fn lines_returns_blanks_and_a_rest() {
        let frames = run(&mut Framer::default(), &[b"{1}\n{2}\r\n\r\n \t\n{3", b"}"]);
        assert_eq!(
            frames,
            [
                "line {1} (4)",
                "line {2} (5)",
                "blank (2)",
                "blank (3)",
                "rest {3} (3)"
            ]
        );
    }

    #[test]
    fn a_line_whole_in_one_chunk_is_not_copied() {
        let chunk = b"abc\ndef\n".as_slice();
        let mut rest = chunk;
        let mut framer = Framer::default();
        for at in [0, 4] {
            let FrameKind::Line(line) = framer.next_frame(&mut rest).unwrap().kind else {
                panic!("no line")
            };
            assert!(std::ptr::eq(line, &raw const chunk[at..at + 3]));
        }
        assert_eq!(framer.held(), 0);
    }

    #[test]
    fn a_split_character_stays_whole() {
        let text = "{\"é漢😀\"}\n".as_bytes();
        let pieces: Vec<_> = text.chunks(1).collect();
        assert_eq!(run(&mut Framer::default(), &pieces), ["line {\"é漢😀\"} (14)"]);
    }

    #[test]
    fn after_a_gap_reading_resumes_at_the_next_newline() {
        let mut framer = Framer::default();
        let mut frames = Vec::new();
        framer.push(b"{1}\n{hal", |f| frames.push(show(f)));
        framer.gap(10);
        framer.gap(5);
        framer.push(b"f}{\"not\":\"a message\"}\n\n{2}\n{3}\n", |f| {
            frames.push(show(f));
        });
        assert_eq!(
            frames,
            [
                "line {1} (4)",
                "damaged 25 15 (26)",
                "blank (1, gap)",
                "line {2} (4, gap)",
                "line {3} (4)"
            ]
        );
    }

    #[test]
    fn a_gap_at_the_end_is_reported() {
        let mut framer = Framer::default();
        framer.gap(0);
        assert_eq!(framer.finish().map(show).as_deref(), Some("damaged 0 0 (0)"));
        assert_eq!(framer.finish(), None);
    }

    #[test]
    fn joining_midway_drops_the_first_rest() {
        assert_eq!(
            run(&mut Framer::mid_stream(99), &[b"}}\n{1}\n"]),
            ["damaged 2 0 (3)", "line {1} (4, gap)"]
        );
        assert_eq!(Framer::mid_stream(99).finish(), None);
    }

    #[test]
    fn a_long_line_is_reported_once_and_not_kept() {
        let mut framer = Framer::new(4096);
        let piece = vec![b'x'; 1000];
        let mut frames = Vec::new();
        for _ in 0..5000 {
            framer.push(&piece, |f| frames.push(show(f)));
            assert!(framer.buf.capacity() <= 8192);
        }
        framer.push(b"\n{1}\n", |f| frames.push(show(f)));
        assert_eq!(frames, ["over 5000000 1024 (5000001)", "line {1} (4)"]);
    }

    #[test]
    fn a_line_of_exactly_the_cap_passes() {
        assert_eq!(
            run(&mut Framer::new(4), &[b"abcd\nabcde\nabc\r\nabcd\r\n"]),
            ["line abcd (5)", "over 5 4 (6)", "line abc (5)", "over 5 4 (6)"]
        );
    }

    #[test]
    fn a_large_buffer_is_given_back() {
        let mut framer = Framer::default();
        framer.push(&vec![b'x'; 3 << 20], |_| {});
        framer.push(b"\n", |frame| assert_eq!(frame.wire_len, (3 << 20) + 1));
        framer.push(b"", |_| {});
        assert_eq!(framer.buf.capacity(), 0);
    }

    /// Bytes that make the interesting cases likely.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(
            prop_oneof![3 => Just(b'\n'), 2 => Just(b'\r'), 2 => Just(b' '), 4 => Just(b'x'), 2 => any::<u8>()],
            0..200,
        )
    }

    proptest! {
        #[test]
        fn framing_does_not_depend_on_chunks(
            data in bytes(),
            cuts in prop::collection::vec(0usize..200, 0..20),
            cap in 0usize..40,
        ) {
            let whole = run(&mut Framer::new(cap), &[&data]);
            let mut cuts: Vec<_> = cuts.into_iter().map(|c| c.min(data.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&data[from..cut]);
                from = cut;
            }
            pieces.push(&data[from..]);
            prop_assert_eq!(&whole, &run(&mut Framer::new(cap), &pieces));
            let single: Vec<_> = data.chunks(1).collect();
            prop_assert_eq!(&whole, &run(&mut Framer::new(cap), &single));
        }

        #[test]
        fn every_byte_is_accounted_for(data in bytes(), cap in 0usize..40, gaps in prop::collection::vec(0usize..200, 0..4)) {
            let mut framer = Framer::new(cap);
            let mut total = 0;
            for (at, byte) in data.iter().enumerate() {
                if gaps.contains(&at) {
                    framer.gap(7);
                }
                framer.push(&[*byte], |frame| total += frame.wire_len);
            }
            total += framer.finish().map_or(0, |frame| frame.wire_len);
            prop_assert_eq!(total, data.len() as u64);
        }
    }
}
