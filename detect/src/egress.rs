//! `egress.sensitive`: sensitive data in what an agent sends to a server (seed 000, SPEC section 3).
//!
//! Raw JSON goes in, findings come out; no tree is built. Each string is scanned as it stands, then once more
//! without its disguise (percent and `\u` escapes, zero-width and full-width characters, base64, hex); strings
//! that hold JSON are walked like the document itself, three levels deep, and keep the place of the outermost
//! string. Work is linear in the input: every candidate is bounded and begins at a word boundary.
//!
//! A [`crate::Finding`] of this module carries class, place, count, length and a salted digest, never a value.

use std::borrow::Cow;

use crate::finding::Finding;

mod assign;
mod card;
mod class;
mod email;
mod encoded;
mod entropy;
mod json;
mod layer;
mod names;
mod pem;
mod phone;
mod record;
mod region;
mod span;
mod text;
mod token;
mod unescape;
mod value;
mod words;

pub use class::{Class, ClassSet};
pub use record::Salt;

use json::{Item, Place, decoded, walk};
use record::Recorder;
pub(crate) use region::outgoing;
pub(crate) use span::Hit;
use span::to_source;
use text::{Context, number, scan};
use unescape::Escapes;

/// JSON inside strings is decoded so many times.
const MAX_LEVEL: u8 = 3;

/// Members that name what a sibling member `value` holds.
const NAME_MEMBERS: [&[u8]; 9] = [b"name", b"key", b"k", b"header", b"field", b"variable", b"var", b"param", b"label"];
/// Members that hold what a sibling names, or what the object around them is named.
const VALUE_MEMBERS: [&[u8]; 6] = [b"value", b"val", b"v", b"plaintext", b"raw", b"current"];

/// Where a match stands, as the walk of the outermost document knows it.
pub(crate) trait Path {
    fn path(&self, hide: &dyn Fn(&[u8]) -> bool) -> String;
}

impl Path for Place<'_> {
    fn path(&self, hide: &dyn Fn(&[u8]) -> bool) -> String {
        Place::path(self, hide)
    }
}

/// Called for each match: place, offset of its outermost string, class, value, documented example.
pub(crate) type Report<'r> = dyn FnMut(&dyn Path, usize, Class, &[u8], bool) + 'r;

/// Findings in the raw JSON of a call's `params.arguments` (or another value that leaves the host), one per class.
/// `tool` is put on each finding. Bytes that are no JSON are scanned all the same.
pub fn scan_arguments(arguments: &[u8], tool: Option<&str>, salt: &Salt) -> Vec<Finding> {
    let mut recorder = Recorder::new(salt);
    hits(arguments, &mut |place, string, class, value, documented| {
        recorder.record(class, value, documented, string, |hide| place.path(hide));
    });
    recorder.into_findings(tool)
}

/// Findings in a whole message from client to server: in the arguments of tools and prompts and in elicitation and
/// sampling answers, `_meta` left out. Paths begin at the value that carries the data (`$` is `params.arguments`).
pub fn scan_message(message: &[u8], tool: Option<&str>, salt: &Salt) -> Vec<Finding> {
    let mut recorder = Recorder::new(salt);
    for region in outgoing(message) {
        let start = region.start;
        hits(message.get(region).unwrap_or_default(), &mut |place, string, class, value, documented| {
            recorder.record(class, value, documented, start + string, |hide| place.path(hide));
        });
    }
    recorder.into_findings(tool)
}

/// All matches in a document, in its own bytes, sorted and disjoint.
pub(crate) fn hits(document: &[u8], report: &mut Report<'_>) -> Vec<Hit> {
    scan_document(document, 0, report)
}

fn scan_document(document: &[u8], level: u8, report: &mut Report<'_>) -> Vec<Hit> {
    let mut all = Vec::new();
    walk(document, |place, item| match item {
        Item::Key(span) => {
            let raw = place.raw(&span);
            let name = decoded(raw);
            let mut seen = Vec::new();
            let mut hits = scan(&name, Context::default(), &mut |class, value, documented| {
                seen.push((class, value.to_vec(), documented));
            });
            if let Some(first) = hits.first() {
                place.mask_key(first.class.name());
            }
            for (class, value, documented) in seen {
                report(place, span.start, class, &value, documented);
            }
            keep(&mut all, &mut hits, raw, span.start, &name);
        }
        Item::Text(span) => {
            let raw = place.raw(&span);
            if raw.len() >= 3 {
                let text = decoded(raw);
                let key = governing_name(place);
                let context = Context { key: key.as_deref(), whole: true };
                let place: &Place<'_> = place;
                let mut hits = if level < MAX_LEVEL && is_document(&text) {
                    scan_document(&text, level + 1, &mut |_, _, class, value, documented| {
                        report(place, span.start, class, value, documented);
                    })
                } else {
                    scan(&text, context, &mut |class, value, documented| {
                        report(place, span.start, class, value, documented);
                    })
                };
                keep(&mut all, &mut hits, raw, span.start, &text);
            }
            remember_name(place, span);
        }
        Item::Number(span) => {
            let digits = place.raw(&span);
            let negative = span.start.checked_sub(1).and_then(|i| document.get(i)) == Some(&b'-');
            if digits.len() < 4 || negative {
                return;
            }
            let key = governing_name(place);
            if let Some(class) = number(digits, key.as_deref()) {
                report(place, span.start, class, digits, false);
                all.push(Hit { number_level: Some(level), ..Hit::new(class, span) });
            }
        }
    });
    all
}

/// Carries a string's matches into the document's bytes.
fn keep(all: &mut Vec<Hit>, hits: &mut Vec<Hit>, raw: &[u8], start: usize, text: &Cow<'_, [u8]>) {
    if matches!(text, Cow::Owned(_)) && !hits.is_empty() {
        to_source(Escapes::new(raw), hits);
    }
    all.extend(hits.drain(..).map(|mut hit| {
        hit.span = hit.span.start + start..hit.span.end + start;
        hit
    }));
}

/// Whether a string holds an object, an array or a string, as valid JSON.
fn is_document(text: &[u8]) -> bool {
    matches!(text.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'))
        && serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// The name that says what the current value is: its key, the `name` beside a `value`, the flag before it.
fn governing_name<'a>(place: &mut Place<'a>) -> Option<Cow<'a, [u8]>> {
    let array = place.in_array();
    let key = place.key();
    let label = place.frame().and_then(|f| f.label.clone());
    if array {
        if let Some(flag) = label {
            return Some(decoded(place.raw(&flag)));
        }
    } else if key.as_deref().is_some_and(|k| is_member(k, &VALUE_MEMBERS)) {
        return label.map(|span| decoded(place.raw(&span))).or_else(|| place.parent_key()).or(key);
    }
    key
}

/// Keeps what may name the next value: a `name` member, or a command-line flag in an array.
fn remember_name(place: &mut Place<'_>, span: std::ops::Range<usize>) {
    let text = place.raw(&span);
    let keep = if place.in_array() {
        text.starts_with(b"-") && text.len() <= 64 && !text.contains(&b'=') && !text.contains(&b' ')
    } else if place.key().is_some_and(|k| is_member(&k, &NAME_MEMBERS)) {
        text.len() <= 128
    } else {
        return;
    };
    if let Some(frame) = place.frame() {
        frame.label = keep.then_some(span);
    }
}

fn is_member(key: &[u8], list: &[&[u8]]) -> bool {
    list.iter().any(|name| key.eq_ignore_ascii_case(name))
}
