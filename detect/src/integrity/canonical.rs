//! Canonical JSON (RFC 8785) and digests over it.

use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

/// SHA-256 over the canonical form, as 64 hex digits.
pub(super) fn digest(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    hex::encode(Sha256::digest(text.as_bytes()))
}

/// Appends the canonical form of `value`. Recursion is bounded by the depth limit of the JSON parser.
pub(super) fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::String(text) => string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => object(members, out),
    }
}

fn object(members: &Map<String, Value>, out: &mut String) {
    let mut sorted: Vec<_> = members.iter().collect();
    // RFC 8785 sorts by UTF-16 code units, which differs from UTF-8 order beyond the basic plane.
    sorted.sort_by(|a, b| a.0.encode_utf16().cmp(b.0.encode_utf16()));
    out.push('{');
    for (i, (key, value)) in sorted.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        string(key, out);
        out.push(':');
        write(value, out);
    }
    out.push('}');
}

fn string(text: &str, out: &mut String) {
    // serde_json escapes exactly what RFC 8785 asks for.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// ECMAScript number-to-string, on the IEEE 754 double that RFC 8785 works with.
fn number_text(number: &Number) -> String {
    let Some(value) = number.as_f64().filter(|v| v.is_finite()) else {
        return "null".to_owned();
    };
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{:e}", value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if value < 0.0 { "-" } else { "" };
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let point = exponent + 1;
    let zeros = |n: i32| "0".repeat(usize::try_from(n).unwrap_or(0));
    let body = if !(-5..=21).contains(&point) {
        let (first, rest) = digits.split_at_checked(1).unwrap_or((&digits, ""));
        let dot = if rest.is_empty() { "" } else { "." };
        let plus = if exponent > 0 { "+" } else { "" };
        format!("{first}{dot}{rest}e{plus}{exponent}")
    } else if point >= count {
        format!("{digits}{}", zeros(point - count))
    } else if point > 0 {
        let (whole, part) = digits
            .split_at_checked(usize::try_from(point).unwrap_or(0))
            .unwrap_or((&digits, ""));
        format!("{whole}.{part}")
    } else {
        format!("0.{}{digits}", zeros(-point))
    };
    format!("{sign}{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        let mut out = String::new();
        write(&serde_json::from_str(text).unwrap(), &mut out);
        out
    }

    #[test]
    fn numbers_follow_ecmascript() {
        // Values of RFC 8785 appendix B, and spellings of one number.
        for (text, expected) in [
            ("1.0", "1"),
            ("1", "1"),
            ("-0.0", "0"),
            ("1e21", "1e+21"),
            ("1e20", "100000000000000000000"),
            ("0.000001", "0.000001"),
            ("1e-7", "1e-7"),
            ("4.50", "4.5"),
            ("2e-3", "0.002"),
            ("1e23", "1e+23"),
            ("-1.5", "-1.5"),
            ("5e-324", "5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ] {
            assert_eq!(canonical(text), expected);
        }
    }

    #[test]
    fn keys_are_sorted_by_utf16_and_space_is_dropped() {
        assert_eq!(
            canonical("{ \"b\": [1, null], \"a\": {\"\u{e9}\": true} }"),
            "{\"a\":{\"é\":true},\"b\":[1,null]}"
        );
        // U+1F600 is the surrogate D83D, below U+FB33.
        assert_eq!(
            canonical("{\"\u{fb33}\":1,\"\u{1f600}\":2}"),
            "{\"\u{1f600}\":2,\"\u{fb33}\":1}"
        );
    }
}
