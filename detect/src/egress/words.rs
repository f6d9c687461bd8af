//! Splitting identifiers into words, and telling words from random characters.

use std::ops::Range;

/// Most words of one identifier that are looked at.
const MAX_WORDS: usize = 16;

/// The words of an identifier, split at case and separators: `nextPageToken`, `API-KEY`, `PGPassword`.
pub(crate) struct Words<'a> {
    text: &'a [u8],
    spans: [(usize, usize); MAX_WORDS],
    len: usize,
}

impl<'a> Words<'a> {
    /// Splits `text`; what follows the sixteenth word is left out, keeping the last one.
    pub(crate) fn of(text: &'a [u8]) -> Self {
        let mut words = Self {
            text,
            spans: [(0, 0); MAX_WORDS],
            len: 0,
        };
        let mut start = 0;
        for (at, &byte) in text.iter().enumerate() {
            let before = at
                .checked_sub(1)
                .and_then(|i| text.get(i))
                .copied()
                .unwrap_or(b'_');
            if !byte.is_ascii_alphanumeric() {
                words.push(start..at);
                start = at + 1;
            } else if byte.is_ascii_uppercase() {
                let next_lower = text.get(at + 1).is_some_and(u8::is_ascii_lowercase);
                if before.is_ascii_lowercase()
                    || before.is_ascii_digit()
                    || (before.is_ascii_uppercase() && next_lower)
                {
                    words.push(start..at);
                    start = at;
                }
            }
        }
        words.push(start..text.len());
        words
    }

    fn push(&mut self, span: Range<usize>) {
        if span.is_empty() {
            return;
        }
        let slot = self.len.min(MAX_WORDS - 1);
        if let Some(place) = self.spans.get_mut(slot) {
            *place = (span.start, span.end);
            self.len = slot + 1;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Word number `index`.
    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        if index >= self.len {
            return None;
        }
        let &(start, end) = self.spans.get(index)?;
        self.text.get(start..end)
    }

    /// The last word.
    pub(crate) fn last(&self) -> Option<&'a [u8]> {
        self.get(self.len.checked_sub(1)?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        (0..self.len).filter_map(|i| self.get(i))
    }
}

/// Whether `word` is one of `list` (lower case), whatever its case.
pub(crate) fn one_of(word: &[u8], list: &[&str]) -> bool {
    list.iter().any(|w| word.eq_ignore_ascii_case(w.as_bytes()))
}

/// Whether `text` ends with `suffix` (lower case), whatever its case.
pub(crate) fn ends_with(text: &[u8], suffix: &str) -> bool {
    text.len() >= suffix.len()
        && text
            .get(text.len() - suffix.len()..)
            .is_some_and(|tail| tail.eq_ignore_ascii_case(suffix.as_bytes()))
}

/// Position of `needle` (lower case) in `text`, whatever its case. For short texts only.
pub(crate) fn contains(text: &[u8], needle: &str) -> bool {
    text.windows(needle.len())
        .any(|w| w.eq_ignore_ascii_case(needle.as_bytes()))
}

/// Mean length of the runs that a reader sees as one word: a new run begins at a symbol, at a change between
/// letters and digits, and at lower case before upper case. Prose, slugs and camelCase reach 4 and more, random
/// characters stay near 2. Looks at 256 bytes at most.
pub(crate) fn run_length(text: &[u8]) -> f64 {
    let text = text.get(..text.len().min(256)).unwrap_or(text);
    let mut runs = 0_u32;
    let mut letters = 0_u32;
    let mut before = 0;
    for &byte in text {
        let kind = match byte {
            b'a'..=b'z' | 0x80.. => 1,
            b'A'..=b'Z' => 2,
            b'0'..=b'9' => 3,
            _ => 0,
        };
        if kind != 0 {
            letters += 1;
            let joined = kind == before || (before == 2 && kind == 1);
            if !joined {
                runs += 1;
            }
        }
        before = kind;
    }
    if runs == 0 {
        0.0
    } else {
        f64::from(letters) / f64::from(runs)
    }
}

/// Number of different bytes in `text`.
pub(crate) fn distinct(text: &[u8]) -> usize {
    let mut seen = [false; 256];
    for &byte in text {
        if let Some(slot) = seen.get_mut(usize::from(byte)) {
            *slot = true;
        }
    }
    seen.iter().filter(|s| **s).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        Words::of(text.as_bytes())
            .iter()
            .map(|w| String::from_utf8_lossy(w).to_lowercase())
            .collect()
    }

    #[test]
    fn identifiers_split_at_case_and_separators() {
        assert_eq!(words("nextPageToken"), ["next", "page", "token"]);
        assert_eq!(words("X-API-Key"), ["x", "api", "key"]);
        assert_eq!(words("HTTPServerURL2"), ["http", "server", "url2"]);
        assert_eq!(words("db.password"), ["db", "password"]);
        assert_eq!(words(""), Vec::<String>::new());
        assert_eq!(words(&"a_".repeat(40)).len(), 16);
    }

    #[test]
    fn runs_tell_words_from_noise() {
        assert!(run_length(b"callFunctionCheckIfDataAlreadyExists") > 3.5);
        assert!(run_length(b"authentication-is-mandatory-here") > 5.0);
        assert!(run_length(b"rAiBDCLmPg0ZKzr1raFTSb4zzfGhfaJD") < 3.0);
    }
}
