//! Looks for repeated keys and for nesting that parsers refuse.
//!
//! RFC 8259 leaves open what a repeated key means: JavaScript and Python take the last value, others the first or
//! none at all. An agent and a server that disagree can be shown two different messages by one line of text.

use std::borrow::Cow;

use super::{Token, Tokens, cut, unescape};

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
    let mut found = KeyCheck::default();
    let mut depth = 0_u32;
    // Keys of all open objects, innermost last, and where each object's begin.
    let mut keys: Vec<Cow<'_, str>> = Vec::new();
    let mut starts: Vec<usize> = Vec::new();
    for token in Tokens::new(text) {
        match token {
            Token::OpenObject => {
                depth = depth.saturating_add(1);
                if depth <= MAX_DEPTH {
                    starts.push(keys.len());
                }
            }
            Token::OpenArray => depth = depth.saturating_add(1),
            Token::CloseArray => depth = depth.saturating_sub(1),
            Token::CloseObject => {
                if depth <= MAX_DEPTH
                    && let Some(start) = starts.pop()
                {
                    if found.duplicate.is_none()
                        && let Some(own) = keys.get_mut(start..)
                    {
                        found.duplicate = repeated(own).map(|key| cut(key, 128).to_owned());
                    }
                    keys.truncate(start);
                }
                depth = depth.saturating_sub(1);
            }
            Token::Key(key) => {
                if depth > MAX_DEPTH || keys.len() >= MAX_OPEN_KEYS {
                    found.unchecked = true;
                } else {
                    keys.push(unescape(key));
                }
            }
            Token::String(_) | Token::Scalar(_) => {}
        }
        found.depth = found.depth.max(depth);
    }
    found
}

/// A key that stands twice among `keys`, which it sorts.
fn repeated<'k>(keys: &'k mut [Cow<'_, str>]) -> Option<&'k str> {
    keys.sort_unstable();
    keys.windows(2).find_map(|pair| match pair {
        [a, b] if a == b => Some(a.as_ref()),
        _ => None,
    })
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
