//! Links that would carry data away: an address with a hole to be filled with what the model knows.

use crate::integrity::lexicon::{CONVO, LEXICON, SECRET, USER, WordHash};

use super::Signal;
use super::block::Region;
use crate::integrity::sentence::Channel;

const LONGEST_LINK: usize = 300;
const MOST_LINKS: usize = 256;

/// Links whose query, host or path holds a placeholder for private data, at most a fixed number.
pub(super) fn links(text: &str, channel: Channel, regions: &mut Vec<Region>) {
    for (number, found) in memchr::memmem::find_iter(text.as_bytes(), b"://").enumerate() {
        if number >= MOST_LINKS {
            return;
        }
        let start = found + 3;
        let end = (start + LONGEST_LINK).min(text.len());
        let end = (start..=end)
            .rev()
            .find(|e| text.is_char_boundary(*e))
            .unwrap_or(start);
        let rest = text.get(start..end).unwrap_or_default();
        let Some((hole, closed)) = hole(rest) else {
            continue;
        };
        let private = named(hole);
        let strength = match (closed, private) {
            (_, true) => 1.0,
            (true, false) => 0.0,
            (false, false) => continue,
        };
        if strength <= 0.0 {
            continue;
        }
        // Honest documentation shows `?key={api_key}` to programmers; there the reader is not the model.
        let strength = if channel == Channel::Result {
            strength * 0.75
        } else {
            strength
        };
        regions.push(Region {
            signal: Signal::Beacon,
            strength,
            span: found.saturating_sub(5)..start + (hole.as_ptr().addr() - rest.as_ptr().addr()) + hole.len(),
            needs_inside: false,
        });
    }
}

/// What stands in the hole of a link, and whether brackets close it.
fn hole(link: &str) -> Option<(&str, bool)> {
    // A link ends at a gap, unless the gap is inside brackets.
    let mut at = 0;
    for (i, c) in link.char_indices() {
        at = i;
        if c.is_whitespace() || matches!(c, ')' | '"' | '\'' | '`') {
            break;
        }
        let close = match c {
            '{' => '}',
            '<' => '>',
            '[' => ']',
            '(' if link.get(..i).is_some_and(|l| l.ends_with('$')) => ')',
            _ => continue,
        };
        let body = link.get(i + 1..).unwrap_or_default();
        let length = body.find(close).filter(|n| *n > 0 && *n <= 80)?;
        return body.get(..length).map(|b| (b, true));
    }
    // `?d=CONVERSATION`
    let link = link.get(..at).unwrap_or_default();
    let (_, query) = link.split_once('?')?;
    query.split('&').find_map(|pair| {
        let (_, value) = pair.split_once('=')?;
        let shouted = value.len() >= 4
            && value
                .bytes()
                .all(|b| b.is_ascii_uppercase() || matches!(b, b'_' | b'-'));
        shouted.then_some((value, false))
    })
}

/// Whether the name of a placeholder says that private data go there.
fn named(hole: &str) -> bool {
    let mut before = WordHash::START;
    let mut union = 0;
    for word in hole
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|w| !w.is_empty())
    {
        let hash = WordHash::lower(word);
        union |= LEXICON.word(hash) | LEXICON.pair(before, hash);
        if [
            "hostname", "whoami", "history", "context", "prompt", "messages", "summary", "data",
        ]
        .iter()
        .any(|w| word.eq_ignore_ascii_case(w))
        {
            union |= CONVO;
        }
        before = hash;
    }
    let secret = union & (CONVO | SECRET) != 0;
    let person = union & USER != 0 && hole.len() > 7;
    secret || person
}
