//! Which parts of a message leave the host as data: `params.arguments` and the like, never `_meta`.

use std::ops::Range;

use super::json::{decoded, string_end};

/// Members of `params` that carry data to a server: arguments of tools and prompts, the value to complete, answers to
/// a server's questions (revision 2026-07-28).
const REQUEST: [&[u8]; 3] = [b"arguments", b"argument", b"inputResponses"];
/// Members of a client's `result` that do: elicitation and sampling answers.
const ANSWER: [&[u8]; 1] = [b"content"];

/// Ranges of the values that leave the host in a message (or batch) from client to server, in order. A repeated
/// member counts each time: agent and server may disagree on which one holds.
pub(crate) fn outgoing(message: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    match first_byte(message, 0) {
        Some((at, b'[')) => {
            let mut at = at + 1;
            while let Some((start, byte)) = first_byte(message, at) {
                match byte {
                    b']' => break,
                    b',' => at = start + 1,
                    _ => {
                        let end = value_end(message, start);
                        one(message, start..end, &mut found);
                        at = end.max(start + 1);
                    }
                }
            }
        }
        Some((at, b'{')) => one(message, at..message.len(), &mut found),
        _ => {}
    }
    found
}

fn one(message: &[u8], object: Range<usize>, found: &mut Vec<Range<usize>>) {
    members(message, object, |key, value| {
        let wanted: &[&[u8]] = match key {
            b"params" => &REQUEST,
            b"result" => &ANSWER,
            _ => return,
        };
        members(message, value, |inner, data| {
            if wanted.contains(&inner) {
                found.push(data);
            }
        });
    });
}

/// Members of the object that begins at `object.start`; nothing where no object begins.
fn members(doc: &[u8], object: Range<usize>, mut visit: impl FnMut(&[u8], Range<usize>)) {
    let Some((open, b'{')) = first_byte(doc, object.start) else {
        return;
    };
    let mut at = open + 1;
    while let Some((start, byte)) = first_byte(doc, at) {
        if start >= object.end || byte == b'}' {
            return;
        }
        if byte != b'"' {
            at = start + 1;
            continue;
        }
        let key_end = string_end(doc, start + 1);
        let Some((colon, b':')) = first_byte(doc, key_end + 1) else {
            at = key_end + 1;
            continue;
        };
        let Some((value, _)) = first_byte(doc, colon + 1) else {
            return;
        };
        let end = value_end(doc, value);
        let key = decoded(doc.get(start + 1..key_end).unwrap_or_default());
        visit(&key, value..end);
        at = end.max(value + 1);
    }
}

/// The first byte at or behind `at` that is no white space.
fn first_byte(doc: &[u8], at: usize) -> Option<(usize, u8)> {
    let rest = doc.get(at..)?;
    let skip = rest.iter().position(|b| !b.is_ascii_whitespace())?;
    rest.get(skip).map(|byte| (at + skip, *byte))
}

/// End of the value that begins at `start`.
fn value_end(doc: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = doc.get(at) {
        match byte {
            b'"' => {
                at = (string_end(doc, at + 1) + 1).min(doc.len());
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                if depth == 0 {
                    return at;
                }
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b',' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    doc.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(message: &str) -> Vec<&str> {
        outgoing(message.as_bytes())
            .into_iter()
            .map(|r| message.get(r).unwrap().trim())
            .collect()
    }

    #[test]
    fn data_of_requests_and_answers() {
        assert_eq!(
            texts(
                r#"{"id":1,"params":{"name":"t","_meta":{"x":"y"},"arguments":{"a":["}",1]}},"method":"tools/call"}"#
            ),
            [r#"{"a":["}",1]}"#]
        );
        assert_eq!(
            texts(r#"{"result":{"action":"accept","content":{"k":"v"},"_meta":{}}}"#),
            [r#"{"k":"v"}"#]
        );
        assert_eq!(
            texts(
                r#"[{"params":{"arguments":1}},{"method":"ping"},{"params":{"arguments":"s","arguments":[]}}]"#
            ),
            ["1", "\"s\"", "[]"]
        );
        assert_eq!(texts(r#"{"params":{"argum\u0065nts":{"a":1}}}"#), [r#"{"a":1}"#]);
    }

    #[test]
    fn nothing_in_other_bytes() {
        for message in [
            "",
            "x",
            "[",
            "{",
            r#"{"params""#,
            r#"{"params":"#,
            r#"{"params":{"arguments""#,
        ] {
            assert!(texts(message).is_empty(), "{message}");
        }
    }
}
