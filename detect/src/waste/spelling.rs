//! JSON spelt in one way: sorted keys, `, ` and `: ` between, everything outside ASCII escaped.
//!
//! Similarity and byte counts of seed 003 are measured on this spelling, so that they do not depend on how a provider's
//! library happened to write the request.

use std::fmt::Write as _;

use serde_json::Value;

/// Deeper values are left out: no request nests like that, and the walk must not exhaust the stack.
const MAX_DEPTH: usize = 128;

/// The spelling of `value`, cut after `max` bytes.
pub(super) fn spell(value: &Value, max: usize) -> String {
    let mut out = Text {
        text: String::new(),
        max,
    };
    walk(value, &mut out, MAX_DEPTH);
    out.text.truncate(max);
    out.text
}

/// How many bytes the whole spelling has.
pub(super) fn measure(value: &Value) -> usize {
    let mut out = Length(0);
    walk(value, &mut out, MAX_DEPTH);
    out.0
}

trait Sink {
    fn put(&mut self, ascii: &str);
    fn full(&self) -> bool;
}

struct Text {
    text: String,
    max: usize,
}

impl Sink for Text {
    fn put(&mut self, ascii: &str) {
        self.text.push_str(ascii);
    }

    fn full(&self) -> bool {
        self.text.len() >= self.max
    }
}

struct Length(usize);

impl Sink for Length {
    fn put(&mut self, ascii: &str) {
        self.0 = self.0.saturating_add(ascii.len());
    }

    fn full(&self) -> bool {
        false
    }
}

fn walk(value: &Value, out: &mut impl Sink, depth: usize) {
    if out.full() || depth == 0 {
        return;
    }
    match value {
        Value::Null => out.put("null"),
        Value::Bool(true) => out.put("true"),
        Value::Bool(false) => out.put("false"),
        Value::Number(number) => out.put(&number.to_string()),
        Value::String(text) => quote(text, out),
        Value::Array(items) => {
            out.put("[");
            for (index, item) in items.iter().enumerate() {
                if out.full() {
                    return;
                }
                if index > 0 {
                    out.put(", ");
                }
                walk(item, out, depth - 1);
            }
            out.put("]");
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            out.put("{");
            for (index, (key, member)) in members.into_iter().enumerate() {
                if out.full() {
                    return;
                }
                if index > 0 {
                    out.put(", ");
                }
                quote(key, out);
                out.put(": ");
                walk(member, out, depth - 1);
            }
            out.put("}");
        }
    }
}

fn quote(text: &str, out: &mut impl Sink) {
    out.put("\"");
    let mut rest = text;
    while !rest.is_empty() && !out.full() {
        // Plain runs go out whole, in pieces of bounded length so that the cut is seen.
        let plain = rest
            .bytes()
            .take(4_096)
            .take_while(|byte| (0x20..0x7f).contains(byte) && *byte != b'"' && *byte != b'\\')
            .count();
        let (run, tail) = rest.split_at(plain);
        out.put(run);
        rest = tail;
        let mut characters = rest.chars();
        match characters.next() {
            Some(character) if !matches!(character, ' '..='~') || matches!(character, '"' | '\\') => {
                escape(character, out);
                rest = characters.as_str();
            }
            _ => {}
        }
    }
    out.put("\"");
}

fn escape(character: char, out: &mut impl Sink) {
    match character {
        '"' => out.put("\\\""),
        '\\' => out.put("\\\\"),
        '\n' => out.put("\\n"),
        '\r' => out.put("\\r"),
        '\t' => out.put("\\t"),
        '\u{8}' => out.put("\\b"),
        '\u{c}' => out.put("\\f"),
        other => {
            let mut units = [0; 2];
            let mut text = String::with_capacity(12);
            for unit in other.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                if write!(text, "\\u{unit:04x}").is_err() {
                    return;
                }
            }
            out.put(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_spelling() {
        let value = json!({"b": [1, 2.5, null], "a": {"z": true, "é": "x\"\n\u{1}\u{7f}😀"}});
        let spelt = "{\"a\": {\"z\": true, \"\\u00e9\": \"x\\\"\\n\\u0001\\u007f\\ud83d\\ude00\"}, \"b\": [1, 2.5, null]}";
        assert_eq!(spell(&value, usize::MAX), spelt);
        assert_eq!(measure(&value), spelt.len());
        assert_eq!(spell(&value, 9), "{\"a\": {\"z");
    }

    #[test]
    fn a_long_string_is_cut_early() {
        let value = json!("a".repeat(10_000_000));
        assert_eq!(spell(&value, 65_536).len(), 65_536);
        assert_eq!(measure(&value), 10_000_002);
    }

    proptest::proptest! {
        #[test]
        fn the_spelling_reads_back(text in "\\PC{0,60}") {
            let value = json!({ "k": text });
            let spelt = spell(&value, usize::MAX);
            proptest::prop_assert!(spelt.is_ascii());
            proptest::prop_assert_eq!(serde_json::from_str::<Value>(&spelt).unwrap(), value);
        }
    }
}
