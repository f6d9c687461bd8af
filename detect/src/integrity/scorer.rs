//! Text in, score and reasons out.
//!
//! [`score`] reveals the text, reads it sentence by sentence, lets every signal look at each sentence, does the
//! same once more for what was encoded, and combines by noisy-OR what stands close together.

mod judging;

use std::ops::Range;

use judging::Judging;

use super::lexicon::{LEXICON, WordHash, rot13};
use super::linear::{WEIGHTS, Weights};
use super::sentence::Channel;
use super::signals::{self, Signal};
use super::words::{Spelling, Stretch};
use crate::text::{OffsetMap, blobs, reveal};

/// One signal that fired.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Family and name in the table.
    pub signal: &'static str,
    /// What went into the noisy-OR, 0..1.
    pub contribution: f64,
    /// Where it fired, in bytes of the text given.
    pub span: Range<usize>,
}

/// How much a text reads as an instruction to the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Noisy-OR of the hits, 0..1.
    pub value: f64,
    /// The signals behind the value, strongest first.
    pub hits: Vec<Hit>,
}

// What was decoded counts a little less than what was said openly; that it was encoded counts by itself.
const DECODED: f64 = 0.9;
// Signals that stand further apart than a paragraph (bytes) have nothing to do with each other.
const REACH: usize = 300;
// Below this a hit is noise.
const FAINTEST: f64 = 0.01;

/// Scores `text` as it stands in `channel`. Linear in the length of the text; no input panics.
pub fn score(text: &str, channel: Channel) -> Score {
    score_with(text, channel, WEIGHTS)
}

/// As [`score`], with other weights of the linear model: to validate it on texts it was not fitted to.
pub fn score_with(text: &str, channel: Channel, weights: &Weights) -> Score {
    let reading = Reading { channel, weights };
    let revealed = reveal(text);
    let shown: &str = &revealed.text;
    let mut raw = Vec::new();
    let spelling = read(shown, reading, &mut raw);
    for region in signals::markup(shown, channel) {
        let inside = |hit: &Raw| {
            hit.value > 0.1 && region.span.start <= hit.at.start && hit.at.start < region.span.end
        };
        if !region.needs_inside || raw.iter().any(inside) {
            raw.push(Raw {
                signal: region.signal,
                value: region.strength * region.signal.weight(),
                at: region.span,
            });
        }
    }
    encoded(shown, reading, &spelling, &mut raw);
    // A text about attacks is full of their words.
    if spelling.mentions >= 5 && spelling.mentions * 90 >= spelling.words {
        for hit in &mut raw {
            hit.value *= 0.35;
        }
    }
    let to_original = |at: &Range<usize>| revealed.map.original_range(at.clone(), text.len());
    let mut everywhere = Vec::new();
    for hidden in signals::hidden(&revealed.concealed, &spelling, channel) {
        let at = if hidden.original {
            hidden.span
        } else {
            to_original(&hidden.span)
        };
        everywhere.push(Raw {
            signal: hidden.signal,
            value: hidden.strength * hidden.signal.weight(),
            at,
        });
    }
    combine(raw, &everywhere, &revealed.map, text.len())
}

/// How a text is read.
#[derive(Clone, Copy)]
struct Reading<'a> {
    channel: Channel,
    weights: &'a Weights,
}

struct Raw {
    signal: Signal,
    value: f64,
    at: Range<usize>,
}

/// Runs the sentence signals over one text. Where the linear model finds a sentence honest, they count less.
fn read(text: &str, reading: Reading<'_>, hits: &mut Vec<Raw>) -> Spelling {
    let mut judging = Judging::new(text, reading, hits);
    signals::read(text, reading.channel, &mut judging)
}

/// Scores once more what was encoded, disguised or spaced out.
fn encoded(text: &str, reading: Reading<'_>, spelling: &Spelling, hits: &mut Vec<Raw>) {
    for blob in blobs(text) {
        again(&blob.text, &blob.span, reading, hits);
    }
    for (stretch, turn) in [(spelling.rot13, true), (spelling.reversed, false)] {
        if stretch.count >= 3
            && let Some(body) = text.get(stretch.start..stretch.end)
        {
            let plain: String = if turn {
                body.chars().map(rot13).collect()
            } else {
                body.chars().rev().collect()
            };
            hits.push(Raw {
                signal: Signal::Disguised,
                value: 0.8 * Signal::Disguised.weight(),
                at: stretch.start..stretch.end,
            });
            again(&plain, &(stretch.start..stretch.end), reading, hits);
        }
    }
    if spelling.spaced.count >= 12 {
        let plain = joined(text, spelling.spaced);
        again(
            &plain,
            &(spelling.spaced.start..spelling.spaced.end),
            reading,
            hits,
        );
    }
}

fn again(plain: &str, at: &Range<usize>, reading: Reading<'_>, hits: &mut Vec<Raw>) {
    let mut inner = Vec::new();
    let revealed = reveal(plain);
    read(&revealed.text, reading, &mut inner);
    // An encoding inside an encoding is opened too; a third is not.
    for blob in blobs(plain) {
        let revealed = reveal(&blob.text);
        read(&revealed.text, reading, &mut inner);
    }
    let mut best = 0.0_f64;
    for hit in inner {
        best = best.max(hit.value);
        hits.push(Raw {
            value: hit.value * DECODED,
            at: at.clone(),
            ..hit
        });
    }
    if best > 0.1 {
        hits.push(Raw {
            signal: Signal::Encoded,
            value: Signal::Encoded.weight(),
            at: at.clone(),
        });
    }
}

/// Letters with gaps, joined up to the end of the line. A wider gap than usual is a space; where all gaps are
/// alike, known words are cut out greedily.
fn joined(text: &str, stretch: Stretch) -> String {
    let rest = text.get(stretch.start..).unwrap_or_default();
    let end = memchr::memchr(b'\n', rest.as_bytes())
        .unwrap_or(rest.len())
        .max(stretch.end - stretch.start);
    let body = rest.get(..end).unwrap_or_default();
    // With marks between the letters ("i.g.n") a space is a wide gap.
    let marks = body
        .bytes()
        .filter(|b| matches!(b, b'.' | b'-' | b'_' | b'*' | b'|'))
        .count();
    let marked = marks * 2 > body.len() / 2;
    let mut said = String::with_capacity(body.len());
    let mut gap = 0;
    for c in body.chars() {
        if c.is_whitespace() {
            gap += if marked { 2 } else { 1 };
        } else if marked && matches!(c, '.' | '-' | '_' | '*' | '|') {
            gap += 1;
        } else {
            if gap >= 2 {
                said.push(' ');
            }
            said.push(c.to_ascii_lowercase());
            gap = 0;
        }
    }
    if said.contains(' ') {
        return said;
    }
    let mut cut = String::with_capacity(said.len() * 2);
    let mut rest = said.as_str();
    while !rest.is_empty() {
        let longest = (3..=14.min(rest.len()))
            .rev()
            .filter_map(|n| rest.get(..n))
            .find(|word| LEXICON.word(WordHash::of(word)) != 0);
        let taken = longest.map_or_else(
            || rest.chars().next().map_or(rest.len(), char::len_utf8),
            str::len,
        );
        if longest.is_some() {
            cut.push(' ');
        }
        cut.push_str(rest.get(..taken).unwrap_or_default());
        if longest.is_some() {
            cut.push(' ');
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    cut
}

/// Noisy-OR over the strongest hit of each signal within reach, at the place where that is highest.
fn combine(mut raw: Vec<Raw>, everywhere: &[Raw], map: &OffsetMap, length: usize) -> Score {
    raw.sort_by_key(|hit| hit.at.start);
    let mut base: Vec<Option<&Raw>> = vec![None; Signal::ALL.len()];
    for hit in everywhere {
        keep(&mut base, hit);
    }
    let mut best = (noisy_or(&base), base.clone());
    // Windows of two cells each, so that neighbours across a border still meet.
    let mut cells: Vec<(usize, Vec<Option<&Raw>>)> = Vec::new();
    for hit in &raw {
        let cell = hit.at.start / REACH;
        if cells.last().is_none_or(|c| c.0 != cell) {
            if cells.len() == 2 {
                cells.remove(0);
            }
            if cells.last().is_some_and(|c| c.0 + 1 != cell) {
                cells.clear();
            }
            cells.push((cell, vec![None; Signal::ALL.len()]));
        }
        if let Some(last) = cells.last_mut() {
            keep(&mut last.1, hit);
        }
        // Judging at every hit would be quadratic in signals only: the table is short and fixed.
        let mut window = base.clone();
        for hit in cells.iter().flat_map(|c| c.1.iter().flatten()) {
            keep(&mut window, hit);
        }
        let value = noisy_or(&window);
        if value > best.0 {
            best = (value, window);
        }
    }
    let mut hits: Vec<Hit> = best
        .1
        .into_iter()
        .flatten()
        .map(|hit| Hit {
            signal: hit.signal.name(),
            contribution: hit.value,
            span: if everywhere.iter().any(|e| std::ptr::eq(e, hit)) {
                hit.at.clone()
            } else {
                map.original_range(hit.at.clone(), length)
            },
        })
        .collect();
    hits.sort_by(|a, b| b.contribution.total_cmp(&a.contribution));
    Score { value: best.0, hits }
}

fn keep<'a>(strongest: &mut [Option<&'a Raw>], hit: &'a Raw) {
    if let Some(slot) = strongest.get_mut(hit.signal as usize)
        && slot.is_none_or(|known| known.value < hit.value)
    {
        *slot = Some(hit);
    }
}

fn noisy_or(hits: &[Option<&Raw>]) -> f64 {
    1.0 - hits
        .iter()
        .flatten()
        .fold(1.0, |rest, hit| rest * (1.0 - hit.value.clamp(0.0, 1.0)))
}
