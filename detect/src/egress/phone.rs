//! Telephone numbers: international form with a known country code, and the North American one.

use std::ops::Range;

use super::class::Class;
use super::span::Hit;

/// Longest printed form that is looked at.
const MAX_SPAN: usize = 26;

/// Digits of a candidate and where it stands.
struct Digits {
    value: Vec<u8>,
    groups: Vec<usize>,
    end: usize,
}

/// A number that begins at `at` (`+`, `(` or a digit). `named`: the field's name says that it is one, so national
/// forms count.
pub(crate) fn phone(text: &[u8], at: usize, named: bool) -> Option<Hit> {
    if !opens(text, at) {
        return None;
    }
    let span = match text.get(at)? {
        b'+' => international(text, at, 1),
        b'0' if text.get(at + 1) == Some(&b'0') => international(text, at, 2).filter(|s| grouped(text, s)),
        _ => None,
    }
    .or_else(|| american(text, at))
    .or_else(|| if named { national(text, at) } else { None })?;
    Some(Hit::new(Class::Phone, span))
}

/// What stands before must not make it a part of something longer.
fn opens(text: &[u8], at: usize) -> bool {
    let before = |n: usize| at.checked_sub(n).and_then(|i| text.get(i)).copied();
    match before(1) {
        None => true,
        Some(b'.' | b'-' | b'/' | b'_' | b'+' | b'#' | b'@' | b'$' | b'%' | b'\\') => false,
        Some(b' ') => !before(2).is_some_and(|b| b.is_ascii_digit()),
        Some(b) => !(b.is_ascii_alphanumeric() || b >= 0x80) || escaped_letter(text, at),
    }
}

fn escaped_letter(text: &[u8], at: usize) -> bool {
    at >= 2 && matches!(text.get(at - 1), Some(b'n' | b'r' | b't')) && text.get(at - 2) == Some(&b'\\')
}

/// What stands behind must not either.
fn closes(text: &[u8], end: usize) -> bool {
    match text.get(end) {
        None => true,
        Some(b'.' | b'-' | b',' | b':' | b'/') => !text.get(end + 1).is_some_and(u8::is_ascii_alphanumeric),
        Some(b' ') => !text.get(end + 1).is_some_and(u8::is_ascii_digit),
        Some(b) => !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'@' | b'%' | b'=' | b'+')),
    }
}

/// Reads digits and single separators from `start`.
fn read(text: &[u8], start: usize) -> Digits {
    let mut digits = Digits {
        value: Vec::new(),
        groups: Vec::new(),
        end: start,
    };
    let mut group = 0;
    let mut at = start;
    let mut gap = 0;
    while at < text.len().min(start + MAX_SPAN) {
        match text.get(at) {
            Some(&byte @ b'0'..=b'9') => {
                digits.value.push(byte);
                group += 1;
                gap = 0;
                digits.end = at + 1;
            }
            Some(b' ' | b'-' | b'.' | b'/' | b'(' | b')') if gap < 2 => {
                if group > 0 {
                    digits.groups.push(group);
                    group = 0;
                }
                gap += 1;
            }
            _ => break,
        }
        at += 1;
    }
    if group > 0 {
        digits.groups.push(group);
    }
    digits
}

fn grouped(text: &[u8], span: &Range<usize>) -> bool {
    text.get(span.clone())
        .unwrap_or_default()
        .iter()
        .any(|b| matches!(b, b' ' | b'-' | b'.' | b'('))
}

/// `+` or `00` (of length `prefix`), a country code and 8 to 15 digits in all.
fn international(text: &[u8], at: usize, prefix: usize) -> Option<Range<usize>> {
    if !text.get(at + prefix).is_some_and(|b| (b'1'..=b'9').contains(b)) {
        return None;
    }
    let digits = read(text, at + prefix);
    let value = strip_trunk(&digits, text.get(at..digits.end).unwrap_or_default());
    let enough = if digits.groups.len() > 1 { 8 } else { 9 };
    let date = matches!(digits.groups.as_slice(), [_, 2, 2])
        && text.get(digits.end.saturating_sub(3)) == Some(&b'-');
    let ok = (enough..=15).contains(&value.len())
        && !date
        && digits.groups.last().is_some_and(|len| *len > 1)
        && country(&value)
        && (value.first() != Some(&b'1') || north_american(value.get(1..)?))
        && closes(text, digits.end)
        && digits.groups.len() <= 8;
    ok.then_some(at..digits.end)
}

/// Drops the `(0)` that some write between country code and number.
fn strip_trunk(digits: &Digits, printed: &[u8]) -> Vec<u8> {
    let mut value = digits.value.clone();
    if printed.windows(3).any(|w| w == b"(0)") {
        let first = digits.groups.first().copied().unwrap_or(0);
        if value.get(first) == Some(&b'0') {
            value.remove(first);
        }
    }
    value
}

/// Country calling codes in use (ITU-T E.164).
fn country(value: &[u8]) -> bool {
    let digit = |i: usize| value.get(i).copied().unwrap_or(b'0') - b'0';
    let second = digit(1);
    match digit(0) {
        // Every second digit leads to a country.
        1 | 3..=7 | 9 => true,
        2 => second != 8,
        8 => !matches!(second, 3 | 9),
        _ => false,
    }
}

/// NXX-NXX-XXXX, where N is 2 to 9.
fn north_american(value: &[u8]) -> bool {
    let lead = |i: usize| value.get(i).is_some_and(|b| (b'2'..=b'9').contains(b));
    value.len() == 10
        && lead(0)
        && lead(3)
        && value.get(1..3) != Some(b"11")
        && value.get(4..6) != Some(b"11")
}

/// `(617) 555-0101`, `617-555-0101`, `617.555.0101`, `617 555 0101`, with or without a leading 1.
fn american(text: &[u8], at: usize) -> Option<Range<usize>> {
    let digits = read(text, at);
    let mut value = digits.value.as_slice();
    let mut groups = digits.groups.as_slice();
    if let ([b'1', rest @ ..], [1, other @ ..]) = (value, groups) {
        (value, groups) = (rest, other);
    }
    let parenthesis = text.get(at) == Some(&b'(');
    if parenthesis && text.get(at + 4) != Some(&b')') {
        return None;
    }
    let ok = north_american(value)
        && (groups == [3, 3, 4] || (parenthesis && groups == [3, 7]))
        && closes(text, digits.end);
    ok.then_some(at..digits.end)
}

/// Any 7 to 13 digits, where the field's name says that they are a number to call.
fn national(text: &[u8], at: usize) -> Option<Range<usize>> {
    let digits = read(text, at);
    ((7..=13).contains(&digits.value.len()) && closes(text, digits.end)).then_some(at..digits.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, named: bool) -> Option<&str> {
        phone(text.as_bytes(), 0, named).and_then(|h| text.get(h.span))
    }

    #[test]
    fn numbers_to_call() {
        for text in [
            "(617) 555-0101",
            "+12025550119",
            "+44 20 7946 0356",
            "202.555.0162",
            "+33 1 99 00 18 68",
            "+49 30 23125 637",
            "+1 (415) 555-0128",
            "1-800-555-0199",
            "+44 (0)20 7946 0356",
            "0044 20 7946 0356",
        ] {
            assert_eq!(found(text, false), Some(text));
        }
        assert_eq!(found("030 23125 637", true), Some("030 23125 637"));
    }

    #[test]
    fn other_digits() {
        for text in [
            "123-456-7890",
            "800-555-0199-REV2",
            "2.555.0123",
            "192.0.2.146",
            "100 200 3000 400",
            "+01:00",
            "2026-02-11",
            "+1234567890123",
            "2025550119",
            "+99999",
        ] {
            assert_eq!(found(text, false), None, "{text}");
        }
    }
}
