//! Looks for repeated keys and for nesting that parsers refuse.
//!
//! RFC 8259 leaves open what a repeated key means: JavaScript and Python take the last value, others the first or
//! none at all. An agent and a server that disagree can be shown two different messages by one line of text.

use std::borrow::Cow;

use super::walk::{skip_space, string_end};
use super::{cut, unescape};

/// Deeper nesting than this is refused by serde_json and by other parsers with a recursion limit.
pub const MAX_DEPTH: u32 = 127;

/// Keys of objects that are open at one time; beyond this the check gives up and says so.
const MAX_OPEN_KEYS: usize = 1 << 16;

/// What the walk over a value found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyCheck {
    /// Deepest nesting; 1 for a flat object.
    pub depth: u32,
    /// The first key that stands twice in one object, decoded and cut to 128 bytes.
    pub duplicate: Option<String>,
    /// Some objects were too large or too deep to be checked.
    pub unchecked: bool,
}

/// Checks all objects of a valid value. Linear but for the sorting of each object's keys; memory bounded by
/// 65,536 keys.
pub fn check_keys(text: &str) -> KeyCheck {
    scan(text, |_, _| {})
}

/// One object or array that is open.
struct Open {
    /// Where its keys begin among the keys of all open ones.
    start: usize,
    /// One of its keys has an escape.
    escaped: bool,
}

/// Checks all objects of a valid value, and calls `member` with the key (escapes and all) and the value of each
/// member of the outermost object: one pass for both.
pub(crate) fn scan<'a>(text: &'a str, mut member: impl FnMut(&'a str, &'a str)) -> KeyCheck {
    let bytes = text.as_bytes();
    let slice = |from: usize, to: usize| text.get(from..to).unwrap_or("");
    let mut found = KeyCheck::default();
    let mut keys: Vec<&'a str> = Vec::with_capacity(16);
    let mut open: Vec<Open> = Vec::with_capacity(8);
    let mut depth = 0_u32;
    // The outermost object's current key, and where its value begins.
    let mut current: Option<(&'a str, usize)> = None;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let here = at;
        at += 1;
        match byte {
            b'"' => {
                let end = string_end(bytes, here);
                at = skip_space(bytes, end);
                if bytes.get(at) != Some(&b':') {
                    continue;
                }
                at += 1;
                let key = slice(here + 1, end.saturating_sub(1));
                if depth == 1 {
                    current = Some((key, at));
                }
                match open
                    .last_mut()
                    .filter(|_| depth <= MAX_DEPTH && keys.len() < MAX_OPEN_KEYS)
                {
                    Some(object) => {
                        object.escaped |= key.as_bytes().contains(&b'\\');
                        keys.push(key);
                    }
                    None => found.unchecked = true,
                }
            }
            b'{' | b'[' => {
                depth = depth.saturating_add(1);
                found.depth = found.depth.max(depth);
                if depth <= MAX_DEPTH {
                    open.push(Open {
                        start: keys.len(),
                        escaped: false,
                    });
                }
            }
            b'}' | b']' => {
                if depth <= MAX_DEPTH
                    && let Some(Open { start, escaped }) = open.pop()
                {
                    if found.duplicate.is_none()
                        && let Some(own) = keys.get_mut(start..)
                    {
                        found.duplicate = repeated(own, escaped).map(|key| cut(&key, 128).to_owned());
                    }
                    keys.truncate(start);
                }
                if depth == 1
                    && let Some((key, start)) = current.take()
                {
                    member(key, slice(start, here).trim_ascii());
                }
                depth = depth.saturating_sub(1);
            }
            b',' if depth == 1 => {
                if let Some((key, start)) = current.take() {
                    member(key, slice(start, here).trim_ascii());
                }
            }
            _ => {}
        }
    }
    found
}

/// A key that stands twice among `keys`, decoded. May sort them.
fn repeated<'k>(keys: &mut [&'k str], escaped: bool) -> Option<Cow<'k, str>> {
    /// Up to here comparing each with each is cheaper than sorting.
    const FEW: usize = 10;
    if escaped {
        let mut keys: Vec<_> = keys.iter().map(|key| unescape(key)).collect();
        keys.sort_unstable();
        let twice = keys
            .windows(2)
            .position(|pair| matches!(pair, [a, b] if a == b))?;
        return keys.into_iter().nth(twice);
    }
    if keys.len() <= FEW {
        let twice = keys
            .iter()
            .enumerate()
            .find(|(i, key)| keys.iter().skip(i + 1).any(|other| other == *key));
        return twice.map(|(_, key)| Cow::Borrowed(*key));
    }
    keys.sort_unstable();
    let twice = keys.windows(2).find(|pair| matches!(pair, [a, b] if a == b))?;
    twice.first().map(|key| Cow::Borrowed(*key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_keys_are_found_at_any_depth() {
        let found = |text| check_keys(text).duplicate;
        assert_eq!(found(r#"{"a":1,"b":{"a":1},"c":[{"a":1},{"a":2}]}"#), None);
        assert_eq!(found(r#"{"a":1,"b":2,"a":3}"#).as_deref(), Some("a"));
        assert_eq!(
            found(r#"{"x":[{"y":{"k":1,"z":2,"k":3}}]}"#).as_deref(),
            Some("k")
        );
        assert_eq!(found(r#"{"name":1,"n\u0061me":2}"#).as_deref(), Some("name"));
        // A string value that looks like a key, or holds one, is none.
        assert_eq!(found(r#"{"a":"a","b":["a","a"],"c":"{\"a\":1,\"a\":2}"}"#), None);
    }

    #[test]
    fn depth_is_counted_and_bounded() {
        assert_eq!(check_keys(r#"{"a":[1]}"#).depth, 2);
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(check_keys(&deep).depth, 100_000);
        let objects = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        let found = check_keys(&objects);
        assert_eq!((found.depth, found.unchecked, found.duplicate), (200, true, None));
    }

    #[test]
    fn a_repeated_key_above_a_deep_part_is_still_found() {
        let inner = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        let text = format!(r#"{{"k":{inner},"k":1}}"#);
        assert_eq!(check_keys(&text).duplicate.as_deref(), Some("k"));
    }

    #[test]
    fn an_object_of_many_keys_is_given_up_aloud() {
        let keys: Vec<_> = (0..70_000).map(|i| format!("\"{i}\":0")).collect();
        let text = format!("{{{}}}", keys.join(","));
        let found = check_keys(&text);
        assert!(found.unchecked && found.duplicate.is_none());
    }
}
