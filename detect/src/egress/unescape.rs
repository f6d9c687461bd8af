//! JSON string escapes: decoding, and the way back to source offsets.

use std::ops::Range;

use super::span::Step;

/// Decoder steps over the inside of a JSON string (the bytes between the quotes). Bytes that are no valid
/// escape pass as they are, so any input decodes.
pub(crate) struct Escapes<'a> {
    source: &'a [u8],
    at: usize,
}

/// What one escape stands for.
struct Escape {
    text: [u8; 4],
    len: usize,
}

impl<'a> Escapes<'a> {
    pub(crate) fn new(source: &'a [u8]) -> Self {
        Self { source, at: 0 }
    }

    /// Reads the escape at `at` (a backslash): its source length and what it stands for.
    fn escape(&self, at: usize) -> (usize, Option<Escape>) {
        let simple = |byte| {
            (
                2,
                Some(Escape {
                    text: [byte, 0, 0, 0],
                    len: 1,
                }),
            )
        };
        match self.source.get(at + 1) {
            Some(b'n') => simple(b'\n'),
            Some(b't') => simple(b'\t'),
            Some(b'r') => simple(b'\r'),
            Some(b'b') => simple(8),
            Some(b'f') => simple(12),
            Some(&byte @ (b'"' | b'\\' | b'/')) => simple(byte),
            Some(b'u') => {
                let Some(unit) = hex4(self.source, at + 2) else {
                    return (1, None);
                };
                if (0xD800..0xDC00).contains(&unit)
                    && self.source.get(at + 6..at + 8) == Some(b"\\u")
                    && let Some(low @ 0xDC00..0xE000) = hex4(self.source, at + 8)
                {
                    let code = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                    return (12, Some(utf8(code)));
                }
                (6, Some(utf8(unit)))
            }
            _ => (1, None),
        }
    }

    fn next_piece(&mut self) -> Option<(Range<usize>, Option<Escape>)> {
        let rest = self.source.get(self.at..)?;
        if rest.is_empty() {
            return None;
        }
        let start = self.at;
        match memchr::memchr(b'\\', rest) {
            Some(0) => {
                let (len, escape) = self.escape(start);
                self.at = start + len;
                Some((start..self.at, escape))
            }
            Some(run) => {
                self.at = start + run;
                Some((start..self.at, None))
            }
            None => {
                self.at = self.source.len();
                Some((start..self.at, None))
            }
        }
    }
}

impl Iterator for Escapes<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (source, escape) = self.next_piece()?;
        Some(Step {
            written: escape.as_ref().map_or(source.len(), |e| e.len),
            verbatim: escape.is_none(),
            source,
        })
    }
}

/// The decoded text of a JSON string's inside.
pub(crate) fn unescape(source: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(source.len());
    let mut escapes = Escapes::new(source);
    while let Some((span, escape)) = escapes.next_piece() {
        match escape {
            Some(e) => text.extend_from_slice(e.text.get(..e.len).unwrap_or_default()),
            None => text.extend_from_slice(source.get(span).unwrap_or_default()),
        }
    }
    text
}

/// Four hex digits at `at`.
pub(crate) fn hex4(text: &[u8], at: usize) -> Option<u32> {
    let digits = text.get(at..at + 4)?;
    digits.iter().try_fold(0, |value, &byte| {
        char::from(byte).to_digit(16).map(|digit| value * 16 + digit)
    })
}

/// UTF-8 of a code point; a lone surrogate becomes U+FFFD.
fn utf8(code: u32) -> Escape {
    let mut text = [0; 4];
    let len = char::from_u32(code)
        .unwrap_or(char::REPLACEMENT_CHARACTER)
        .encode_utf8(&mut text)
        .len();
    Escape { text, len }
}

#[cfg(test)]
mod tests {
    use super::super::class::Class;
    use super::super::span::{Hit, to_source};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_decode_as_json_says() {
        let source = br#"a\n\"\u0041\ud83d\ude00\ud800x\q"#;
        assert_eq!(unescape(source), "a\n\"A😀\u{FFFD}x\\q".as_bytes());
    }

    #[test]
    fn a_match_maps_back_over_its_escapes() {
        let source = br"x\u0041\u004bIA y";
        let mut hits = vec![Hit::new(Class::AwsKey, 1..5)];
        to_source(Escapes::new(source), &mut hits);
        assert_eq!(source.get(hits[0].span.clone()), Some(&br"\u0041\u004bIA"[..]));
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(text in "\\PC{0,40}") {
            let quoted = serde_json::to_string(&text).unwrap();
            let inside = &quoted.as_bytes()[1..quoted.len() - 1];
            prop_assert_eq!(unescape(inside), text.as_bytes());
            let written: usize = Escapes::new(inside).map(|s| s.written).sum();
            prop_assert_eq!(written, text.len());
        }

        #[test]
        fn any_bytes_decode(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let written: usize = Escapes::new(&bytes).map(|s| s.written).sum();
            prop_assert_eq!(written, unescape(&bytes).len());
        }
    }
}
