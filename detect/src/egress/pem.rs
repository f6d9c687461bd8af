//! Private keys: PEM in all its damage (one line, escaped line ends, cut before its end), PuTTY and age files,
//! and DER without any armour.

use super::class::Class;
use super::span::Hit;
use super::words::contains;

/// Longest header line that is looked at.
const MAX_HEADER: usize = 80;
/// Longest key between BEGIN and END; a 16,384-bit RSA key takes 12,800 bytes.
const MAX_BODY: usize = 65_536;
/// Key characters behind a header that make it a key and not a mention of one.
const MIN_BODY: usize = 16;

/// A marker found by the prefilter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Marker {
    /// `-----BEGIN` stands here.
    Begin(usize),
    /// `-----END` stands here.
    End(usize),
}

/// Private keys among the markers, which are in order of place. Each byte of the text is read at most twice.
pub(crate) fn keys(text: &[u8], markers: &[Marker], hits: &mut Vec<Hit>) {
    for (index, marker) in markers.iter().enumerate() {
        let Marker::Begin(at) = *marker else { continue };
        let Some(header_end) = header(text, at) else {
            continue;
        };
        let next = markers.get(index + 1);
        let limit = match next {
            Some(Marker::Begin(next) | Marker::End(next)) => *next,
            None => text.len(),
        };
        let body_end = body(text, header_end, limit);
        let key_bytes = text
            .get(header_end..body_end)
            .unwrap_or_default()
            .iter()
            .filter(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
            .count();
        if key_bytes < MIN_BODY {
            continue;
        }
        let end = match next {
            Some(&Marker::End(end)) if end - at <= MAX_BODY => end_line(text, end),
            _ => body_end,
        };
        hits.push(Hit::new(Class::PrivateKey, at..end));
    }
}

/// End of a header line that announces a private key.
fn header(text: &[u8], at: usize) -> Option<usize> {
    let line = text.get(at..text.len().min(at + MAX_HEADER))?;
    let name_start = line.iter().position(|b| *b != b'-' && *b != b' ')?;
    let dashes = line.get(name_start..)?.iter().position(|b| *b == b'-')? + name_start;
    let name = line.get(name_start..dashes)?;
    let printable = name
        .iter()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b' ' | b'_'));
    if !printable || !contains(name, "private key") || contains(name, "public") {
        return None;
    }
    let rest = line
        .get(dashes..)?
        .iter()
        .position(|b| *b != b'-')
        .unwrap_or(line.len() - dashes);
    Some(at + dashes + rest)
}

/// End of the base64 body that begins at `start`, not beyond `limit`. Lines are as long as the first one; the
/// first shorter line is the last.
fn body(text: &[u8], start: usize, limit: usize) -> usize {
    let limit = limit.min(start.saturating_add(MAX_BODY)).min(text.len());
    let mut at = start;
    let mut end = start;
    let mut width = 0;
    while at < limit {
        let separator = skip_separators(text, at, limit);
        let line_end = (separator..limit)
            .find(|&i| {
                !text
                    .get(i)
                    .is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
            })
            .unwrap_or(limit);
        let len = line_end - separator;
        if len == 0 {
            break;
        }
        // `Proc-Type: 4,ENCRYPTED`, `Version: ...`: header lines inside the armour.
        if matches!(text.get(line_end), Some(b':' | b'-')) && width == 0 && len <= 20 && line_end < limit {
            let window = text.get(line_end..limit.min(line_end + 120)).unwrap_or_default();
            let Some(stop) = window.iter().position(|b| matches!(b, b'\n' | b'\\')) else {
                break;
            };
            at = line_end + stop;
            continue;
        }
        let word = text.get(separator..line_end).unwrap_or_default();
        if width > 0 && len < width && !key_like_tail(word) {
            break;
        }
        end = line_end;
        at = line_end;
        if width > 0 && len < width {
            break;
        }
        width = width.max(len);
    }
    end
}

/// White space, escaped line ends, quotes and joints between the lines of a key.
fn skip_separators(text: &[u8], start: usize, limit: usize) -> usize {
    let mut at = start;
    while at < limit {
        match text.get(at) {
            Some(b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b',' | b'>' | b'|' | b'`') => at += 1,
            Some(b'\\') => {
                at += 1;
                while text.get(at) == Some(&b'\\') {
                    at += 1;
                }
                if matches!(text.get(at), Some(b'n' | b'r' | b't')) {
                    at += 1;
                }
            }
            _ => break,
        }
    }
    at.min(limit)
}

/// A short last line of a key rather than the next word of a sentence.
fn key_like_tail(word: &[u8]) -> bool {
    word.contains(&b'=')
        || word.iter().any(u8::is_ascii_digit)
        || word.iter().any(|b| matches!(b, b'+' | b'/'))
        || (word.iter().skip(1).any(u8::is_ascii_uppercase) && word.iter().any(u8::is_ascii_lowercase))
}

/// End of the END line at `at`.
fn end_line(text: &[u8], at: usize) -> usize {
    let line = text.get(at..text.len().min(at + MAX_HEADER)).unwrap_or_default();
    let name = line.iter().position(|b| *b != b'-').unwrap_or(line.len());
    let close = line
        .get(name..)
        .unwrap_or_default()
        .iter()
        .position(|b| !(b.is_ascii_alphanumeric() || *b == b' '))
        .map_or(line.len(), |p| p + name);
    let dashes = line
        .get(close..)
        .unwrap_or_default()
        .iter()
        .take_while(|b| **b == b'-')
        .count();
    at + close + dashes
}

/// `AGE-SECRET-KEY-1...`, which stands at `at`.
pub(crate) fn age(text: &[u8], at: usize) -> Option<Hit> {
    let end = super::token::run_end(text, at, |b| b.is_ascii_alphanumeric() || b == b'-');
    (end - at >= 60).then(|| Hit::new(Class::PrivateKey, at..end))
}

/// The private lines of a PuTTY key file; `Private-Lines:` stands at `at`.
pub(crate) fn putty(text: &[u8], at: usize) -> Option<Hit> {
    let start = at + b"private-lines:".len();
    let digits = text
        .get(start..text.len().min(start + 8))?
        .iter()
        .take_while(|b| matches!(b, b' ' | b'0'..=b'9'))
        .count();
    let end = body(text, start + digits, text.len());
    (end > start + digits + MIN_BODY).then(|| Hit::new(Class::PrivateKey, at..end))
}

/// Whether `der` begins like a PKCS#1, PKCS#8 or SEC1 private key: a sequence whose first member is version 0
/// or 1, followed by a modulus, an algorithm or a 32-byte-and-longer octet string.
pub(crate) fn is_der_key(der: &[u8]) -> bool {
    let ([0x30, 0x82, _, _, content @ ..]
    | [0x30, 0x81, _, content @ ..]
    | [0x30, 0x20..=0x7f, content @ ..]) = der
    else {
        return false;
    };
    matches!(
        content,
        [2, 1, 0, 2, 0x81 | 0x82, ..]
            | [2, 1, 0, 2, 0x41, 0, ..]
            | [2, 1, 0 | 1, 0x30, 5..=0x20, 6, ..]
            | [2, 1, 1, 4, 0x20..=0x42, ..]
    )
}
