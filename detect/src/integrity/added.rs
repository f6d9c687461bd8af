//! What a change adds to a text.
//!
//! A word is old when it stands in three words in a row that the text before had too, wherever they stood: so
//! moved sentences are not new, one changed word is one new word, and the cost is linear.

use std::collections::HashSet;
use std::ops::Range;

use super::lexicon::WordHash;

const RUN: usize = 3;
// Old words between two new ones, at most this many, are taken along: the added sentence stays readable.
const BRIDGE: usize = 2;

/// The stretches of `after` that are new, in order, and the share of new words (0..1).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Added {
    pub(super) spans: Vec<Range<usize>>,
    pub(super) share: f64,
}

impl Added {
    /// The new text, one stretch a line.
    pub(super) fn text(&self, after: &str) -> String {
        let mut text = String::new();
        for span in &self.spans {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(after.get(span.clone()).unwrap_or_default());
        }
        text
    }
}

/// Compares two texts. Linear in both.
pub(super) fn added(before: &str, after: &str) -> Added {
    if before == after {
        return Added::default();
    }
    let old = words(before);
    let new = words(after);
    if new.is_empty() {
        return Added::default();
    }
    // The ends count as words, so that a word at an end still stands in a run of three.
    let grams = |words: &[(WordHash, Range<usize>)]| -> Vec<u64> {
        let edge = WordHash::of("\u{0}");
        let edges = [edge; RUN - 1];
        let padded: Vec<WordHash> = edges
            .into_iter()
            .chain(words.iter().map(|w| w.0))
            .chain(edges)
            .collect();
        padded
            .windows(RUN)
            .map(|w| w.iter().fold(WordHash::START, |h, x| h.pair(*x)).value())
            .collect()
    };
    let known: HashSet<u64> = grams(&old).into_iter().collect();
    let mut fresh = vec![true; new.len() + 2 * (RUN - 1)];
    for (i, gram) in grams(&new).into_iter().enumerate() {
        if known.contains(&gram) {
            for slot in fresh.iter_mut().skip(i).take(RUN) {
                *slot = false;
            }
        }
    }
    let fresh: Vec<bool> = fresh.into_iter().skip(RUN - 1).take(new.len()).collect();
    let count = fresh.iter().filter(|f| **f).count();
    let mut spans: Vec<Range<usize>> = Vec::new();
    let mut last = None;
    for (i, (_, span)) in new.iter().enumerate() {
        if fresh.get(i) != Some(&true) {
            continue;
        }
        match (spans.last_mut(), last) {
            (Some(open), Some(at)) if i - at <= BRIDGE + 1 => open.end = span.end,
            _ => spans.push(span.clone()),
        }
        last = Some(i);
    }
    // Marks around the words (a tag's bracket, an escape sequence) belong to the stretch.
    let mut floor = 0;
    let ends: Vec<usize> = spans
        .iter()
        .skip(1)
        .map(|s| s.start)
        .chain([after.len()])
        .collect();
    for (span, ceiling) in spans.iter_mut().zip(ends) {
        let lead = after.get(floor..span.start).unwrap_or_default();
        let marks = lead.len() - lead.trim_end_matches(|c: char| !c.is_alphanumeric()).len();
        // A blank stretch long enough to push text out of sight is part of what was added.
        let glued = lead.len()
            - lead
                .trim_end_matches(|c: char| !c.is_alphanumeric() && !c.is_whitespace())
                .len();
        span.start -= if marks > 60 { marks } else { glued };
        let tail = after.get(span.end..ceiling).unwrap_or_default();
        span.end += tail.len() - tail.trim_start_matches(|c: char| !c.is_alphanumeric()).len();
        floor = span.end;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share; word counts are far below 2^52"
    )]
    let share = count as f64 / new.len() as f64;
    Added { spans, share }
}

/// Runs of letters and digits; scripts without spaces give one word a character.
fn words(text: &str) -> Vec<(WordHash, Range<usize>)> {
    let mut found = Vec::new();
    let mut open: Option<(WordHash, usize)> = None;
    for (at, c) in text.char_indices() {
        let single = matches!(c, '\u{3041}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}');
        // Invisible characters are words too: adding them is a change.
        if c.is_alphanumeric() && !single || crate::text::invisible(c).is_some() {
            let mut bytes = [0; 4];
            let (hash, _) = *open.get_or_insert((WordHash::START, at));
            let start = open.map_or(at, |o| o.1);
            open = Some((
                c.encode_utf8(&mut bytes).bytes().fold(hash, WordHash::push),
                start,
            ));
            continue;
        }
        if let Some((hash, start)) = open.take() {
            found.push((hash, start..at));
        }
        if single {
            let mut bytes = [0; 4];
            found.push((WordHash::of(c.encode_utf8(&mut bytes)), at..at + c.len_utf8()));
        }
    }
    if let Some((hash, start)) = open {
        found.push((hash, start..text.len()));
    }
    found
}

/// At most `max` characters of `text` around `focus` (a byte offset), cut on character boundaries, with an
/// ellipsis where something was cut.
pub(super) fn excerpt(text: &str, focus: usize, max: usize) -> String {
    if text.chars().nth(max).is_none() {
        return text.to_owned();
    }
    // A fifth of the room goes to what leads up to the change.
    let lead = max / 5;
    let focus = (0..=focus.min(text.len()))
        .rev()
        .find(|i| text.is_char_boundary(*i))
        .unwrap_or(0);
    let head = text.get(..focus).unwrap_or_default();
    let mut start = head
        .char_indices()
        .rev()
        .take(lead)
        .last()
        .map_or(focus, |(i, _)| i);
    // Near the end the room goes to the front.
    let tail = text.get(start..).unwrap_or_default().chars().count();
    if tail < max - 2 {
        start = text.char_indices().rev().nth(max - 3).map_or(0, |(i, _)| i);
    }
    let body: String = text
        .get(start..)
        .unwrap_or_default()
        .chars()
        .take(max - 2)
        .collect();
    let cut_front = if start > 0 { "…" } else { "" };
    let cut_back = if start + body.len() < text.len() {
        "…"
    } else {
        ""
    };
    format!("{cut_front}{body}{cut_back}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn new_text(before: &str, after: &str) -> String {
        added(before, after).text(after)
    }

    #[test]
    fn only_new_words_are_added() {
        let before = "Reads a file from disk. Returns its text.";
        assert_eq!(
            new_text(
                before,
                "Reads a file from disk. Returns its text. Now sends it too."
            ),
            "Now sends it too."
        );
        assert_eq!(
            new_text(before, "Reads one file from disk. Returns its text.").trim(),
            "one"
        );
        // Order alone is no addition.
        assert_eq!(
            new_text(
                "one two three. four five six seven",
                "four five six seven. one two three"
            )
            .trim(),
            ""
        );
        assert_eq!(new_text("", "all of it"), "all of it");
        assert_eq!(new_text("gone now", ""), "");
    }

    #[test]
    fn markup_stays_with_the_words() {
        let after = "List users.\n<IMPORTANT>Read the notes</IMPORTANT>\nDone here now.";
        assert_eq!(
            new_text("List users.\nDone here now.", after).trim(),
            "<IMPORTANT>Read the notes</IMPORTANT>"
        );
    }

    #[test]
    fn excerpts_show_the_change() {
        let long = "x ".repeat(400) + "HERE é漢" + &" y".repeat(400);
        let focus = long.find("HERE").unwrap();
        let cut = excerpt(&long, focus, 300);
        assert!(cut.contains("HERE é漢") && cut.starts_with('…') && cut.ends_with('…'));
        assert_eq!(cut.chars().count(), 300);
        assert_eq!(excerpt("short", 2, 300), "short");
    }

    proptest! {
        #[test]
        fn excerpts_are_bounded_and_spans_valid(before in "\\PC{0,80}", after in "\\PC{0,400}", focus in 0_usize..500) {
            prop_assert!(excerpt(&after, focus, 300).chars().count() <= 300);
            for span in added(&before, &after).spans {
                prop_assert!(after.get(span).is_some());
            }
        }
    }
}
