//! Strings of JSON text.

use std::borrow::Cow;

use super::walk::find_either;

/// Decodes the inside of a JSON string. Escapes that stand for no character become U+FFFD.
pub fn unescape(inner: &str) -> Cow<'_, str> {
    let bytes = inner.as_bytes();
    let mut escape = find_either(bytes, 0, b'\\', b'\\');
    if escape >= bytes.len() {
        return Cow::Borrowed(inner);
    }
    let mut out = String::with_capacity(inner.len());
    let mut from = 0;
    loop {
        out.push_str(inner.get(from..escape).unwrap_or(""));
        let Some(&mark) = bytes.get(escape + 1) else {
            return Cow::Owned(out);
        };
        from = escape + 2;
        match mark {
            b'n' => out.push('\n'),
            b'"' => out.push('"'),
            b'\\' => out.push('\\'),
            b'/' => out.push('/'),
            b't' => out.push('\t'),
            b'r' => out.push('\r'),
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'u' => {
                let mut rest = inner.get(from..).unwrap_or("").chars();
                out.push(unit(&mut rest));
                from = inner.len() - rest.as_str().len();
            }
            // No escape of JSON: the text was not checked. The character stands for itself.
            _ => from = escape + 1,
        }
        escape = find_either(bytes, from, b'\\', b'\\');
        if escape >= bytes.len() {
            out.push_str(inner.get(from..).unwrap_or(""));
            return Cow::Owned(out);
        }
    }
}

/// The character of a `\u` escape whose digits come next, with the second half of a surrogate pair.
fn unit(chars: &mut std::str::Chars<'_>) -> char {
    let Some(first) = hex4(chars) else {
        return char::REPLACEMENT_CHARACTER;
    };
    if (0xD800..0xDC00).contains(&first) {
        let mut ahead = chars.clone();
        if ahead.next() == Some('\\')
            && ahead.next() == Some('u')
            && let Some(second) = hex4(&mut ahead)
            && (0xDC00..0xE000).contains(&second)
        {
            *chars = ahead;
            let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            return char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        }
    }
    char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn hex4(chars: &mut std::str::Chars<'_>) -> Option<u32> {
    let text = chars.as_str();
    let digits = text.get(..4)?;
    let value = u32::from_str_radix(digits, 16).ok()?;
    *chars = text.get(4..)?.chars();
    Some(value)
}

/// Cuts `text` to at most `max` bytes, on a character boundary.
pub fn cut(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded() {
        assert_eq!(unescape("plain é"), "plain é");
        assert!(matches!(unescape("plain"), Cow::Borrowed(_)));
        assert_eq!(unescape(r#"a\n\\\"\/\u0041\t\b\f\r"#), "a\n\\\"/A\t\u{8}\u{c}\r");
        assert_eq!(unescape(r"\ud83d\ude00!"), "😀!");
    }

    #[test]
    fn escapes_that_are_no_character_do_not_hide_the_text() {
        assert_eq!(unescape(r"x\ud800y"), "x\u{fffd}y");
        assert_eq!(unescape(r"x\udc00\ud800\u0041"), "x\u{fffd}\u{fffd}A");
        assert_eq!(unescape(r"\ud800\ud83d\ude00"), "\u{fffd}😀");
    }

    #[test]
    fn text_that_is_no_json_does_not_panic() {
        for text in ["\\", r"\u", r"\u12", r"\u12é4", r"\ud800\u", r"\ud800\", "é\\é"] {
            let _decoded = unescape(text);
        }
    }

    #[test]
    fn cutting_keeps_characters_whole() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("aé", 99), "aé");
    }
}
