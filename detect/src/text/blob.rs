//! Runs of encoded text.

use std::ops::Range;

use super::radix;

/// How a run was encoded.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Encoding {
    /// Base64, standard or URL-safe, padded or not, wrapped or not.
    Base64,
    /// Base32 (RFC 4648).
    Base32,
    /// Hexadecimal digits, joined or in pairs.
    Hex,
    /// Ascii85 or the base85 of RFC 1924.
    Base85,
    /// Groups of eight binary digits.
    Binary,
    /// Decimal or octal character codes.
    CharCodes,
    /// Morse code.
    Morse,
}

/// One encoded run that reads as text once decoded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Blob {
    /// The encoding.
    pub encoding: Encoding,
    /// Where it stands, in bytes of the text given.
    pub span: Range<usize>,
    /// What it says.
    pub text: String,
}

// Shorter runs are words and ids. 16 characters of base64 carry 12 letters: too few for an instruction, enough
// for a short secret.
const SHORTEST: usize = 16;
const SHORTEST_BASE85: usize = 40;
// Lines at least this long that follow each other are one wrapped run.
const WRAPPED_LINE: usize = 32;

/// All encoded runs of `text` that decode to readable text, in order of their encoding's family, then place.
/// Decodes once: what a run holds is not searched again. Linear in the length of `text`; the decoded texts
/// together are no longer than `text`.
pub fn blobs(text: &str) -> Vec<Blob> {
    let mut found = Vec::new();
    let bytes = text.as_bytes();
    let mut after = 0;
    for run in runs(bytes, &BASE64, SHORTEST) {
        if run.start < after {
            continue;
        }
        let (end, digits) = unwrap_lines(bytes, run);
        after = end.end;
        alphabet_run(&digits, end, &mut found);
    }
    radix::number_runs(text, &mut found);
    for run in runs(bytes, &BASE85, SHORTEST_BASE85) {
        if let Some(blob) = base85_run(bytes, run, &found) {
            found.push(blob);
        }
    }
    found
}

/// Maximal runs of bytes in `set` that are at least `least` long. Looks at every `least`-th byte only, so that
/// prose costs little.
pub(super) fn runs<'a>(
    bytes: &'a [u8],
    set: &'a [bool; 256],
    least: usize,
) -> impl Iterator<Item = Range<usize>> + 'a {
    let member = move |i: usize| {
        bytes
            .get(i)
            .is_some_and(|b| set.get(usize::from(*b)) == Some(&true))
    };
    let mut floor = 0;
    let mut at = least.saturating_sub(1);
    std::iter::from_fn(move || {
        while at < bytes.len() {
            if !member(at) {
                floor = at + 1;
                at += least;
                continue;
            }
            let mut start = at;
            while start > floor && member(start - 1) {
                start -= 1;
            }
            let mut end = at + 1;
            while member(end) {
                end += 1;
            }
            floor = end;
            at = end + least;
            if end - start >= least {
                return Some(start..end);
            }
        }
        None
    })
}

/// The run with its continuation lines, and its digits without line breaks.
fn unwrap_lines(bytes: &[u8], run: Range<usize>) -> (Range<usize>, Vec<u8>) {
    let mut digits = bytes.get(run.clone()).unwrap_or_default().to_vec();
    let mut end = run.end;
    let mut line = run.len();
    while line >= WRAPPED_LINE {
        let rest = bytes.get(end..).unwrap_or_default();
        let gap = rest
            .iter()
            .take(10)
            .take_while(|b| b.is_ascii_whitespace())
            .count();
        let next = rest.get(gap..).unwrap_or_default();
        line = next
            .iter()
            .take_while(|b| BASE64.get(usize::from(**b)) == Some(&true))
            .count();
        if gap == 0 || line < 4 || !rest.iter().take(gap).any(|b| *b == b'\n') {
            break;
        }
        digits.extend_from_slice(next.get(..line).unwrap_or_default());
        end += gap + line;
    }
    (run.start..end, digits)
}

fn alphabet_run(digits: &[u8], span: Range<usize>, found: &mut Vec<Blob>) {
    let whole = decode_alphabets(digits);
    if let Some((encoding, text)) = whole {
        found.push(Blob { encoding, span, text });
        return;
    }
    // A path or an id may be glued on: try the pieces.
    if digits.len() != span.len() {
        return;
    }
    let mut start = span.start;
    for piece in digits.split(|b| matches!(b, b'/' | b'_' | b'-' | b'+')) {
        let end = start + piece.len();
        if piece.len() >= SHORTEST
            && piece.len() < digits.len()
            && let Some((encoding, text)) = decode_alphabets(piece)
        {
            found.push(Blob {
                encoding,
                span: start..end,
                text,
            });
        }
        start = end + 1;
    }
}

fn decode_alphabets(digits: &[u8]) -> Option<(Encoding, String)> {
    let hex = digits.strip_prefix(b"0x").unwrap_or(digits);
    if hex.len().is_multiple_of(2)
        && hex.iter().all(u8::is_ascii_hexdigit)
        && let Some(text) = readable(hex.chunks_exact(2).filter_map(radix::hex_pair).collect())
    {
        return Some((Encoding::Hex, text));
    }
    if digits.iter().all(|b| matches!(b, b'A'..=b'Z' | b'2'..=b'7'))
        && let Some(text) = readable(unpack(digits, 5, |b| match b {
            b'A'..=b'Z' => Some(b - b'A'),
            b'2'..=b'7' => Some(b - b'2' + 26),
            _ => None,
        })?)
    {
        return Some((Encoding::Base32, text));
    }
    // One digit more than whole bytes need is no base64.
    (digits.len() % 4 != 1).then_some(())?;
    let text = readable(unpack(digits, 6, |b| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    })?)?;
    Some((Encoding::Base64, text))
}

/// Digits of `width` bits each, packed into bytes; spare bits are dropped.
fn unpack(digits: &[u8], width: u32, value: impl Fn(u8) -> Option<u8>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(digits.len());
    let (mut window, mut filled) = (0_u32, 0);
    for digit in digits {
        window = (window << width) | u32::from(value(*digit)?);
        filled += width;
        if filled >= 8 {
            filled -= 8;
            bytes.push(u8::try_from(window >> filled & 0xFF).ok()?);
            // Binary data betrays itself at once; long images must not cost their whole length.
            if bytes.len() == 24 && !plausible(&bytes) {
                return None;
            }
        }
    }
    Some(bytes)
}

fn base85_run(bytes: &[u8], run: Range<usize>, found: &[Blob]) -> Option<Blob> {
    let mut digits = bytes.get(run.clone())?;
    if found
        .iter()
        .any(|b| b.span.start < run.end && run.start < b.span.end)
    {
        return None;
    }
    if let Some(body) = digits.strip_prefix(b"<~") {
        digits = body.strip_suffix(b"~>").unwrap_or(body);
    }
    let text = [radix::ascii85(digits), radix::base85(digits)]
        .into_iter()
        .flatten()
        .find_map(readable)?;
    Some(Blob {
        encoding: Encoding::Base85,
        span: run,
        text,
    })
}

/// Printable text of at least eight characters; UTF-16 in Latin script is read too.
pub(super) fn readable(mut bytes: Vec<u8>) -> Option<String> {
    let zeros = memchr::memchr_iter(0, &bytes).count();
    if zeros * 5 >= bytes.len() * 2 {
        bytes.retain(|b| *b != 0);
    }
    let text = String::from_utf8(bytes).ok()?;
    let (mut all, mut good) = (0, 0);
    for c in text.chars() {
        all += 1;
        good += usize::from(!c.is_control() || matches!(c, '\n' | '\r' | '\t'));
    }
    (all >= 8 && good * 20 >= all * 19).then_some(text)
}

fn plausible(start: &[u8]) -> bool {
    let odd = start
        .iter()
        .filter(|b| **b < 0x20 && !matches!(**b, b'\n' | b'\r' | b'\t' | 0))
        .count();
    let wide = start
        .iter()
        .filter(|b| **b >= 0xF8 || (0xC0..0xC2).contains(*b))
        .count();
    odd + wide <= 1
}

const fn set(members: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut i = 0;
    while i < members.len() {
        table[members[i] as usize] = true;
        i += 1;
    }
    table
}

static BASE64: [bool; 256] = set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_");
// RFC 1924's digits and those of Ascii85 together.
static BASE85: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        table[byte as usize] = true;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<(Encoding, String)> {
        blobs(text).into_iter().map(|b| (b.encoding, b.text)).collect()
    }

    #[test]
    fn every_family_is_read() {
        let secret = "copy the notes folder".to_owned();
        for (encoding, spelled) in [
            (Encoding::Base64, "Y29weSB0aGUgbm90ZXMgZm9sZGVy"),
            (Encoding::Hex, "636f707920746865206e6f74657320666f6c646572"),
            (
                Encoding::Hex,
                "63 6f 70 79 20 74 68 65 20 6e 6f 74 65 73 20 66 6f 6c 64 65 72",
            ),
            (Encoding::Base32, "MNXXA6JAORUGKIDON52GK4ZAMZXWYZDFOI======"),
            (
                Encoding::CharCodes,
                "99 111 112 121 32 116 104 101 32 110 111 116 101 115 32 102 111 108 100 101 114",
            ),
            (
                Encoding::Morse,
                "-.-. --- .--. -.-- / - .... . / -. --- - . ... / ..-. --- .-.. -.. . .-.",
            ),
        ] {
            assert_eq!(
                read(&format!("Field: {spelled}\n")),
                [(encoding, secret.clone())],
                "{spelled}"
            );
        }
        let binary: Vec<String> = secret.bytes().map(|b| format!("{b:08b}")).collect();
        assert_eq!(read(&binary.join(" ")), [(Encoding::Binary, secret.clone())]);
        assert_eq!(read(&binary.concat()), [(Encoding::Binary, secret)]);
    }

    #[test]
    fn base85_with_and_without_marks() {
        let said = "please copy the whole notes folder";
        let encoded = encode_ascii85(said.as_bytes());
        assert_eq!(
            read(&format!("note <~{encoded}~>")),
            [(Encoding::Base85, said.to_owned())]
        );
    }

    fn encode_ascii85(bytes: &[u8]) -> String {
        let mut out = String::new();
        for chunk in bytes.chunks(4) {
            let mut word = [0; 4];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            let mut value = u32::from_be_bytes(word);
            let mut digits = [0_u8; 5];
            for digit in digits.iter_mut().rev() {
                *digit = u8::try_from(value % 85).unwrap_or(0) + b'!';
                value /= 85;
            }
            out.extend(digits.iter().take(chunk.len() + 1).copied().map(char::from));
        }
        out
    }

    #[test]
    fn spans_and_glued_paths() {
        let text = "get /files/Y29weSB0aGUgbm90ZXMgZm9sZGVy now";
        let found = blobs(text);
        assert_eq!(found.len(), 1);
        let span = found.first().map(|b| b.span.clone()).unwrap_or_default();
        assert_eq!(text.get(span), Some("Y29weSB0aGUgbm90ZXMgZm9sZGVy"));
    }

    #[test]
    fn wrapped_lines_are_one_run() {
        let text = "Y29weSB0aGUgbm90ZXMgZm9sZGVyIGFuZCBhbGwgb2Yg\n  aXRzIHN1YmZvbGRlcnM=\n";
        assert_eq!(
            read(text),
            [(
                Encoding::Base64,
                "copy the notes folder and all of its subfolders".to_owned()
            )]
        );
    }

    #[test]
    fn names_digests_and_images_are_not_text() {
        for text in [
            "getDocumentByIdentifierAndVersion",
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
            "550e8400-e29b-41d4-a716-446655440000",
            "2026-11-30 10:20:30 2026-11-30 10:20:31 2026-11-30 10:20:32",
            "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
            "--------------------------------------------------------",
            "a long plain sentence about nothing in particular, and another one.",
        ] {
            assert_eq!(read(text), [], "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived_and_output_is_bounded(text in "\\PC{0,300}") {
            let total: usize = blobs(&text).iter().map(|b| b.text.len()).sum();
            prop_assert!(total <= text.len() * 2);
        }
    }
}
