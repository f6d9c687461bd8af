//! The last resort: a whole value of 24 to 200 characters, without spaces, with more than 4.2 bits of Shannon
//! entropy a character, and of no known harmless shape.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::words::{contains, run_length};

/// Starts that give away an image, an archive, a document, a public key or a digest.
const HARMLESS_STARTS: &[&[u8]] = &[
    b"data:",
    b"sha1-",
    b"sha256-",
    b"sha384-",
    b"sha512-",
    b"sha1:",
    b"sha256:",
    b"sha384:",
    b"sha512:",
    b"md5:",
    b"h1:",
    b"iVBORw0KGgo",
    b"/9j/",
    b"R0lGOD",
    b"UklGR",
    b"H4sI",
    b"UEsDB",
    b"UEsFB",
    b"JVBERi0",
    b"AAAAB3NzaC1",
    b"AAAAC3NzaC1",
    b"AAAAE2Vj",
    b"TVqQ",
    b"TVpQ",
    b"f0VMR",
    b"N3q8",
    b"Qlpo",
    b"/Td6WFo",
    b"KLUv",
    b"AAABAA",
    b"T2dnUw",
    b"SUkq",
    b"TU0AKg",
    b"d09GR",
    b"AGFzbQ",
    b"GkXfo",
    b"AAAAIGZ0eX",
    b"AAAAGGZ0eX",
    b"AAAAHGZ0eX",
    b"PD94bWw",
    b"PHN2Zw",
    b"LS0tLS1CRUdJTiB",
    b"SUQz",
    b"ZGF0YTo",
    b"eJw",
    b"eNp",
    b"eNr",
    b"sha256/",
    b"sha1/",
    b"urn:",
    b"0x",
    b"bafy",
    b"bafk",
    b"did:",
    b"ssh-",
    b"ecdsa-",
    b"age1",
    b"npub1",
    b"xpub",
    b"bc1",
    b"spiffe:",
    b"arn:",
    b"[kams:",
];

/// Whether `value`, a whole string, looks like an opaque credential. Reads 200 bytes at most.
pub(crate) fn is_opaque(value: &[u8]) -> bool {
    if !(24..=200).contains(&value.len())
        || value
            .iter()
            .any(|b| b.is_ascii_whitespace() || *b < b' ' || *b >= 0x7f)
    {
        return false;
    }
    entropy(value) > 4.2 && !is_harmless(value)
}

/// Shannon entropy of the bytes, in bits per byte.
pub(crate) fn entropy(value: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for &byte in value {
        if let Some(count) = counts.get_mut(usize::from(byte)) {
            *count += 1;
        }
    }
    let total: f64 = counts.iter().map(|c| f64::from(*c)).sum();
    counts
        .iter()
        .filter(|c| **c > 0)
        .map(|c| {
            let share = f64::from(*c) / total;
            -share * share.log2()
        })
        .sum()
}

fn is_harmless(value: &[u8]) -> bool {
    HARMLESS_STARTS.iter().any(|start| value.starts_with(start))
        || contains(value, "@sha256:")
        || contains(value, "://")
        || is_code(value)
        || is_structured(value)
        || run_length(value) >= 3.7
        || is_hex_group(value)
        || is_ulid(value)
        || is_base58_address(value)
        || is_text_in_base64(value)
}

/// Short parts between separators (versions, coordinates, pod names, slugs): random characters leave a long part.
fn is_structured(value: &[u8]) -> bool {
    let longest = value
        .split(|b| {
            matches!(
                b,
                b'-' | b'.' | b'_' | b':' | b'/' | b'=' | b'@' | b',' | b'+' | b'~'
            )
        })
        .map(<[u8]>::len)
        .max()
        .unwrap_or(0);
    let one_case = !value.iter().any(u8::is_ascii_uppercase) || !value.iter().any(u8::is_ascii_lowercase);
    longest < 9 || (one_case && longest < 20 && longest < value.len())
}

/// Brackets in pairs, quotes and escapes: a pattern, a formula, a query.
fn is_code(value: &[u8]) -> bool {
    let has = |b: u8| value.contains(&b);
    let pair = |open: u8, close: u8| match (
        value.iter().position(|b| *b == open),
        value.iter().rposition(|b| *b == close),
    ) {
        (Some(from), Some(to)) => to > from,
        _ => false,
    };
    let kinds = [
        pair(b'(', b')'),
        pair(b'[', b']'),
        pair(b'{', b'}'),
        pair(b'<', b'>'),
    ];
    [b'\\', b'"', b'\'', b'`', b';'].into_iter().any(has)
        || kinds.into_iter().filter(|kind| *kind).count() > 1
}

/// Hex digits in any grouping: UUIDs, digests, trace parents, MAC addresses.
fn is_hex_group(value: &[u8]) -> bool {
    let hex = value
        .iter()
        .filter(|b| b.is_ascii_hexdigit() || matches!(b, b'-' | b':' | b'.' | b'_'))
        .count();
    hex + 4 >= value.len() && value.iter().filter(|b| b.is_ascii_hexdigit()).count() >= 16
}

/// A ULID: 26 characters of Crockford's base 32, time first.
fn is_ulid(value: &[u8]) -> bool {
    value.len() == 26
        && value.first().is_some_and(|b| (b'0'..=b'7').contains(b))
        && value.iter().all(|b| {
            b.is_ascii_digit() || (b.is_ascii_uppercase() && !matches!(b, b'I' | b'L' | b'O' | b'U'))
        })
}

/// A base58 address or content id: 43 to 46 characters without 0, O, I and l.
fn is_base58_address(value: &[u8]) -> bool {
    (43..=46).contains(&value.len())
        && value
            .iter()
            .all(|b| b.is_ascii_alphanumeric() && !matches!(b, b'0' | b'O' | b'I' | b'l'))
}

/// Base64 of readable text.
fn is_text_in_base64(value: &[u8]) -> bool {
    let body = value
        .strip_suffix(b"==")
        .or_else(|| value.strip_suffix(b"="))
        .unwrap_or(value);
    let text = STANDARD_NO_PAD
        .decode(body)
        .or_else(|_| URL_SAFE_NO_PAD.decode(body))
        .unwrap_or_default();
    !text.is_empty()
        && text
            .iter()
            .all(|b| (b' '..0x7f).contains(b) || matches!(b, b'\n' | b'\t' | b'\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_values() {
        for value in [
            "Wnuvyd21xa2S+fDVK3rn69/w9bq0+xfG7ttJkEYk",
            "0O9Cgv_qKPa0C740AJz-HtY0SCTCE5oNdAXwtvUmdoD",
            "rAiBDCLmPg0ZKzr1raFTSb4zzfGhfaJD",
            "xZ2#5rzhSPxnBe#mKOdsylJF",
        ] {
            assert!(is_opaque(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn harmless_shapes() {
        for value in [
            "71d42ae3-5923-4706-9dcf-dc2697558c0e",
            "callFunctionCheckIfDataAlreadyExistsPerpetualSubinventory",
            "assignVariablesOjTabBar1482653721SelectedItem",
            "/usr/share/dotnet/sdk/8.0.204/Sdks/Microsoft.NET.Sdk/targets",
            "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==)?$",
            "01JQS4Q7H7RKWPYRSHXPMDQZPX",
            "VGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHRoZSBsYXp5IGRvZyBuZWFy",
        ] {
            assert!(!is_opaque(value.as_bytes()), "{value}");
        }
    }
}
