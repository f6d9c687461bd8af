//! What the model knows of a sentence: numbers of features, each with the word that it ends at.

use super::{Fired, SIZE};
use crate::integrity::lexicon::{
    ACT, AND, BASE, BYPASS, CONVO, COVERT, Classes, DEST, EXEC, EXTERN, FOLLOW, FOREIGN, IDENT, IGNORE, ING,
    INSERT, MODAL, MODEL, NEG, NOTE, PAST, PATH, READ, RESPOND, SECRET, SEND, SHOW, SYSTEM, TELL, THIRD,
    THIS, TOOL, USER, WHEN, WordHash, YOU, YOUR,
};
use crate::integrity::sentence::{Channel, Sentence};
use crate::integrity::words::Word;

/// Verbs whose object matters.
const DOING: Classes = IGNORE | BYPASS | SEND | INSERT | SHOW | READ | EXEC | ACT | TELL | FOLLOW | COVERT;
const FORMS: Classes = FOREIGN | THIRD | PAST | ING | BASE;
/// Above the numbers of names of all classes.
const THEMES_FROM: u64 = 1 << 17;
/// Words with a class that are further apart than this are no neighbours.
const NEAR: usize = 6;
/// Most classes of a word that make pairs with those of its neighbour.
const MOST: usize = 4;
/// What a sentence is made of, taken together.
const SKELETON: [Classes; 9] = [
    YOU | YOUR,
    MODEL,
    USER,
    SECRET | CONVO | PATH,
    DEST | EXTERN,
    COVERT | NEG,
    TELL | RESPOND,
    TOOL | IDENT,
    MODAL,
];

/// Hands each feature of a sentence to `emit`, with the word it ends at; features of the whole have none. Gives the
/// [`setting`], which is one of them.
pub(super) fn features(
    sentence: &Sentence<'_>,
    fired: &Fired,
    mut emit: impl FnMut(usize, Option<usize>),
) -> u64 {
    let result = sentence.channel == Channel::Result;
    let mut last = WordHash::START;
    let mut met = 0_u64;
    let mut repeated = false;
    let mut seen: Classes = 0;
    let mut forms: [Classes; 5] = [0; 5];
    let mut neighbour: Option<(usize, Classes)> = None;
    let mut themes = Themes::default();
    let mut general = General::default();
    for (i, word) in sentence.words.iter().enumerate() {
        let named = word.is(DEST | IDENT | PATH | FOREIGN) || word.hash == WordHash::START;
        // A word counts once in a sentence. Of most words a few bits tell that they are new.
        let bit = 1 << (word.hash.value() >> 58);
        let again = met & bit != 0
            && sentence
                .words
                .get(..i)
                .is_some_and(|w| w.iter().any(|w| w.hash == word.hash));
        met |= bit;
        // So do two words in a row: what is said over and over must not add up.
        let stuck = !named && again && repeated;
        repeated = again && !named;
        if stuck {
            last = word.hash;
            continue;
        }
        if named {
            last = WordHash::START;
        } else {
            emit(slot(2, last.pair(word.hash).value()), Some(i));
            last = word.hash;
        }
        if !named && !again {
            emit(slot(1, word.hash.value()), Some(i));
            if word.stem != WordHash::START {
                emit(slot(3, word.stem.value()), Some(i));
            }
        }
        let classes = word.classes & !(FORMS | AND | THIS);
        let theme = if named { 0 } else { u64::from(word.theme) };
        if let Some(pair) = general.next(word, theme, named) {
            emit(slot(18, pair), Some(i));
        }
        if theme != 0 {
            themes.emit(sentence, i, theme, &mut emit);
        }
        if classes == 0 {
            continue;
        }
        let verb = word.is(BASE | FOREIGN);
        let form = if verb && sentence.negated(i) {
            4
        } else if verb && sentence.commanded(i) >= 0.9 {
            2
        } else {
            usize::from(word.is(PAST | THIRD))
        };
        let formed = forms
            .get_mut(form)
            .map_or(0, |f| std::mem::replace(f, *f | classes));
        for own in bits(classes) {
            if formed & 1 << own == 0 {
                emit(slot(4, own | (form as u64) << 8), Some(i));
                if result {
                    emit(slot(7, own | (form as u64) << 8), Some(i));
                }
            }
            if seen & 1 << own == 0 {
                for other in bits(seen) {
                    emit(slot(5, own.min(other) << 8 | own.max(other)), Some(i));
                }
            }
        }
        if let Some((_, before)) = neighbour.filter(|n| i - n.0 <= NEAR) {
            for one in bits(before).take(MOST) {
                for two in bits(classes).take(MOST) {
                    emit(slot(6, one << 8 | two), Some(i));
                }
            }
        }
        if form == 2 {
            themes.order = Some((i, classes));
        } else if let Some((_, order)) = themes.order.filter(|o| i - o.0 <= 2 * NEAR) {
            // What is ordered, done to what.
            for one in bits(order & DOING).take(MOST) {
                for two in bits(classes).take(MOST) {
                    emit(slot(14, one << 8 | two), Some(i));
                }
            }
        }
        neighbour = Some((i, classes));
        seen |= classes;
    }
    for (signal, found) in fired {
        let kind = (*signal as u64) << 2;
        emit(slot(15, kind), None);
        if found.strength >= 0.35 {
            emit(slot(15, kind | 1), None);
        }
        if found.strength >= 0.7 {
            emit(slot(15, kind | 2), None);
        }
    }
    let first = sentence.words.first().map_or(0, |w| w.start);
    let setting = setting(sentence.text, first);
    emit(slot(16, (setting << 8) | opening(sentence)), None);
    emit(slot(17, setting), None);
    emit(slot(8, opening(sentence)), None);
    let skeleton = SKELETON.iter().enumerate().fold(0, |mask, (k, classes)| {
        mask | u64::from(sentence.any(*classes)) << k
    });
    emit(slot(9, skeleton << 1 | u64::from(result)), None);
    emit(slot(10, sentence.channel as u64), None);
    setting
}

/// The last word, or what stands for it: pairs such as "put the (kind of document)" and "in (identifier)" hold for
/// many wordings.
#[derive(Default)]
struct General {
    last: Option<(u64, bool)>,
}

impl General {
    /// Number of the pair that `word` makes with the one before it, unless both are words that stand for themselves.
    fn next(&mut self, word: &Word, theme: u64, named: bool) -> Option<u64> {
        // Names come first, then themes; hashes of words are far above both.
        let (stands, plain) = if word.is(DEST) {
            (1, false)
        } else if word.is(IDENT) {
            (2, false)
        } else if word.is(PATH) {
            (3, false)
        } else if theme != 0 {
            (THEMES_FROM + theme, false)
        } else if named {
            (4 + (word.classes & 0xFFFF), false)
        } else {
            (word.hash.value(), true)
        };
        let before = self.last.replace((stands, plain))?;
        (!(plain && before.1)).then_some(before.0.rotate_left(23) ^ stands)
    }
}

/// Themes of a sentence so far.
#[derive(Default)]
struct Themes {
    before: Option<(usize, u64)>,
    seen: [u64; 4],
    order: Option<(usize, Classes)>,
}

impl Themes {
    fn emit(
        &mut self,
        sentence: &Sentence<'_>,
        i: usize,
        theme: u64,
        emit: &mut impl FnMut(usize, Option<usize>),
    ) {
        let fresh = self
            .seen
            .get_mut(usize::try_from(theme >> 6).unwrap_or(0) & 3)
            .is_some_and(|set| {
                let bit = 1 << (theme & 63);
                let fresh = *set & bit == 0;
                *set |= bit;
                fresh
            });
        if fresh {
            emit(slot(11, theme), Some(i));
            let ordered = sentence.commanded(i) >= 0.9;
            if ordered {
                emit(slot(11, theme | 1 << 10), Some(i));
            }
            if sentence.negated(i) {
                emit(slot(11, theme | 1 << 11), Some(i));
            }
        }
        if let Some((_, before)) = self.before.filter(|b| i - b.0 <= NEAR) {
            emit(slot(12, before << 10 | theme), Some(i));
        }
        if let Some((_, order)) = self.order.filter(|o| i - o.0 <= 2 * NEAR) {
            for one in bits(order & DOING).take(MOST) {
                emit(slot(13, one << 10 | theme), Some(i));
            }
        }
        self.before = Some((i, theme));
    }
}

/// What stands around a sentence whose first word is at `first`: what its line begins with, and what kind of line is before it.
pub(in crate::integrity) fn setting(text: &str, first: usize) -> u64 {
    let head = text.as_bytes().get(..first).unwrap_or_default();
    let head = head.get(first.saturating_sub(200)..).unwrap_or_default();
    let line = memchr::memrchr(b'\n', head).map_or(0, |at| at + 1);
    let (before, lead) = head.split_at(line);
    let lead = lead.trim_ascii();
    let mark = match lead.last() {
        None => 0,
        Some(b'"' | b'\'') => 1,
        Some(b':' | b'=') => 2,
        Some(b'#' | b'/' | b'*' | b';') => 3,
        Some(b'-' | b'.' | b'!' | b'?') => 4,
        Some(b'>' | b']' | b'}' | b')' | b'|') => 5,
        Some(_) => 6,
    };
    let above = before.trim_ascii_end();
    let above = above
        .get(memchr::memrchr(b'\n', above).map_or(0, |at| at + 1)..)
        .unwrap_or_default();
    let letters = above
        .iter()
        .filter(|b| b.is_ascii_alphabetic() || **b == b' ' || **b >= 0x80)
        .count();
    let kind = if above.is_empty() {
        0
    } else if letters * 10 >= above.len() * 9 {
        1
    } else if letters * 4 >= above.len() * 3 {
        2
    } else {
        3
    };
    kind << 3 | mark
}

/// How a sentence begins, whether it is the first of its text, and where the text stands.
fn opening(sentence: &Sentence<'_>) -> u64 {
    let first = sentence.words.first().map_or(0, |w| w.classes);
    let kinds = [BASE, THIRD, YOU | YOUR, MODEL, WHEN, NOTE | SYSTEM, NEG, MODAL];
    let kind = kinds.iter().position(|k| first & k != 0).unwrap_or(kinds.len());
    let start = u64::from(sentence.index == 0);
    (kind as u64) << 4 | (sentence.channel as u64) << 1 | start
}

/// The weight of a feature.
fn slot(kind: u64, value: u64) -> usize {
    const MIX: u64 = 0xD6E8_FEB8_6659_FD93;
    let mixed = (value ^ kind.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(MIX);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(MIX);
    usize::try_from(mixed >> (64 - SIZE.trailing_zeros())).unwrap_or(0)
}

fn bits(mut classes: Classes) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = classes.trailing_zeros();
        (bit < Classes::BITS).then(|| {
            classes &= classes - 1;
            u64::from(bit)
        })
    })
}
