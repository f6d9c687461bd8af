//! Reading what is no plain ASCII word.

use super::shape::{Script, address, humps, script_kind, secret_path};
use super::{LONGEST_SENTENCE, Reader, fold};
use crate::integrity::lexicon::{DANGER, IDENT, NEG, PATH, WordHash};
use crate::text::lookalike;

impl Reader<'_> {
    pub(super) fn chunk(&mut self, chunk: &str, start: usize) {
        let trimmed = chunk.trim_start_matches(['#', '*', '-', '+', '=', '\'', '|', '\\', '$', '^']);
        let start = start + (chunk.len() - trimmed.len());
        let trimmed = trimmed.trim_end_matches(['*', '-', '+', '=', '\\', '^', '_']);
        if trimmed.len() < chunk.len() && chunk.starts_with(['#', '-', '|']) {
            self.opens = true;
        }
        if trimmed.is_empty() {
            return;
        }
        // Words strung together with one mark ("do_not_tell_the_user") are words.
        for mark in ['_', '*', '+', '|'] {
            if trimmed.matches(mark).count() >= 5 {
                let mut at = start;
                for piece in trimmed.split(mark) {
                    if !piece.is_empty() {
                        self.chunk(piece, at);
                    }
                    at += piece.len() + 1;
                }
                return;
            }
        }
        // An option of a command line is a name, whatever word it is.
        if chunk.starts_with("--") || chunk.starts_with('-') && trimmed.len() == 1 {
            self.push(start, start + trimmed.len(), 0, WordHash::START);
            return;
        }
        let end = start + trimmed.len();
        if !trimmed.is_ascii() {
            self.other_script(trimmed, start);
            return;
        }
        // A number is nothing else, unless it is short enough to spell a word.
        if !(3..=6).contains(&trimmed.len()) && trimmed.bytes().all(|b| b.is_ascii_digit()) {
            let hash = WordHash::lower(trimmed);
            self.push(start, end, self.lexicon.word(hash), hash);
            return;
        }
        if let Some(classes) = address(trimmed) {
            let classes = if classes & PATH != 0 {
                classes | secret_path(trimmed)
            } else {
                classes
            };
            self.push(start, end, classes, WordHash::START);
            return;
        }
        if trimmed.contains('\'') {
            let base = trimmed
                .strip_suffix("'s")
                .or_else(|| trimmed.strip_suffix("'S"))
                .unwrap_or(trimmed);
            let hash = base
                .bytes()
                .filter(|b| *b != b'\'')
                .fold(WordHash::START, |h, b| h.push(b.to_ascii_lowercase()));
            let mut classes = self.lexicon.word(hash);
            if trimmed.ends_with("n't") {
                classes |= NEG;
            }
            self.push(start, end, classes, hash);
            return;
        }
        if trimmed
            .bytes()
            .any(|b| b.is_ascii_digit() || matches!(b, b'@' | b'$'))
            && trimmed.len() >= 3
            && self.leet(trimmed, start)
        {
            return;
        }
        self.identifier(trimmed, start);
    }

    /// `snake_case`, `camelCase`, `kebab-case` and `dotted.names`: one identifier; a hyphenated or long one is
    /// also read as words.
    fn identifier(&mut self, name: &str, start: usize) {
        let whole = WordHash::lower(name);
        let classes = self.lexicon.word(whole);
        let parts = name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|p| !p.is_empty())
            .count();
        if classes != 0 || (parts < 2 && humps(name) == 0) {
            self.push(start, start + name.len(), classes, whole);
            return;
        }
        if name.contains('-') || name.contains('/') || parts >= 4 {
            for part in name
                .split(|c: char| !c.is_ascii_alphanumeric())
                .filter(|p| !p.is_empty())
            {
                let at = start + (part.as_ptr().addr() - name.as_ptr().addr());
                let hash = WordHash::lower(part);
                self.push(at, at + part.len(), self.lexicon.word(hash), hash);
            }
            return;
        }
        if humps(name) >= 4 {
            let mut from = 0;
            let ends = name
                .bytes()
                .enumerate()
                .skip(1)
                .filter(|(_, b)| b.is_ascii_uppercase())
                .map(|(i, _)| i);
            for to in ends.chain([name.len()]) {
                if let Some(part) = name.get(from..to) {
                    let hash = WordHash::lower(part);
                    self.push(start + from, start + to, self.lexicon.word(hash), hash);
                }
                from = to;
            }
            return;
        }
        let dangerous = name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|part| self.lexicon.dangerous(WordHash::lower(part)));
        let classes = IDENT | secret_path(name) | if dangerous { DANGER } else { 0 };
        self.push(start, start + name.len(), classes, WordHash::START);
    }

    /// Digits for letters: counts only where the result is a known word.
    fn leet(&mut self, word: &str, start: usize) -> bool {
        if !word.bytes().any(|b| b.is_ascii_alphabetic()) && word.len() > 6 {
            return false;
        }
        let swap = |one: u8| {
            move |b: u8| match b {
                b'0' => b'o',
                b'1' => one,
                b'3' => b'e',
                b'4' | b'@' => b'a',
                b'5' | b'$' => b's',
                b'7' => b't',
                b'8' => b'b',
                b'9' => b'g',
                other => other.to_ascii_lowercase(),
            }
        };
        for one in [b'i', b'l'] {
            let hash = word.bytes().map(swap(one)).fold(WordHash::START, WordHash::push);
            let classes = self.lexicon.word(hash);
            if classes != 0 {
                self.spelling.leet += 1;
                self.spelling.odd.add(start, start + word.len());
                self.push(start, start + word.len(), classes, hash);
                return true;
            }
        }
        false
    }

    fn other_script(&mut self, chunk: &str, start: usize) {
        // Cut into runs of one kind: spaceless scripts, letters, and the rest.
        let mut run_start = 0;
        let mut kind = None;
        for (at, c) in chunk.char_indices().chain(std::iter::once((chunk.len(), ' '))) {
            let this = script_kind(c);
            if kind == Some(this) && at < chunk.len() {
                continue;
            }
            if let (Some(was), Some(run)) = (kind, chunk.get(run_start..at)) {
                match was {
                    Script::Spaceless => self.spaceless(run, start + run_start),
                    Script::Letters => self.letters_word(run, start + run_start),
                    Script::Pause => self.opens = true,
                    Script::Rest => {}
                }
            }
            run_start = at;
            kind = Some(this);
        }
    }

    fn spaceless(&mut self, run: &str, start: usize) {
        let lexicon = self.lexicon;
        for (from, to, classes) in lexicon.in_run(run) {
            if self.words.len() < LONGEST_SENTENCE {
                self.push(start + from, start + to, classes, WordHash::START);
            }
        }
    }

    fn letters_word(&mut self, run: &str, start: usize) {
        let end = start + run.len();
        let mut latin = 0;
        let mut imitating = 0;
        let mut letters = 0;
        self.scratch.clear();
        for c in run.chars() {
            letters += 1;
            if c.is_ascii() {
                latin += usize::from(c.is_ascii_alphabetic());
                self.scratch.push(c.to_ascii_lowercase());
            } else if let Some(plain) = lookalike(c) {
                imitating += 1;
                self.scratch.push(plain.to_ascii_lowercase());
            } else {
                self.scratch.push(c);
            }
        }
        let mixed = imitating > 0 && latin > 0 && latin + imitating == letters && letters >= 2;
        let hash = if mixed {
            WordHash::of(&self.scratch)
        } else {
            WordHash::of(&fold(run))
        };
        let mut classes = self.lexicon.word(hash);
        if mixed {
            self.spelling.lookalikes += usize::from(letters >= 3 || classes != 0);
            self.spelling.odd.add(start, end);
        } else if classes == 0 && imitating == letters && letters >= 3 {
            // A word wholly in another alphabet that spells an English one.
            classes = self.lexicon.word(WordHash::of(&self.scratch));
            if classes != 0 {
                self.spelling.lookalikes += 1;
                self.spelling.odd.add(start, end);
            }
        }
        self.push(start, end, classes, hash);
    }
}
