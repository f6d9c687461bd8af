//! Canonical JSON (RFC 8785): what hashes are taken over.

use serde_json::Value as Json;
use std::fmt::Write as _;

/// The canonical text of a value: no blanks, keys in the order of their UTF-16 units, numbers as ECMAScript
/// writes them.
pub fn canonical(value: &Json) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Json, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Json::Number(n) => out.push_str(&number(n.as_f64().unwrap_or(0.0))),
        Json::String(s) => string(s, out),
        Json::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Json::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                string(key, out);
                out.push(':');
                if let Some(value) = map.get(key) {
                    write(value, out);
                }
            }
            out.push('}');
        }
    }
}

fn string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => {
                // Writing to a String does not fail.
                let _unfailing = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A number as ECMAScript's `Number::toString` writes it; `null` for what is no number.
pub(crate) fn number(n: f64) -> String {
    if !n.is_finite() {
        return "null".to_owned();
    }
    if n == 0.0 {
        return "0".to_owned();
    }
    // Rust's exponent form has the shortest digits that read back as the same number, as ECMAScript wants.
    let shortest = format!("{:e}", n.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let k = i32::try_from(digits.len()).unwrap_or(1);
    // The value is 0.digits * 10^point.
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    let at = |i: i32| usize::try_from(i).unwrap_or(0);
    let body = if k <= point && point <= 21 {
        digits + &zeros(point - k)
    } else if 0 < point && point <= 21 {
        let (whole, rest) = digits.split_at(at(point));
        format!("{whole}.{rest}")
    } else if -6 < point && point <= 0 {
        format!("0.{}{digits}", zeros(-point))
    } else {
        let sign = if point > 0 { '+' } else { '-' };
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        format!("{first}{dot}{rest}e{sign}{}", (point - 1).abs())
    };
    if n < 0.0 { format!("-{body}") } else { body }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_those_of_ecmascript() {
        for (n, text) in [
            (1.0, "1"),
            (-0.0, "0"),
            (0.1, "0.1"),
            (499.99, "499.99"),
            (1e21, "1e+21"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (1e-7, "1e-7"),
            (0.000_001, "0.000001"),
            (-1.5e300, "-1.5e+300"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(number(n), text);
        }
    }

    #[test]
    fn keys_are_sorted_by_utf16_and_texts_escaped() {
        let value = json!({"\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "\u{f6}": "\u{1}\"\\/\n"});
        assert_eq!(
            canonical(&value),
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":\"\\u0001\\\"\\\\/\\n\",\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}"
        );
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let a: Json = serde_json::from_str(r#"{"b":[1.0,{"d":1,"c":2}],"a":null}"#).unwrap();
        let b: Json = serde_json::from_str(r#"{"a":null,"b":[1,{"c":2,"d":1}]}"#).unwrap();
        assert_eq!(canonical(&a), canonical(&b));
    }
}
