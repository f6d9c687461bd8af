//! Markup that sets an instruction apart: chat templates, tags, comments, text pushed out of sight.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::Signal;
use crate::integrity::lexicon::{BYPASS, COVERT, LEXICON, NOTE, RULES, SECRET, SYSTEM, UNBOUND, WordHash};
use crate::integrity::sentence::Channel;

/// A marked stretch of text.
#[derive(Clone, Debug)]
pub(in crate::integrity) struct Region {
    pub(in crate::integrity) signal: Signal,
    pub(in crate::integrity) strength: f64,
    pub(in crate::integrity) span: Range<usize>,
    /// Only worth something when another signal stands inside.
    pub(in crate::integrity) needs_inside: bool,
}

// Control words of chat formats (ChatML, Llama, Mistral, Gemma, Alpaca).
static TEMPLATES: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build([
            "<|im_start|>",
            "<|im_end|>",
            "<|system|>",
            "<|user|>",
            "<|assistant|>",
            "<|endoftext|>",
            "<|eot_id|>",
            "<|start_header_id|>",
            "[inst]",
            "[/inst]",
            "<<sys>>",
            "<start_of_turn>",
            "<end_of_turn>",
            "### instruction",
            "### system",
            "### response:",
            "### human",
            "### assistant",
            "</description>",
            "</tool_response>",
            "</function_results>",
            "</tool_result>",
            "<tool_call>",
            "</system>",
            "\n\nhuman:",
            "\n\nassistant:",
            "<|channel|>",
            "begin hidden instructions",
            "<function_calls>",
            "end of document",
        ])
        .ok()
});

// Comments and hidden elements longer than this are pages, not asides.
const LONGEST_ASIDE: usize = 4096;
const FAR: usize = 40;
const WIDE: usize = 120;
const MOST_REGIONS: usize = 512;

/// Marked stretches of `text`, at most a fixed number. One pass per kind, linear.
pub(in crate::integrity) fn markup(text: &str, channel: Channel) -> Vec<Region> {
    let mut regions = Vec::new();
    templates(text, channel, &mut regions);
    tags(text, channel, &mut regions);
    asides(text, &mut regions);
    pushed(text, channel, &mut regions);
    super::beacon::links(text, channel, &mut regions);
    regions
}

fn templates(text: &str, channel: Channel, regions: &mut Vec<Region>) {
    let Some(search) = TEMPLATES.as_ref() else { return };
    // Every template word but a few has one of these; most texts have none and skip the search.
    if memchr::memchr3(b'<', b'[', b'#', text.as_bytes()).is_none()
        && memchr::memmem::find(text.as_bytes(), b"----").is_none()
    {
        return;
    }
    for found in search.find_iter(text).take(MOST_REGIONS) {
        let strength = match found.pattern().as_usize() {
            0..=12 | 27 => 1.0,
            13 | 15 => 0.8,
            18..=22 => 0.7,
            24 | 25 => 1.4,
            _ => 0.5,
        };
        let strength = if channel == Channel::Result {
            strength * 0.6
        } else {
            strength
        };
        regions.push(Region {
            signal: Signal::Template,
            strength,
            span: found.range(),
            needs_inside: false,
        });
    }
}

/// `<IMPORTANT>`, `[SYSTEM OVERRIDE]`: a tag whose name is a header word.
fn tags(text: &str, channel: Channel, regions: &mut Vec<Region>) {
    let bytes = text.as_bytes();
    for open in memchr::memchr2_iter(b'<', b'[', bytes).take(8192) {
        if regions.len() >= MOST_REGIONS {
            return;
        }
        let close = if bytes.get(open) == Some(&b'<') {
            b'>'
        } else {
            b']'
        };
        let rest = bytes.get(open + 1..).unwrap_or_default();
        let Some(length) = rest.iter().take(40).position(|b| *b == close) else {
            continue;
        };
        let Some(name) = text.get(open + 1..open + 1 + length) else {
            continue;
        };
        if name.starts_with(['/', '!', '#']) || name.contains(['=', '"', '\'', ',']) {
            continue;
        }
        let name = name.trim_start_matches(['[', '<']);
        let speaker = matches!(
            name.to_ascii_lowercase().as_str(),
            "system" | "assistant" | "developer"
        );
        let (mut header, mut words) = (0, 0);
        for word in name
            .split(|c: char| !c.is_ascii_alphabetic())
            .filter(|w| !w.is_empty())
        {
            words += 1;
            header |= LEXICON.word(WordHash::lower(word))
                & (NOTE | SYSTEM | RULES | COVERT | SECRET | UNBOUND | BYPASS);
            if word.eq_ignore_ascii_case("hidden") || word.eq_ignore_ascii_case("information") {
                header |= COVERT;
            }
        }
        if header == 0 || words > 4 {
            continue;
        }
        let capitals = name.bytes().all(|b| !b.is_ascii_lowercase());
        let strength = match (close, capitals) {
            (b']', true) if header & !NOTE == 0 => 0.3,
            (_, true) => 1.0,
            (b'>', false) if header & (SYSTEM | RULES | COVERT | SECRET) != 0 => 0.8,
            (b'>', false) => 0.3,
            _ if speaker => 1.0,
            _ => 0.2,
        };
        let strength = if channel == Channel::Result && !capitals && !speaker {
            strength * 0.6
        } else {
            strength
        };
        regions.push(Region {
            signal: Signal::Tag,
            strength,
            span: open..open + length + 2,
            needs_inside: false,
        });
    }
}

/// Comments and elements that a page does not show.
fn asides(text: &str, regions: &mut Vec<Region>) {
    for (open, close) in [
        ("<!--", "-->"),
        ("[//]: #", "\n"),
        ("<details hidden", "</details>"),
        ("display:none", "</"),
        ("font-size:0", "</"),
        ("{#", "#}"),
    ] {
        let mut from = 0;
        for start in memchr::memmem::find_iter(text.as_bytes(), open.as_bytes()).take(MOST_REGIONS) {
            if start < from {
                continue;
            }
            let end = (start + LONGEST_ASIDE).min(text.len());
            let body = text.as_bytes().get(start..end).unwrap_or_default();
            let length = memchr::memmem::find(body, close.as_bytes()).unwrap_or(body.len());
            from = start + length;
            regions.push(Region {
                signal: Signal::Comment,
                strength: 1.0,
                span: start..from,
                needs_inside: true,
            });
        }
    }
}

/// Text after a long blank stretch: what a person scrolls past.
fn pushed(text: &str, channel: Channel, regions: &mut Vec<Region>) {
    let bytes = text.as_bytes();
    let mut at = 31;
    while let Some(byte) = bytes.get(at) {
        if !byte.is_ascii_whitespace() {
            at += 32;
            continue;
        }
        let start = bytes
            .get(..at)
            .unwrap_or_default()
            .iter()
            .rposition(|b| !b.is_ascii_whitespace())
            .map_or(0, |p| p + 1);
        let end = bytes
            .get(at..)
            .unwrap_or_default()
            .iter()
            .position(|b| !b.is_ascii_whitespace())
            .map_or(bytes.len(), |p| at + p);
        let lines = memchr::memchr_iter(b'\n', bytes.get(start..end).unwrap_or_default()).count();
        if (lines >= FAR || end - start >= WIDE && lines == 0 || end - start >= 4 * WIDE)
            && end < bytes.len()
            && start > 0
        {
            let strength = if channel == Channel::Result { 0.4 } else { 1.0 };
            let stop = (end..=(end + 200).min(text.len()))
                .rev()
                .find(|e| text.is_char_boundary(*e))
                .unwrap_or(end);
            regions.push(Region {
                signal: Signal::PushedAway,
                strength,
                span: end..stop,
                needs_inside: false,
            });
            if regions.len() >= MOST_REGIONS {
                return;
            }
        }
        at = end + 32;
    }
}
