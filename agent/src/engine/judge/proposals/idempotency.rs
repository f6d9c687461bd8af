//! Idempotency keys: what agents and servers agree on to tell a retry from a second operation (SPEC section 6).
//!
//! MCP has no member for it. Servers take an argument of that name; clients put one into `_meta`, with or without a
//! prefix. A key is read at the top level of either, in any spelling of the two words.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Longest key that is taken, in bytes of JSON; a longer one is none, and the call counts as one of its own.
const LONGEST: usize = 512;
/// The two words, as they are looked for.
const NAME: &str = "idempotencykey";

/// Digest of the call's idempotency key: that of `_meta`, else that of the arguments.
pub(super) fn key(meta: &str, arguments: &str) -> Option<String> {
    of(meta).or_else(|| of(arguments))
}

fn of(object: &str) -> Option<String> {
    // Most objects have none; this is one pass without memory. A name written with escapes is not found: its call
    // counts once more, which errs towards a finding.
    if !contains(object.as_bytes(), b"dempoten") {
        return None;
    }
    let members: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(object).ok()?;
    let mut values = members
        .iter()
        .filter(|(name, _)| is_key(name))
        .map(|(_, value)| value.get());
    let value = values.next()?;
    // Two of them: nobody knows which one the server obeys.
    let alone = values.next().is_none();
    let usable = value.starts_with('"') && value.len() > 2 || value.starts_with(|c: char| c.is_ascii_digit());
    (alone && usable && value.len() <= LONGEST).then(|| hex::encode(Sha256::digest(value.as_bytes())))
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len())
        .any(|window| window.eq_ignore_ascii_case(word))
}

/// `idempotency_key`, `Idempotency-Key`, `com.example/idempotencyKey` and the like.
fn is_key(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let mut rest = NAME.chars();
    let letters = last.chars().filter(|c| !matches!(c, '_' | '-' | ' ' | '.'));
    letters
        .into_iter()
        .all(|c| rest.next() == Some(c.to_ascii_lowercase()))
        && rest.next().is_none()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_known_by_its_name_wherever_clients_put_it() {
        let same = key("", r#"{"idempotency_key": "k-1"}"#);
        assert!(same.is_some());
        for (meta, arguments) in [
            (r#"{"idempotencyKey":"k-1"}"#, "{}"),
            (
                r#"{"com.example/Idempotency-Key":"k-1"}"#,
                r#"{"idempotency_key":"other"}"#,
            ),
            ("", r#"{"amount":3,"idempotencyKey":"k-1"}"#),
            ("", r#"{"IDEMPOTENCY_KEY":"k-1"}"#),
        ] {
            assert_eq!(key(meta, arguments), same, "{meta} {arguments}");
        }
        assert_ne!(key("", r#"{"idempotency_key":"k-2"}"#), same);
    }

    #[test]
    fn what_is_no_key_is_none() {
        for arguments in [
            "{}",
            r#"{"note":"idempotencykey"}"#,
            r#"{"idempotency_key_prefix":"a"}"#,
            r#"{"idempotency":"a"}"#,
            r#"{"idempotency_key":null}"#,
            r#"{"idempotency_key":""}"#,
            r#"{"idempotency_key":{"a":1}}"#,
            r#"{"idempotency_key":"a","idempotencyKey":"b"}"#,
            r#"{"nested":{"idempotency_key":"a"}}"#,
            r#"["idempotency_key"]"#,
        ] {
            assert_eq!(key("", arguments), None, "{arguments}");
        }
        let long = format!(r#"{{"idempotency_key":"{}"}}"#, "x".repeat(LONGEST));
        assert_eq!(key("", &long), None);
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "\\PC*", name in "[_a-z.-]{0,20}") {
            let _read = key(&text, &format!(r#"{{"idempotency{name}":"{text}"}}"#));
        }
    }
}
