//! Undoing character-level evasion once: percent encoding, `\u` and `\x` escapes, HTML character references,
//! zero-width characters, full-width and look-alike letters, adjacent string literals.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization as _;

use super::span::Step;
use super::unescape::hex4;

/// What a piece of source became: nothing, itself, or up to eight bytes.
struct Piece {
    source: Range<usize>,
    text: Option<([u8; 8], usize)>,
}

/// Decoder over text that already left its JSON escapes.
pub(crate) struct Plain<'a> {
    source: &'a [u8],
    at: usize,
}

/// The text without its evasions; none where it has none.
pub(crate) fn plain(source: &[u8]) -> Option<Vec<u8>> {
    if !source.iter().any(|&b| special(b)) {
        return None;
    }
    let mut text = Vec::with_capacity(source.len());
    let mut changed = false;
    let mut pieces = Plain::new(source);
    while let Some(piece) = pieces.next_piece() {
        match piece.text {
            Some((bytes, len)) => {
                changed = true;
                text.extend_from_slice(bytes.get(..len).unwrap_or_default());
            }
            None => text.extend_from_slice(source.get(piece.source).unwrap_or_default()),
        }
    }
    changed.then_some(text)
}

/// Bytes at which something other than itself may begin.
const fn special(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&' | b'"' | b'\'') || byte >= 0x80
}

impl<'a> Plain<'a> {
    pub(crate) fn new(source: &'a [u8]) -> Self {
        Self { source, at: 0 }
    }

    fn next_piece(&mut self) -> Option<Piece> {
        let start = self.at;
        self.source.get(start)?;
        // A verbatim run ends where a decoded piece begins.
        loop {
            let rest = self.source.get(self.at..).unwrap_or_default();
            let Some(skip) = rest.iter().position(|&b| special(b)) else {
                self.at = self.source.len();
                break;
            };
            self.at += skip;
            let (len, text) = self.decode(self.at);
            if let Some(text) = text {
                if self.at > start {
                    break;
                }
                self.at += len;
                return Some(Piece {
                    source: start..self.at,
                    text: Some(text),
                });
            }
            self.at += len;
        }
        Some(Piece {
            source: start..self.at,
            text: None,
        })
    }

    /// What stands at `at`, a special byte: its length and what it decodes to, none for itself.
    fn decode(&self, at: usize) -> (usize, Option<([u8; 8], usize)>) {
        let rest = self.source.get(at..).unwrap_or_default();
        match rest.first() {
            Some(b'%') => match rest.get(1..3).and_then(hex2) {
                Some(byte) if byte >= b' ' || byte == b'\n' || byte == b'\r' => (3, Some(bytes(&[byte]))),
                _ => (1, None),
            },
            Some(b'\\') => match rest.get(1) {
                Some(b'u') => match hex4(rest, 2).and_then(char::from_u32) {
                    Some(c) => (6, Some(fold(c).unwrap_or_else(|| utf8(c)))),
                    None => (1, None),
                },
                Some(b'x') => match rest.get(2..4).and_then(hex2) {
                    Some(byte) if byte >= b' ' => (4, Some(bytes(&[byte]))),
                    _ => (1, None),
                },
                Some(b'n' | b'r') => (2, Some(bytes(b"\n"))),
                Some(&byte @ (b'"' | b'\'' | b'/' | b'\\')) => (2, Some(bytes(&[byte]))),
                _ => (1, None),
            },
            Some(b'&') => entity(rest),
            Some(b'"' | b'\'') => (joint(rest).unwrap_or(1), joint(rest).map(|_| ([0; 8], 0))),
            Some(_) => {
                let width = rest.first().map_or(1, |&b| match b {
                    0xF0.. => 4,
                    0xE0.. => 3,
                    0xC0.. => 2,
                    _ => 1,
                });
                let Some(c) = rest
                    .get(..width)
                    .and_then(|b| std::str::from_utf8(b).ok())
                    .and_then(|s| s.chars().next())
                else {
                    return (1, None);
                };
                (width, fold(c))
            }
            None => (1, None),
        }
    }
}

impl Iterator for Plain<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let piece = self.next_piece()?;
        Some(Step {
            written: piece.text.map_or(piece.source.len(), |(_, len)| len),
            verbatim: piece.text.is_none(),
            source: piece.source,
        })
    }
}

fn bytes(text: &[u8]) -> ([u8; 8], usize) {
    let mut buffer = [0; 8];
    let len = text.len().min(8);
    for (to, from) in buffer.iter_mut().zip(text) {
        *to = *from;
    }
    (buffer, len)
}

fn utf8(c: char) -> ([u8; 8], usize) {
    bytes(c.encode_utf8(&mut [0; 4]).as_bytes())
}

fn hex2(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0_u8, |value, &byte| {
        let digit = u8::try_from(char::from(byte).to_digit(16)?).ok()?;
        value.checked_mul(16)?.checked_add(digit)
    })
}

/// `&#65;`, `&#x41;` and the few named references that hide syntax.
fn entity(rest: &[u8]) -> (usize, Option<([u8; 8], usize)>) {
    let window = rest.get(..rest.len().min(12)).unwrap_or_default();
    let Some(end) = window.iter().position(|&b| b == b';') else {
        return (1, None);
    };
    let name = window.get(1..end).unwrap_or_default();
    let decoded = match name {
        b"amp" => Some('&'),
        b"quot" => Some('"'),
        b"apos" => Some('\''),
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"colon" => Some(':'),
        b"commat" => Some('@'),
        b"equals" => Some('='),
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16),
        [b'#', digits @ ..] => number(digits, 10),
        _ => None,
    };
    match decoded {
        Some(c) => (end + 1, Some(fold(c).unwrap_or_else(|| utf8(c)))),
        None => (1, None),
    }
}

fn number(digits: &[u8], radix: u32) -> Option<char> {
    let text = std::str::from_utf8(digits).ok()?;
    char::from_u32(u32::from_str_radix(text, radix).ok()?)
}

/// Length of a seam between two string literals (`" + "`, `' . '`, `"` newline `"`), which a program would join.
fn joint(rest: &[u8]) -> Option<usize> {
    let quote = *rest.first()?;
    let mut seam = false;
    let mut len = 1;
    for &byte in rest.get(1..rest.len().min(12))? {
        len += 1;
        match byte {
            b' ' | b'\t' => {}
            b'+' | b'.' | b'\n' | b'\r' | b'\\' => seam = true,
            b if b == quote && seam => return Some(len),
            _ => return None,
        }
    }
    None
}

/// What an evasive character stands for: nothing for invisible ones, ASCII for imitations. None for a character
/// that stands for itself.
fn fold(c: char) -> Option<([u8; 8], usize)> {
    let code = u32::from(c);
    match code {
        // Invisible: soft hyphen, joiners, direction marks, fillers, variation selectors.
        0xAD
        | 0x034F
        | 0x061C
        | 0x115F
        | 0x1160
        | 0x17B4
        | 0x17B5
        | 0x180B..=0x180E
        | 0x200B..=0x200F
        | 0x202A..=0x202E
        | 0x2060..=0x206F
        | 0x3164
        | 0xFE00..=0xFE0F
        | 0xFEFF
        | 0xFFA0
        | 0xE0100..=0xE01EF
        | 0xE0001
        | 0xE007F => Some(([0; 8], 0)),
        // Tag characters carry ASCII.
        0xE0020..=0xE007E => char::from_u32(code - 0xE0000).map(utf8),
        0xA0 | 0x2000..=0x200A | 0x202F | 0x205F | 0x3000 => Some(bytes(b" ")),
        0x2028 | 0x2029 | 0x85 => Some(bytes(b"\n")),
        0x2010..=0x2015 | 0x2212 | 0xFE58 | 0xFE63 => Some(bytes(b"-")),
        0x201C..=0x201F | 0xAB | 0xBB => Some(bytes(b"\"")),
        0x2018..=0x201B => Some(bytes(b"'")),
        // Full-width, mathematical, circled, raised and lowered forms have an ASCII compatibility form.
        0xFF01..=0xFF5E
        | 0x1D400..=0x1D7FF
        | 0x2460..=0x24FF
        | 0x2070..=0x209C
        | 0x1F110..=0x1F16A
        | 0xB2
        | 0xB3
        | 0xB9
        | 0x2100..=0x214F
        | 0x1FBF0..=0x1FBF9 => {
            let mut text = [0; 8];
            let mut len = 0;
            for folded in std::iter::once(c).nfkc() {
                if !folded.is_ascii() {
                    return None;
                }
                *text.get_mut(len)? = u8::try_from(folded).ok()?;
                len += 1;
            }
            Some((text, len))
        }
        // Decimal digits of other scripts.
        0x0660..=0x0669 => Some(digit(code - 0x0660)),
        0x06F0..=0x06F9 => Some(digit(code - 0x06F0)),
        0x0966..=0x096F => Some(digit(code - 0x0966)),
        _ => look_alike(c).map(|ascii| bytes(&[ascii])),
    }
}

fn digit(value: u32) -> ([u8; 8], usize) {
    bytes(&[b'0' + u8::try_from(value).unwrap_or(0)])
}

/// Cyrillic and Greek letters that are drawn like Latin ones.
fn look_alike(c: char) -> Option<u8> {
    Some(match c {
        'А' | 'Α' => b'A',
        'В' | 'Β' => b'B',
        'С' => b'C',
        'Е' | 'Ε' => b'E',
        'Н' | 'Η' => b'H',
        'І' | 'Ι' => b'I',
        'Ј' => b'J',
        'К' | 'Κ' => b'K',
        'М' | 'Μ' => b'M',
        'Ν' => b'N',
        'О' | 'Ο' => b'O',
        'Р' | 'Ρ' => b'P',
        'Ѕ' => b'S',
        'Т' | 'Τ' => b'T',
        'Х' | 'Χ' => b'X',
        'У' | 'Υ' => b'Y',
        'Ζ' => b'Z',
        'а' => b'a',
        'с' => b'c',
        'е' => b'e',
        'һ' => b'h',
        'і' => b'i',
        'ј' => b'j',
        'о' | 'ο' => b'o',
        'р' => b'p',
        'ѕ' => b's',
        'у' => b'y',
        'х' => b'x',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn evasions_are_undone() {
        for (hidden, shown) in [
            ("gh\u{200b}p_\u{2060}a", "ghp_a"),
            ("ＡＫＩＡ１", "AKIA1"),
            ("%41KIA%5f", "AKIA_"),
            (r"\u0041\x4bIA", "AKIA"),
            ("&#65;&#x4b;IA", "AKIA"),
            ("АКIA", "AKIA"),
            ("\"AK\" + \"IA\"", "\"AKIA\""),
            ("𝐀𝐊𝐈𝐀", "AKIA"),
        ] {
            assert_eq!(
                plain(hidden.as_bytes()).as_deref(),
                Some(shown.as_bytes()),
                "{hidden}"
            );
        }
        for same in [
            "plain",
            "100 % of it",
            "漢字 und Grüße",
            "a && b",
            r"C:\temp",
            "say \"yes\"",
        ] {
            assert_eq!(plain(same.as_bytes()), None, "{same}");
        }
    }

    proptest! {
        #[test]
        fn steps_cover_the_source(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut at = 0;
            let mut written = 0;
            for step in Plain::new(&bytes) {
                prop_assert_eq!(step.source.start, at);
                at = step.source.end;
                written += step.written;
            }
            prop_assert_eq!(at, bytes.len());
            if let Some(text) = plain(&bytes) {
                prop_assert_eq!(written, text.len());
            }
        }
    }
}
