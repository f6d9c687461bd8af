//! A tolerant walk over raw JSON: strings, keys and numbers with their place, no tree.
//!
//! It runs over any bytes in one pass. Well-formed JSON gives exact places; anything else still gives every
//! quoted string. Nesting beyond [`MAX_DEPTH`] is counted, not stored: places below it end in `..`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use super::unescape::unescape;

/// Levels of nesting whose keys and indexes are kept.
pub(crate) const MAX_DEPTH: usize = 256;
/// Characters of one key that a path shows.
const MAX_KEY: usize = 64;
/// Bytes after which a path is cut.
const MAX_PATH: usize = 300;
/// Bytes of a key as written, escapes and all, that are kept as the name of the values below it: more than the
/// longest name that says anything.
const MAX_NAME: usize = 1_024;

/// One open object or array.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    array: bool,
    index: usize,
    /// The current key, decoded once however many values it governs.
    key: Option<Cow<'a, [u8]>>,
    /// The current key is itself sensitive: the path shows this instead.
    mask: Option<&'static str>,
    /// What the detector remembers about this container: a `name` member or the element before.
    pub(crate) label: Option<Range<usize>>,
}

/// Where the walk stands.
pub(crate) struct Place<'a> {
    doc: &'a [u8],
    frames: Vec<Frame<'a>>,
    deeper: usize,
    deep_key: Option<Cow<'a, [u8]>>,
}

/// What the walk meets.
pub(crate) enum Item {
    /// A member name; the range is the inside of its quotes.
    Key(Range<usize>),
    /// A string value; the range is the inside of its quotes.
    Text(Range<usize>),
    /// A number.
    Number(Range<usize>),
}

impl<'a> Place<'a> {
    /// The container that the walk stands in, unless it lies too deep.
    pub(crate) fn frame(&mut self) -> Option<&mut Frame<'a>> {
        if self.deeper > 0 {
            None
        } else {
            self.frames.last_mut()
        }
    }

    /// Raw bytes of the document.
    pub(crate) fn raw(&self, span: &Range<usize>) -> &'a [u8] {
        self.doc.get(span.clone()).unwrap_or_default()
    }

    /// A member name, decoded: all of it, or the start of one too long to be a name.
    fn name(&self, span: &Range<usize>) -> Cow<'a, [u8]> {
        let raw = self.raw(span);
        decoded(raw.get(..MAX_NAME).unwrap_or(raw))
    }

    /// Whether the value stands directly in an array.
    pub(crate) fn in_array(&self) -> bool {
        self.deeper == 0 && self.frames.last().is_some_and(|f| f.array)
    }

    /// The name that governs the current value: its own key, or that of the array it stands in.
    pub(crate) fn key(&self) -> Option<Cow<'a, [u8]>> {
        if self.deeper > 0 {
            self.deep_key.clone()
        } else {
            self.frames
                .iter()
                .rev()
                .find(|f| !f.array)
                .and_then(|f| f.key.clone())
        }
    }

    /// The name that governs the object around the current value.
    pub(crate) fn parent_key(&self) -> Option<Cow<'a, [u8]>> {
        if self.deeper > 0 {
            return None;
        }
        let own = self.frames.iter().rposition(|f| !f.array)?;
        let outer = self.frames.get(..own)?;
        outer.iter().rev().find(|f| !f.array).and_then(|f| f.key.clone())
    }

    /// Hides the current key in paths.
    pub(crate) fn mask_key(&mut self, class: &'static str) {
        if let Some(frame) = self.frame() {
            frame.mask = Some(class);
        }
    }

    /// JSON path of the current value, keys shown bare where they hold no path syntax. `hide` says which keys
    /// must not be shown.
    pub(crate) fn path(&self, hide: impl Fn(&[u8]) -> bool) -> String {
        let mut path = String::from("$");
        for frame in &self.frames {
            if path.len() > MAX_PATH {
                path.push_str("..");
                return path;
            }
            if frame.array {
                // Writing to a String cannot fail.
                write!(path, "[{}]", frame.index).unwrap_or_default();
            } else if let Some(class) = frame.mask {
                write!(path, ".[kams:redacted:{class}]").unwrap_or_default();
            } else if let Some(key) = &frame.key {
                if hide(key) {
                    path.push_str(".*");
                } else {
                    push_key(&mut path, &String::from_utf8_lossy(key));
                }
            }
        }
        if self.deeper > 0 {
            path.push_str("..");
        }
        path
    }
}

/// Appends one key to a path.
fn push_key(path: &mut String, key: &str) {
    let bare = !key.is_empty()
        && !key
            .chars()
            .any(|c| matches!(c, '.' | '[' | ']' | '"' | '\'' | '\\') || c.is_whitespace() || c.is_control());
    let shown: String = key
        .chars()
        .take(MAX_KEY)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if bare {
        path.push('.');
        path.push_str(&shown);
    } else {
        write!(path, "['{shown}']").unwrap_or_default();
    }
}

/// Text of a JSON string's inside, borrowed where it holds no escape.
pub(crate) fn decoded(raw: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', raw).is_some() {
        Cow::Owned(unescape(raw))
    } else {
        Cow::Borrowed(raw)
    }
}

/// Walks `doc` and hands every key, string and number to `visit`.
pub(crate) fn walk<'a>(doc: &'a [u8], mut visit: impl FnMut(&mut Place<'a>, Item)) {
    let mut place = Place {
        doc,
        frames: Vec::new(),
        deeper: 0,
        deep_key: None,
    };
    let mut at = 0;
    while let Some(&byte) = doc.get(at) {
        match byte {
            b'{' | b'[' => {
                if place.frames.len() < MAX_DEPTH {
                    place.frames.push(Frame {
                        array: byte == b'[',
                        index: 0,
                        key: None,
                        mask: None,
                        label: None,
                    });
                } else {
                    place.deeper += 1;
                }
                at += 1;
            }
            b'}' | b']' => {
                if place.deeper > 0 {
                    place.deeper -= 1;
                } else {
                    place.frames.pop();
                }
                at += 1;
            }
            b',' => {
                if let Some(frame) = place.frame()
                    && frame.array
                {
                    frame.index += 1;
                }
                at += 1;
            }
            b'"' => {
                let start = at + 1;
                let end = string_end(doc, start);
                at = (end + 1).min(doc.len());
                if followed_by_colon(doc, at) && !place.in_array() {
                    let name = place.name(&(start..end));
                    if place.deeper > 0 {
                        place.deep_key = Some(name);
                    } else if let Some(frame) = place.frames.last_mut() {
                        frame.key = Some(name);
                        frame.mask = None;
                    }
                    visit(&mut place, Item::Key(start..end));
                } else {
                    visit(&mut place, Item::Text(start..end));
                }
            }
            b'0'..=b'9' => {
                let rest = doc.get(at..).unwrap_or_default();
                let len = rest
                    .iter()
                    .take_while(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
                    .count();
                visit(&mut place, Item::Number(at..at + len));
                at += len;
            }
            _ => at += 1,
        }
    }
}

/// Position of the closing quote (or the end of the document) of a string whose inside begins at `start`.
pub(crate) fn string_end(doc: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(rest) = doc.get(at..) {
        match memchr::memchr2(b'"', b'\\', rest) {
            Some(found) if rest.get(found) == Some(&b'"') => return at + found,
            Some(found) => at += found + 2,
            None => break,
        }
    }
    doc.len()
}

fn followed_by_colon(doc: &[u8], at: usize) -> bool {
    doc.get(at..)
        .unwrap_or_default()
        .iter()
        .find(|b| !b.is_ascii_whitespace())
        == Some(&b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_megabytes_is_not_read_again_for_each_value() {
        let doc = format!(r#"{{"{}":["a","b"],"token":["c"]}}"#, "k\\n".repeat(1 << 20));
        let mut names = Vec::new();
        walk(doc.as_bytes(), |place, item| {
            if let Item::Text(_) = item {
                names.push(place.key().map(Cow::into_owned).unwrap_or_default());
            }
        });
        assert!(
            names[..2]
                .iter()
                .all(|name| name.starts_with(b"k\nk") && name.len() <= MAX_NAME)
        );
        assert_eq!(names[2], b"token");
    }

    fn paths(doc: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        walk(doc.as_bytes(), |place, item| {
            if let Item::Text(span) | Item::Number(span) = item {
                let text = String::from_utf8_lossy(place.raw(&span)).into_owned();
                found.push((place.path(|_| false), text));
            }
        });
        found
    }

    #[test]
    fn places_follow_keys_and_indexes() {
        let found = paths(r#"{"a":[{"b":"x"},"y",[1,{"c-d":"z"}]],"e.f":{"":"w"}}"#);
        let found: Vec<_> = found.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        assert_eq!(
            found,
            [
                ("$.a[0].b", "x"),
                ("$.a[1]", "y"),
                ("$.a[2][0]", "1"),
                ("$.a[2][1].c-d", "z"),
                ("$['e.f']['']", "w"),
            ]
        );
    }

    #[test]
    fn depth_is_counted_not_stored() {
        let depth = 10_000;
        let doc = format!("{}\"x\"{}", "[".repeat(depth), "]".repeat(depth));
        let mut seen = 0;
        walk(doc.as_bytes(), |place, item| {
            if matches!(item, Item::Text(_)) {
                seen += 1;
                assert!(place.frames.len() <= MAX_DEPTH);
                assert!(place.path(|_| false).len() < 400);
            }
        });
        assert_eq!(seen, 1);
    }

    #[test]
    fn a_masked_key_is_not_shown() {
        walk(br#"{"secretkey":{"a":"v"}}"#, |place, item| match item {
            Item::Key(span) if place.raw(&span) == b"secretkey" => place.mask_key("aws_key"),
            Item::Text(_) => assert_eq!(place.path(|_| false), "$.[kams:redacted:aws_key].a"),
            _ => {}
        });
    }
}
