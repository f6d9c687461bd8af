//! What forgiving readers make of a line that is no strict JSON.
//!
//! A peer must not get past a judge by a line that the judge calls unreadable and the other side reads. Readers that
//! are in use replace bytes that are no UTF-8 (JavaScript, Python with `errors="replace"`), know `NaN` and `Infinity`
//! (Python, pydantic), skip a byte order mark, take control characters within strings, or end a line at a lone
//! carriage return (Python's universal newlines, Node's readline) or at U+2028 and U+2029 (Node's readline).

use crate::envelope::MAX_BATCH;

/// Texts that a forgiving reader may see in the line, each a candidate for strict JSON. Linear; a line that is plain
/// text gives none or few. Pieces beyond as many as a batch may have are not read.
pub(crate) fn readings(line: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(line);
    let whole = strict(&text);
    if serde_json::from_str::<serde::de::IgnoredAny>(&whole).is_ok() {
        return vec![whole];
    }
    text.split(['\r', '\u{2028}', '\u{2029}'])
        .filter(|piece| piece.contains(['{', '[']))
        .take(MAX_BATCH)
        .map(strict)
        .collect()
}

/// The text with what strict JSON does not know in the words of strict JSON.
fn strict(text: &str) -> String {
    let text = text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{feff}' | '\0'));
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            out.push(if c < ' ' { ' ' } else { c });
        } else if let Some((word, instead)) = word(rest) {
            out.push_str(instead);
            rest = rest.get(word.len()..).unwrap_or_default();
            continue;
        } else {
            in_string = c == '"';
            out.push(if c.is_whitespace() || c == '\u{feff}' {
                ' '
            } else {
                c
            });
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    out
}

/// A number that JSON cannot write, where the text begins with one, and what stands in its place.
fn word(text: &str) -> Option<(&'static str, &'static str)> {
    ["NaN", "-NaN", "Infinity", "-Infinity", "+Infinity"]
        .into_iter()
        .find(|word| text.starts_with(word))
        .map(|word| (word, "null"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_others_read_is_read() {
        for (line, expect) in [
            (&b"{\"a\":\"\xff\"}"[..], vec!["{\"a\":\"\u{fffd}\"}"]),
            (
                b"{\"a\":NaN,\"b\":[-Infinity,\"NaN\\\"NaN\"]}",
                vec!["{\"a\":null,\"b\":[null,\"NaN\\\"NaN\"]}"],
            ),
            (b"\xef\xbb\xbf{}", vec!["{}"]),
            (b"{\"a\":\"\t\"}", vec!["{\"a\":\" \"}"]),
            (b"x\r{\"a\":1}", vec!["{\"a\":1}"]),
            (b"{\"a\":1}\r{\"b\":2}", vec!["{\"a\":1}", "{\"b\":2}"]),
            (b"x\xe2\x80\xa8{\"a\":1}", vec!["{\"a\":1}"]),
            (b"Server started", vec![]),
        ] {
            assert_eq!(readings(line), expect, "{}", String::from_utf8_lossy(line));
        }
    }

    proptest! {
        #[test]
        fn strict_json_stays_what_it_is(keys in prop::collection::vec("[^\\x00-\\x1f]{0,8}", 0..4), n in any::<i32>()) {
            let value = serde_json::json!({"k": keys, "n": n});
            let read = readings(value.to_string().as_bytes());
            prop_assert_eq!(read.len(), 1);
            let read: serde_json::Value = serde_json::from_str(&read[0]).unwrap();
            prop_assert_eq!(read, value);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = readings(&bytes);
        }
    }
}
