//! Runs of base64 and hex inside text, decoded once.

use std::ops::Range;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::pem::is_der_key;

/// Shortest run of base64 that is decoded: 24 characters hold 18 bytes, less than any token.
const MIN_BASE64: usize = 24;
/// Shortest run of hex.
const MIN_HEX: usize = 32;
/// Decoded bytes looked at before the whole run is decoded.
const PROBE: usize = 48;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// What a run holds.
pub(crate) enum Inside {
    /// Readable text.
    Text(Vec<u8>),
    /// A private key in DER.
    Key,
}

/// Runs that decode to something readable, in order. Linear: every byte belongs to one run, and a run that does not
/// begin readable is left after [`PROBE`] bytes.
pub(crate) fn runs(text: &[u8], mut visit: impl FnMut(Range<usize>, &Inside)) {
    let mut at = 0;
    while at < text.len() {
        let Some(skip) = text
            .get(at..)
            .and_then(|rest| rest.iter().position(|b| in_run(*b)))
        else {
            return;
        };
        let start = at + skip;
        if let Some((end, bytes)) = hex_pairs(text, start) {
            if bytes.len() >= MIN_HEX / 2 && readable(bytes.get(..bytes.len().min(PROBE)).unwrap_or(&bytes)) {
                visit(start..end, &Inside::Text(bytes));
            }
            at = end;
            continue;
        }
        let end = run_end(text, start);
        if end - start >= MIN_BASE64
            && let Some(inside) = decode(text.get(start..end).unwrap_or_default())
        {
            visit(start..end, &inside);
        } else if end - start >= MIN_BASE64 {
            // `key=<base64>`: the sign of assignment belongs to the alphabet only as padding.
            split(text, start..end, &mut visit);
        }
        at = end + 1;
    }
}

const fn in_run(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
}

/// End of a run, over line ends of wrapped base64.
fn run_end(text: &[u8], start: usize) -> usize {
    let mut line = start;
    loop {
        let len = text
            .get(line..)
            .unwrap_or_default()
            .iter()
            .take_while(|b| in_run(**b))
            .count();
        let end = line + len;
        let rest = text.get(end..).unwrap_or_default();
        let gap = match rest {
            [b'\r', b'\n', ..] => 2,
            [b'\n', ..] => 1,
            _ => return end,
        };
        let wrapped = len >= 56 && rest.get(gap).is_some_and(|b| in_run(*b));
        if !wrapped {
            return end;
        }
        line = end + gap;
    }
}

/// The parts of a run between signs of assignment and path separators.
fn split(text: &[u8], run: Range<usize>, visit: &mut impl FnMut(Range<usize>, &Inside)) {
    let bytes = text.get(run.clone()).unwrap_or_default();
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let inner_sign = *byte == b'=' && bytes.get(at + 1).is_some_and(|b| *b != b'=');
        if inner_sign || at + 1 == bytes.len() {
            let end = if inner_sign { at } else { at + 1 };
            let part = bytes.get(start..end).unwrap_or_default();
            if part.len() >= MIN_BASE64
                && part.len() < bytes.len()
                && let Some(inside) = decode(part)
            {
                visit(run.start + start..run.start + end, &inside);
            }
            start = at + 1;
        }
    }
}

/// `41 4b 49`, `41:4b:49`, `0x41, 0x4b`: where pairs of hex digits with separators end, and their bytes. None where
/// no two pairs stand.
fn hex_pairs(text: &[u8], start: usize) -> Option<(usize, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut at = start;
    let mut end = start;
    loop {
        let prefix =
            usize::from(text.get(at) == Some(&b'0') && matches!(text.get(at + 1), Some(b'x' | b'X'))) * 2;
        let pair = text.get(at + prefix..at + prefix + 2).unwrap_or_default();
        let alone = !text.get(at + prefix + 2).is_some_and(u8::is_ascii_alphanumeric);
        let Some(byte) = Some(pair)
            .filter(|p| p.len() == 2 && alone)
            .and_then(|p| hex::decode(p).ok())
        else {
            break;
        };
        bytes.extend(byte);
        end = at + prefix + 2;
        let gap = match text.get(end..) {
            Some([b',' | b';', b' ', ..]) => 2,
            Some([b' ' | b':' | b'-' | b',' | b'\n', ..]) => 1,
            _ => break,
        };
        at = end + gap;
    }
    (bytes.len() >= 2).then_some((end, bytes))
}

/// RFC 4648 base 32 without its padding.
fn base32(run: &[u8]) -> Option<Vec<u8>> {
    let body = run.split(|b| *b == b'=').next()?;
    let mut out = Vec::with_capacity(body.len() * 5 / 8);
    let mut bits = 0_u32;
    let mut held = 0_u32;
    for byte in body {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'2'..=b'7' => byte - b'2' + 26,
            _ => return None,
        };
        held = ((held << 5) | u32::from(value)) & 0xFFF;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from((held >> bits) & 0xFF).ok()?);
        }
    }
    Some(out)
}

/// What the run decodes to, if that is text or a key; base64 inside base64 is undone too.
fn decode(run: &[u8]) -> Option<Inside> {
    let inside = decode_once(run)?;
    if let Inside::Text(text) = &inside {
        let inner = text.trim_ascii();
        if inner.len() >= MIN_BASE64
            && inner.iter().all(|b| in_run(*b))
            && let Some(deeper) = decode_once(inner)
        {
            return Some(deeper);
        }
    }
    Some(inside)
}

fn decode_once(run: &[u8]) -> Option<Inside> {
    let run = run
        .strip_prefix(b"0x")
        .or_else(|| run.strip_prefix(b"0X"))
        .unwrap_or(run);
    if run.len() >= MIN_HEX && run.iter().all(|b| matches!(b, b'A'..=b'Z' | b'2'..=b'7' | b'=')) {
        let probe = base32(run.get(..run.len().min(64))?)?;
        if readable(&probe) {
            return base32(run).map(Inside::Text);
        }
    }
    if run.len() >= MIN_HEX && run.len().is_multiple_of(2) && run.iter().all(u8::is_ascii_hexdigit) {
        let probe = hex::decode(run.get(..run.len().min(PROBE * 2))?).ok()?;
        return if readable(&probe) {
            hex::decode(run).ok().map(Inside::Text)
        } else {
            is_der_key(&probe).then_some(Inside::Key)
        };
    }
    let url_safe = run.iter().any(|b| matches!(b, b'-' | b'_'));
    let engine = if url_safe { &URL_SAFE } else { &STANDARD };
    let probe_len = run.len().min(64) & !3;
    let probe = engine
        .decode(run.get(..probe_len)?)
        .or_else(|_| engine.decode(run))
        .ok()?;
    if is_der_key(&probe) {
        return Some(Inside::Key);
    }
    if !readable(probe.get(..probe.len().min(PROBE)).unwrap_or(&probe)) {
        return None;
    }
    let joined: Vec<u8> = run
        .iter()
        .copied()
        .filter(|b| !matches!(b, b'\r' | b'\n'))
        .collect();
    let mut text = engine.decode(&joined).ok()?;
    // UTF-16 of ASCII, as some shells want it.
    if text.get(1) == Some(&0) {
        text.retain(|b| *b != 0);
    }
    Some(Inside::Text(text))
}

/// Whether the bytes begin like text: nine in ten printable, in UTF-8 or UTF-16.
fn readable(bytes: &[u8]) -> bool {
    let printable = bytes
        .iter()
        .filter(|b| (b' '..0x7f).contains(*b) || matches!(b, b'\n' | b'\t' | b'\r'))
        .count();
    let zeros = bytes.iter().skip(1).step_by(2).filter(|b| **b == 0).count();
    let wide = bytes.len() >= 16 && zeros * 2 + 2 >= bytes.len();
    bytes.len() >= 8 && ((printable * 10 >= bytes.len() * 9) || (wide && printable * 2 + 2 >= bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        runs(text.as_bytes(), |_, inside| match inside {
            Inside::Text(text) => found.push(String::from_utf8_lossy(text).into_owned()),
            Inside::Key => found.push("key".to_owned()),
        });
        found
    }

    #[test]
    fn encodings_are_undone_once() {
        let plain = "k: a secret of some length, long enough to wrap over two lines";
        let standard = base64::engine::general_purpose::STANDARD.encode(plain);
        assert_eq!(texts(&standard), [plain]);
        assert_eq!(texts(&format!("data={standard} rest")), [plain]);
        assert_eq!(texts(&hex::encode(plain)), [plain]);
        let (first, second) = standard.split_at(76);
        let wrapped = format!("{first}\n{second}");
        assert_eq!(texts(&wrapped), [plain]);
    }

    #[test]
    fn noise_is_left() {
        assert!(texts("Wnuvyd21xa2S+fDVK3rn69/w9bq0+xfG7ttJkEYk").is_empty());
        assert!(texts("da39a3ee5e6b4b0d3255bfef95601890afd80709").is_empty());
    }
}
