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
#[derive(Debug)]
pub struct Framer {
    cap: usize,
    buf: Vec<u8>,
    /// Bytes of the current line so far, kept or not.
    seen: u64,
    /// The frame given out last stood in `buf`.
    spent: bool,
    /// The current line lost this many bytes.
    lost: Option<u64>,
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
        self.lost = Some(self.lost.unwrap_or(0).saturating_add(lost));
    }

    /// Ends the stream: reports what is left without a newline, if anything.
    pub fn finish(&mut self) -> Option<Frame<'_>> {
        self.release();
        if self.seen == 0 && self.lost.is_none() {
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
