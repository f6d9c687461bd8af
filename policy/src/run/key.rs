//! Fact keys that are safe in the paths that rules read.

use sha2::{Digest, Sha256};

/// Longest key.
pub(crate) const MAX: usize = 128;

/// A tool name as one path segment.
///
/// Rules read `context.run.tools.<key>.calls`, where a dot separates segments; tool names may hold dots, spaces
/// and any Unicode. Letters, digits, `_` and `-` stand for themselves, every other byte of the UTF-8 form is
/// `%` and two hex digits, so different names never share a key. A key that would be longer than 128 is cut to
/// 94 and ends in `%~` and half of its SHA-256.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SafeKey(String);

impl SafeKey {
    /// The key of a tool name.
    pub fn of(tool: &str) -> Self {
        if Self::is_safe(tool) {
            return Self(tool.to_owned());
        }
        let mut key = String::with_capacity(tool.len().min(MAX) + 8);
        for byte in tool.bytes() {
            if is_plain(byte) {
                key.push(char::from(byte));
            } else {
                key.push('%');
                key.push_str(&hex::encode_upper([byte]));
            }
            if key.len() > MAX {
                key.truncate(94);
                let digest = hex::encode(Sha256::digest(tool.as_bytes()));
                key = key + "%~" + digest.get(..32).unwrap_or_default();
                break;
            }
        }
        // The empty name needs a segment of its own.
        if key.is_empty() {
            key.push('%');
        }
        Self(key)
    }

    /// Whether a text can stand in a path as it is: what declared keys and fields must be.
    pub fn is_safe(text: &str) -> bool {
        (1..=MAX).contains(&text.len()) && text.bytes().all(is_plain)
    }

    /// As a path segment.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tool name behind a segment, where the segment was not cut.
    pub(crate) fn decode(segment: &str) -> Option<String> {
        if segment == "%" {
            return Some(String::new());
        }
        let mut bytes = Vec::with_capacity(segment.len());
        let mut rest = segment.bytes();
        while let Some(byte) = rest.next() {
            if byte == b'%' {
                let pair = [rest.next()?, rest.next()?];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
            } else if is_plain(byte) {
                bytes.push(byte);
            } else {
                return None;
            }
        }
        String::from_utf8(bytes).ok()
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_stay_and_others_are_escaped() {
        assert_eq!(SafeKey::of("payment_submit").as_str(), "payment_submit");
        assert_eq!(SafeKey::of("files.read").as_str(), "files%2Eread");
        assert_eq!(SafeKey::of("été").as_str(), "%C3%A9t%C3%A9");
        assert_eq!(SafeKey::of("").as_str(), "%");
        assert_eq!(SafeKey::of(&"é".repeat(500)).as_str().len(), 128);
    }

    proptest! {
        #[test]
        fn keys_are_safe_segments_and_never_shared(a in "\\PC{0,60}", b in "\\PC{0,60}") {
            let (ka, kb) = (SafeKey::of(&a), SafeKey::of(&b));
            prop_assert!(ka.as_str().len() <= MAX && !ka.as_str().is_empty());
            prop_assert!(ka.as_str().bytes().all(|c| is_plain(c) || c == b'%' || c == b'~'));
            prop_assert_eq!(ka == kb, a == b);
            if !ka.as_str().contains('~') {
                prop_assert_eq!(SafeKey::decode(ka.as_str()), Some(a));
            }
        }
    }
}
