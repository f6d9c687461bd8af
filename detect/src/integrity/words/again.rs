//! Sentences that stood in the same text before.
//!
//! Results repeat themselves: logs, listings, tables. How a sentence is read depends on its bytes, on a few around it and
//! on the state of the reader; where all that is as it was, what was made of it holds again and nothing is looked up.

use super::{Reader, Visitor, breaks};

/// Sentences that are kept at once; one that comes takes the place of another with the same beginning.
const SLOTS: usize = 64;
/// Bytes that tell a sentence's place among them.
const HEAD: usize = 32;
/// Bytes after a sentence that its signals may look at.
const AFTER: usize = 16;
/// And before it.
const BEFORE: usize = 4;
/// Shorter texts are read as they are.
const LONG: usize = 1024;

/// A sentence and how it was read.
#[derive(Clone, Copy)]
struct Known {
    at: usize,
    length: usize,
    /// Where in it the line break stands that ended it.
    line: Option<usize>,
    words: usize,
    quoted: [bool; 2],
    after: [bool; 2],
}

/// The reader where a sentence begins.
#[derive(Clone, Copy)]
pub(super) struct Start {
    at: usize,
    quoted: [bool; 2],
    words: usize,
    oddities: usize,
    letters: bool,
}

/// What is kept of one text.
pub(super) struct Memory {
    slots: Vec<Option<Known>>,
}

impl Memory {
    pub(super) fn of(text: &str) -> Option<Self> {
        (text.len() >= LONG).then(|| Self {
            slots: vec![None; SLOTS],
        })
    }
}

/// The place of what begins at `at`, unless the text ends too soon.
fn slot(bytes: &[u8], at: usize) -> Option<usize> {
    let head = bytes.get(at..at + HEAD)?;
    let mixed = head.chunks_exact(8).fold(0_u64, |hash, chunk| {
        let word = chunk.try_into().map_or(0, u64::from_le_bytes);
        (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    usize::try_from(mixed >> 32).ok().map(|h| h % SLOTS)
}

impl Reader<'_> {
    pub(super) fn start(&self, at: usize) -> Start {
        Start {
            at,
            quoted: [self.quoted, self.tick],
            words: self.spelling.words,
            oddities: self.spelling.oddities(),
            letters: self.letters.count > 0,
        }
    }

    /// Keeps the sentence that was just shown.
    pub(super) fn keep(&mut self, start: Start, end: usize, line: Option<usize>, visit: &mut impl Visitor) {
        let bytes = self.text.as_bytes();
        let same = !start.letters && self.letters.count == 0 && start.oddities == self.spelling.oddities();
        let Some(slot) = slot(bytes, start.at).filter(|_| same && start.at >= BEFORE) else {
            return;
        };
        let known = Known {
            at: start.at,
            length: end - start.at,
            line: line.map(|at| at - start.at),
            words: self.spelling.words - start.words,
            quoted: start.quoted,
            after: [self.quoted, self.tick],
        };
        if let Some(place) = self.memory.as_mut().and_then(|m| m.slots.get_mut(slot)) {
            *place = visit.keep(slot, start.at).then_some(known);
        }
    }

    /// Where the reader goes on if the sentence at `at` is one that it knows.
    pub(super) fn again(&mut self, at: usize, visit: &mut impl Visitor) -> Option<usize> {
        let bytes = self.text.as_bytes();
        let slot = slot(bytes, at)?;
        let known = (*self.memory.as_ref()?.slots.get(slot)?)?;
        if known.quoted != [self.quoted, self.tick] || self.letters.count > 0 {
            return None;
        }
        let around = |at: usize| bytes.get(at - BEFORE..at + known.length + AFTER);
        if at < BEFORE || around(at)? != around(known.at)? {
            return None;
        }
        if known.line.is_some_and(|line| !breaks(bytes, at + line).1) || !visit.again(slot, at) {
            return None;
        }
        self.spelling.words += known.words;
        [self.quoted, self.tick] = known.after;
        Some(at + known.length)
    }
}
