//! Comparing arguments as canonical JSON without building a tree.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A digest of JSON, equal for equal values: the order of members does not matter, 1 and 1.0 are one number. Bytes that
/// are no JSON, or nest deeper than 128 levels, are compared as they are.
pub fn canonical_digest(json: &[u8]) -> u64 {
    match serde_json::from_slice::<Canonical>(json) {
        Ok(Canonical(digest)) => digest,
        Err(_) => hash((9_u8, json)),
    }
}

struct Canonical(u64);

impl<'de> Deserialize<'de> for Canonical {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Digester)
    }
}

struct Digester;

fn hash(value: impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whole numbers as such, whatever their spelling; others by their bits.
fn number(value: f64) -> u64 {
    // Beyond 2^53 not every whole number has a double of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        let whole = value as i64;
        return hash((3_u8, whole));
    }
    hash((4_u8, value.to_bits()))
}

impl<'de> Visitor<'de> for Digester {
    type Value = Canonical;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Canonical, E> {
        Ok(Canonical(hash(1_u8)))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Canonical, E> {
        Ok(Canonical(hash((2_u8, value))))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Canonical, E> {
        Ok(Canonical(hash((3_u8, value))))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Canonical, E> {
        Ok(Canonical(match i64::try_from(value) {
            Ok(value) => hash((3_u8, value)),
            Err(_) => hash((5_u8, value)),
        }))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Canonical, E> {
        Ok(Canonical(number(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Canonical, E> {
        Ok(Canonical(hash((6_u8, value))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Canonical, A::Error> {
        let mut hasher = DefaultHasher::new();
        7_u8.hash(&mut hasher);
        while let Some(Canonical(item)) = items.next_element()? {
            item.hash(&mut hasher);
        }
        Ok(Canonical(hasher.finish()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Canonical, A::Error> {
        // A sum does not depend on the order.
        let mut sum = 0_u64;
        while let Some((Canonical(key), Canonical(value))) = members.next_entry()? {
            sum = sum.wrapping_add(hash((key, value)));
        }
        Ok(Canonical(hash((8_u8, sum))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spelling_does_not_matter() {
        for (one, other) in [
            (r#"{"a":1,"b":[2,{}]}"#, r#"{ "b" : [2.0, {}], "a" : 1e0 }"#),
            (r#""A""#, r#""\u0041""#),
            ("-0", "0"),
            ("10", "1.0e1"),
        ] {
            assert_eq!(
                canonical_digest(one.as_bytes()),
                canonical_digest(other.as_bytes()),
                "{one} {other}"
            );
        }
        for (one, other) in [
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            ("[1,2]", "[2,1]"),
            (r#"{"a":null}"#, "{}"),
            ("1", "true"),
            (r#"{"a":{"b":1}}"#, r#"{"b":{"a":1}}"#),
            ("[", "[["),
        ] {
            assert_ne!(
                canonical_digest(one.as_bytes()),
                canonical_digest(other.as_bytes()),
                "{one} {other}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_digest(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(canonical_digest(&bytes), canonical_digest(&bytes.clone()));
        }
    }
}
