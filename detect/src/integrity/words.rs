//! From revealed text to sentences of classified words.

mod again;
mod odd;
mod shape;

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use again::Memory;

use super::lexicon::{
    AND, BASE, CONTENT, Classes, Entry, FOREIGN, LEXICON, Lexicon, MENTION, REVERSED, ROT13, WordHash,
};

/// One word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    /// Byte offsets in the revealed text.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) classes: Classes,
    /// A clause starts here: sentence start, or after a comma, colon, dash, bracket or tag.
    pub(super) opens: bool,
    /// Written in capitals throughout (three letters or more).
    pub(super) capitals: bool,
    /// Inside quotation marks or backticks.
    pub(super) quoted: bool,
    /// Followed by a colon.
    pub(super) colon: bool,
    /// Hash of the folded word; that of no word for addresses, paths and identifiers.
    pub(super) hash: WordHash,
    /// Hash of the word as it is written, in small letters; that of no word unless it is ASCII letters alone.
    pub(super) spelt: WordHash,
    /// Hash of the first [`STEM`] bytes in small letters; that of no word where there are no more.
    pub(super) stem: WordHash,
    /// Number of its theme, 0 for none.
    pub(super) theme: u16,
}

/// Bytes of a word that its kin share.
pub(super) const STEM: usize = 5;

impl Word {
    pub(super) fn is(&self, classes: Classes) -> bool {
        self.classes & classes != 0
    }

    pub(super) fn has(&self, classes: Classes) -> bool {
        self.classes & classes == classes
    }
}

/// What the words of a whole text tell about its spelling.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spelling {
    /// Words that mix in letters of other scripts to look like Latin ones.
    pub(super) lookalikes: usize,
    /// Words spelled with digits for letters.
    pub(super) leet: usize,
    /// Words met so far.
    pub(super) words: usize,
    /// Where the first and the last of ROT13 and reversed words stand, and how many.
    pub(super) rot13: Stretch,
    pub(super) reversed: Stretch,
    /// Single letters with gaps between them.
    pub(super) spaced: Stretch,
    /// Words about attacks.
    pub(super) mentions: usize,
    /// First to last disguised word.
    pub(super) odd: Stretch,
}

impl Spelling {
    /// Grows with everything but the words.
    fn oddities(&self) -> usize {
        let stretches = [self.rot13, self.reversed, self.spaced, self.odd];
        stretches.iter().map(|s| s.count).sum::<usize>() + self.lookalikes + self.leet + self.mentions
    }
}

/// A stretch of text with a count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) count: usize,
}

impl Stretch {
    fn add(&mut self, start: usize, end: usize) {
        if self.count == 0 {
            self.start = start;
        }
        self.end = end;
        self.count += 1;
    }
}

// A longer "sentence" is cut, so that rules over pairs of words stay linear.
const LONGEST_SENTENCE: usize = 64;
/// Words that go over to the next part of a sentence that is cut.
const CARRIED: usize = 24;

/// Who is shown the sentences of a text.
pub(super) trait Visitor {
    fn sentence(&mut self, words: &[Word]);

    /// Keeps what was made of the last sentence, which began at `start`; false where it would not hold for another one
    /// like it.
    fn keep(&mut self, slot: usize, start: usize) -> bool;

    /// The sentence kept in `slot` stands again at `start`; false where it has to be read.
    fn again(&mut self, slot: usize, start: usize) -> bool;
}

/// Splits `text` into sentences and hands each to `visit`; gives what it saw of the spelling.
pub(super) fn sentences(text: &str, visit: &mut impl Visitor) -> Spelling {
    let mut reader = Reader {
        text,
        lexicon: &LEXICON,
        words: Vec::with_capacity(LONGEST_SENTENCE),
        spelling: Spelling::default(),
        opens: true,
        quoted: false,
        tick: false,
        letters: Stretch::default(),
        before: WordHash::START,
        leads: false,
        scratch: String::new(),
        shown: 0,
        memory: Memory::of(text),
    };
    reader.read(visit);
    reader.end_letters();
    if !reader.words.is_empty() {
        gate_languages(text, &mut reader.words);
        visit.sentence(&reader.words);
    }
    reader.spelling
}

/// How far the line after the break at `at` is indented, and whether a sentence ends there: a line that goes on in lower
/// case is a wrapped sentence.
fn breaks(bytes: &[u8], at: usize) -> (usize, bool) {
    let next = bytes.get(at + 1..).unwrap_or_default();
    let gap = |b: &&u8| matches!(b, b' ' | b'\t');
    let indent = next.iter().take(64).take_while(gap).count();
    let first = next.get(indent).copied().unwrap_or(b'\n');
    let key = next.get(indent..).unwrap_or_default();
    let name = key
        .iter()
        .take(40)
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        .count();
    let rest = key.get(name..).unwrap_or_default();
    let rest = rest.get(rest.iter().take(40).take_while(gap).count()..);
    let starts_key =
        key.get(name) == Some(&b':') || name > 0 && rest.is_some_and(|r| r.first() == Some(&b'='));
    (indent, starts_key || !first.is_ascii_lowercase() && first < 0x80)
}

/// A word of another language counts only in a sentence of that language: short lists of Latin-script words
/// meet chance homographs in English.
fn gate_languages(text: &str, words: &mut [Word]) {
    let latin = |w: &Word| {
        w.is(FOREIGN)
            && text
                .as_bytes()
                .get(w.start)
                .is_some_and(|b| b.is_ascii() || *b < 0xCE)
    };
    let foreign = words.iter().filter(|w| latin(w)).count();
    if foreign == 0 {
        return;
    }
    let english = words.iter().filter(|w| w.classes != 0 && !w.is(FOREIGN)).count();
    if foreign < 2 || foreign < 3 && english > foreign || english > foreign * 3 {
        for word in words.iter_mut().filter(|w| latin(w)) {
            word.classes = 0;
        }
    }
}

/// Folds a word for look-up: lower case, no diacritics, no apostrophes.
pub(super) fn fold(word: &str) -> String {
    if word.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return word.to_ascii_lowercase();
    }
    word.nfkd()
        .filter(|c| !is_combining_mark(*c) && !matches!(c, '\'' | '’'))
        .flat_map(char::to_lowercase)
        .collect()
}

struct Reader<'a> {
    text: &'a str,
    lexicon: &'a Lexicon,
    words: Vec<Word>,
    spelling: Spelling,
    opens: bool,
    quoted: bool,
    tick: bool,
    letters: Stretch,
    before: WordHash,
    /// Whether the word before may be the first of a pair.
    leads: bool,
    scratch: String,
    /// Sentences shown.
    shown: usize,
    memory: Option<Memory>,
}

impl Reader<'_> {
    fn read(&mut self, visit: &mut impl Visitor) {
        let bytes = self.text.as_bytes();
        let mut at = 0;
        // None after a cut: what is read then depends on words before.
        let mut start = Some(self.start(at));
        while let Some(&byte) = bytes.get(at) {
            let (shown, mut line) = (self.shown, None);
            match KIND.get(usize::from(byte)).copied().unwrap_or(Kind::Word) {
                Kind::Space => at += 1,
                Kind::Line => {
                    let (indent, breaks) = breaks(bytes, at);
                    line = Some(at);
                    if breaks {
                        self.sentence(visit);
                        self.quoted = false;
                        self.tick = false;
                    }
                    at += 1 + indent;
                }
                // ".env": a name that starts with a dot.
                Kind::Stop
                    if byte == b'.'
                        && bytes
                            .get(at + 1)
                            .is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.'))
                        && bytes
                            .get(at.wrapping_sub(1))
                            .is_none_or(|b| !b.is_ascii_alphanumeric()) =>
                {
                    at = self.odd_word(at);
                }
                Kind::Stop => {
                    let ends = bytes.get(at + 1).is_none_or(|b| {
                        b.is_ascii_whitespace()
                            || matches!(b, b'"' | b'\'' | b')' | b'<' | b'*' | b']' | b'}' | b'`' | b'\\')
                            || *b >= 0x80
                    });
                    if ends {
                        self.sentence(visit);
                    }
                    self.opens = true;
                    at += 1;
                }
                Kind::Comma => {
                    if byte == b':'
                        && let Some(last) = self.words.last_mut()
                    {
                        last.colon = true;
                    }
                    self.opens = true;
                    at += 1;
                }
                Kind::Quote => {
                    match byte {
                        b'`' => self.tick = !self.tick,
                        b'"' => self.quoted = !self.quoted,
                        // An apostrophe opens a quotation only before a word and after a gap.
                        _ => {
                            let after_gap =
                                at == 0 || bytes.get(at - 1).is_none_or(|b| !b.is_ascii_alphanumeric());
                            self.quoted = after_gap
                                && bytes
                                    .get(at + 1)
                                    .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'~' || *b == b'.');
                        }
                    }
                    at += 1;
                }
                Kind::Bracket => {
                    if byte == b'>' || byte == b']' {
                        self.opens = true;
                    }
                    if byte == b'<' {
                        self.sentence(visit);
                    }
                    self.opens = true;
                    at += 1;
                }
                Kind::Letter => at = self.ascii_word(at),
                Kind::Word => at = self.odd_word(at),
            }
            if self.words.len() >= LONGEST_SENTENCE {
                self.cut(visit);
                start = None;
            } else if self.shown > shown && self.memory.is_some() {
                if let Some(start) = start {
                    self.keep(start, at, line, visit);
                }
                while let Some(next) = self.again(at, visit) {
                    at = next;
                }
                start = Some(self.start(at));
            }
        }
    }

    fn sentence(&mut self, visit: &mut impl Visitor) {
        if !self.words.is_empty() {
            gate_languages(self.text, &mut self.words);
            visit.sentence(&self.words);
            self.shown += 1;
            self.words.clear();
        }
        self.opens = true;
        self.before = WordHash::START;
        self.leads = false;
    }

    /// Shows the sentence so far and goes on with its last words: what stands across the cut is seen whole.
    fn cut(&mut self, visit: &mut impl Visitor) {
        gate_languages(self.text, &mut self.words);
        visit.sentence(&self.words);
        self.words.drain(..self.words.len().saturating_sub(CARRIED));
    }

    /// The common case: letters up to a gap, looked up as they are read.
    fn ascii_word(&mut self, start: usize) -> usize {
        let bytes = self.text.as_bytes();
        let mut hash = WordHash::START;
        let mut stem = WordHash::START;
        let mut at = start;
        while let Some(&byte) = bytes.get(at) {
            if !byte.is_ascii_alphabetic() {
                break;
            }
            if at == start + STEM {
                stem = hash;
            }
            hash = hash.push(byte | 0x20);
            at += 1;
        }
        let plain = match bytes.get(at) {
            None => true,
            Some(b) => match KIND.get(usize::from(*b)).copied().unwrap_or(Kind::Word) {
                Kind::Space | Kind::Line | Kind::Bracket => true,
                Kind::Comma => *b != b':' || bytes.get(at + 1) != Some(&b'/'),
                Kind::Quote => *b != b'\'' || !bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic),
                Kind::Stop => bytes.get(at + 1).is_none_or(|b| !b.is_ascii_alphanumeric()),
                Kind::Letter | Kind::Word => false,
            },
        };
        if !plain {
            return self.odd_word(start);
        }
        let known = self.lexicon.entry(hash);
        self.add(start..at, known.classes, known, [hash, hash, stem]);
        at
    }

    /// Everything else: links, paths, identifiers, contractions, other scripts.
    fn odd_word(&mut self, start: usize) -> usize {
        let bytes = self.text.as_bytes();
        let mut end = start;
        while let Some(&byte) = bytes.get(end) {
            let kind = KIND.get(usize::from(byte)).copied().unwrap_or(Kind::Word);
            let more = bytes.get(end + 1);
            let inside = match kind {
                Kind::Letter | Kind::Word => true,
                Kind::Comma => byte == b':' && more.is_some_and(|b| matches!(b, b'/' | b'0'..=b'9')),
                Kind::Stop => {
                    more.is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'.'))
                }
                Kind::Quote => byte == b'\'' && end > start && more.is_some_and(u8::is_ascii_alphabetic),
                Kind::Space | Kind::Line | Kind::Bracket => false,
            };
            if !inside {
                break;
            }
            end += 1;
        }
        // Punctuation that opens the kind "word" and nothing else: step over it.
        let end = end.max(start + 1);
        let end = (end..=end + 3)
            .find(|e| self.text.is_char_boundary(*e))
            .unwrap_or(self.text.len());
        let text = self.text;
        if let Some(chunk) = text.get(start..end) {
            self.chunk(chunk, start);
        }
        end
    }

    /// A word that is not plain, with the classes that are known of it.
    fn push(&mut self, start: usize, end: usize, classes: Classes, hash: WordHash) {
        let written = self.text.get(start..end).unwrap_or_default();
        let plain = written.bytes().all(|b| b.is_ascii_alphabetic());
        let spelt = if plain {
            WordHash::lower(written)
        } else {
            WordHash::START
        };
        let stem = written.as_bytes().get(..STEM).filter(|_| written.len() > STEM);
        let stem = stem.map_or(WordHash::START, |stem| {
            stem.iter()
                .fold(WordHash::START, |hash, byte| hash.push(byte.to_ascii_lowercase()))
        });
        let known = self.lexicon.entry(hash);
        self.add(start..end, classes, known, [hash, spelt, stem]);
    }

    fn add(&mut self, at: Range<usize>, classes: Classes, known: Entry, hashes: [WordHash; 3]) {
        let Range { start, end } = at;
        let [hash, spelt, stem] = hashes;
        self.spelling.words += 1;
        if end - start == 1 {
            self.letters.add(start, end);
        } else if self.letters.count > 0 {
            self.end_letters();
        }
        let mut classes = classes;
        self.spelling.mentions += usize::from(classes & MENTION != 0);
        if classes & (ROT13 | REVERSED) != 0 {
            if classes & ROT13 != 0 {
                self.spelling.rot13.add(start, end);
            } else {
                self.spelling.reversed.add(start, end);
            }
        }
        if self.leads && known.follows {
            classes |= self.lexicon.pair(self.before, hash);
        }
        self.before = hash;
        self.leads = known.leads;
        let capitals = end - start >= 3
            && self
                .text
                .as_bytes()
                .get(start..end)
                .is_some_and(|w| w.iter().all(u8::is_ascii_uppercase));
        self.words.push(Word {
            start,
            end,
            classes,
            opens: self.opens,
            capitals,
            quoted: self.quoted || self.tick,
            colon: false,
            hash,
            spelt,
            stem,
            theme: known.theme,
        });
        // What follows "and" or "then" may be a new command.
        self.opens = classes & AND != 0 && classes & (BASE | FOREIGN | CONTENT) == 0;
    }

    fn end_letters(&mut self) {
        if self.letters.count >= 8 && self.letters.count > self.spelling.spaced.count {
            self.spelling.spaced = self.letters;
        }
        self.letters = Stretch::default();
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    Space,
    Line,
    Stop,
    Comma,
    Quote,
    Bracket,
    Letter,
    Word,
}

static KIND: [Kind; 256] = {
    let mut table = [Kind::Word; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte {
            0x0A => Kind::Line,
            0x00..=0x20 | 0x7F => Kind::Space,
            0x2E | 0x21 | 0x3F => Kind::Stop,
            0x2C | 0x3A | 0x3B => Kind::Comma,
            0x22 | 0x27 | 0x60 => Kind::Quote,
            0x28 | 0x29 | 0x3C | 0x3E | 0x5B | 0x5D | 0x7B | 0x7D => Kind::Bracket,
            0x41..=0x5A | 0x61..=0x7A => Kind::Letter,
            _ => Kind::Word,
        };
        byte += 1;
    }
    table
};
