//! Payment card numbers: an issuer's prefix and length, and the Luhn checksum.
//!
//! One in ten digit runs passes Luhn alone (9.9 % of millisecond time stamps do), so the prefix must be known,
//! the length right, the grouping one that cards are printed in, and no longer run of digits around it.

use super::class::Class;
use super::span::Hit;

/// Longest printed form: 19 digits and four separators.
const MAX_SPAN: usize = 24;

/// A card number that begins at `at`, a digit with no word character before it. Returns the hit and where to go on.
pub(crate) fn card(text: &[u8], at: usize) -> (Option<Hit>, usize) {
    let bare = text
        .get(at..)
        .unwrap_or_default()
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .count();
    if bare >= 12 {
        let end = at + bare;
        let span = at..end;
        let ok = bare <= 19 && closes(text, end) && is_card(text.get(span.clone()).unwrap_or_default());
        return (ok.then(|| Hit::new(Class::CardNumber, span)), end);
    }
    let go_on = at + bare.max(1);
    if bare != 4 {
        return (None, go_on);
    }
    let Some(&separator @ (b' ' | b'-' | b'.')) = text.get(at + 4) else {
        return (None, go_on);
    };
    // Groups: digits and where each ends.
    let mut digits: Vec<u8> = text.get(at..at + 4).unwrap_or_default().to_vec();
    let mut ends = vec![(at + 4, 4)];
    let mut next = at + 4;
    while text.get(next) == Some(&separator) && next - at < MAX_SPAN {
        let group = text
            .get(next + 1..)
            .unwrap_or_default()
            .iter()
            .take(8)
            .take_while(|b| b.is_ascii_digit())
            .count();
        if group == 0 || group > 7 {
            break;
        }
        digits.extend_from_slice(text.get(next + 1..next + 1 + group).unwrap_or_default());
        next += 1 + group;
        ends.push((next, group));
    }
    for count in (3..=ends.len()).rev() {
        let groups: Vec<usize> = ends.iter().take(count).map(|(_, len)| *len).collect();
        let printed = matches!(
            groups.as_slice(),
            [4, 4, 4, 1..=4] | [4, 4, 4, 4, 1..=3] | [4, 6, 4 | 5] | [4, 4, 5] | [4, 5, 6]
        );
        let Some(&(end, _)) = ends.get(count - 1) else {
            continue;
        };
        let total: usize = groups.iter().sum();
        if printed && closes(text, end) && is_card(digits.get(..total).unwrap_or_default()) {
            return (Some(Hit::new(Class::CardNumber, at..end)), end);
        }
    }
    (None, go_on)
}

/// No digit, letter or decimal part may follow.
fn closes(text: &[u8], end: usize) -> bool {
    match text.get(end) {
        None => true,
        Some(b'.' | b'-' | b',') => !text.get(end + 1).is_some_and(u8::is_ascii_digit),
        Some(b) => !b.is_ascii_alphanumeric() && *b != b'_',
    }
}

/// Known issuer, its length, and the checksum; `digits` are ASCII digits.
pub(crate) fn is_card(digits: &[u8]) -> bool {
    (13..=19).contains(&digits.len()) && issued(digits) && luhn(digits) && super::words::distinct(digits) > 1
}

/// Whether an issuer uses this prefix with this length.
fn issued(digits: &[u8]) -> bool {
    let prefix = |n: usize| {
        digits
            .iter()
            .take(n)
            .fold(0_u32, |v, b| v * 10 + u32::from(b.saturating_sub(b'0')))
    };
    let (two, three, four, six) = (prefix(2), prefix(3), prefix(4), prefix(6));
    let len = digits.len();
    match two {
        40..=49 => matches!(len, 13 | 16 | 19),
        51..=55 => len == 16,
        22..=27 => len == 16 && ((2221..=2720).contains(&four) || (2200..=2204).contains(&four)),
        34 | 37 => len == 15,
        35 => (3528..=3589).contains(&four) && len == 16,
        30 => ((300..=305).contains(&three) || three == 309) && (14..=19).contains(&len),
        36 | 38 | 39 => (14..=19).contains(&len),
        60 | 65 => (four == 6011 || two == 65 || (603_000..=609_999).contains(&six)) && len == 16,
        64 => (644..=649).contains(&three) && len == 16,
        62 | 81 | 82 => (16..=19).contains(&len),
        50 | 56..=58 | 67 => (13..=19).contains(&len),
        61 | 63 | 66 | 68 | 69 => matches!(four, 6304 | 6362 | 6363 | 6390) && (16..=19).contains(&len),
        97 => four == 9792 && len == 16,
        _ => false,
    }
}

fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, byte)| {
            let digit = u32::from(byte.saturating_sub(b'0'));
            match (place % 2, digit * 2) {
                (0, _) => digit,
                (_, double @ 10..) => double - 9,
                (_, double) => double,
            }
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<&str> {
        let (hit, _) = card(text.as_bytes(), 0);
        hit.and_then(|h| text.get(h.span))
    }

    #[test]
    fn printed_forms_of_cards() {
        for text in [
            "4111111111111111",
            "3782 822463 10005",
            "5555-5555-5555-4444",
            "6011000990139424",
            "4222222222222",
        ] {
            assert_eq!(found(text), Some(text));
        }
        assert_eq!(found("4242 4242 4242 4242 123"), Some("4242 4242 4242 4242"));
    }

    #[test]
    fn other_digits_are_no_cards() {
        for text in [
            "1748503600006",
            "350376888670213",
            "0000000000000000",
            "4111111111111112",
            "41111111111111111111111",
            "4111111111111111.5",
            "9746088226898554",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
