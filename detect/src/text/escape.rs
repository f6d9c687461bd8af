//! Characters spelled as escapes: HTML entities, `\u0069`, `\x69`, `%69`.

/// One decoded escape at the start of a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Escape {
    pub(super) character: char,
    /// Bytes it takes.
    pub(super) length: usize,
}

const NAMED: [(&str, char); 14] = [
    ("lt;", '<'),
    ("gt;", '>'),
    ("amp;", '&'),
    ("quot;", '"'),
    ("apos;", '\''),
    ("nbsp;", ' '),
    ("num;", '#'),
    ("colon;", ':'),
    ("sol;", '/'),
    ("period;", '.'),
    ("lowbar;", '_'),
    ("zwnj;", '\u{200C}'),
    ("zwj;", '\u{200D}'),
    ("ZeroWidthSpace;", '\u{200B}'),
];

/// Reads the escape that starts with this byte (`&`, `\` or `%`), if it is one.
pub(super) fn escape(text: &str) -> Option<Escape> {
    match text.as_bytes().first()? {
        b'&' => entity(text),
        b'\\' => backslash(text),
        b'%' => percent(text),
        _ => None,
    }
}

fn entity(text: &str) -> Option<Escape> {
    let Some(number) = text.strip_prefix("&#") else {
        let name = text.get(1..)?;
        let (spelled, character) = NAMED.iter().find(|(spelled, _)| name.starts_with(spelled))?;
        return Some(Escape {
            character: *character,
            length: spelled.len() + 1,
        });
    };
    let (digits, radix, mut length) = match number.as_bytes().first()? {
        b'x' | b'X' => (number.get(1..)?, 16, 3),
        _ => (number, 10, 2),
    };
    let taken = digits
        .bytes()
        .take(8)
        .take_while(|b| char::from(*b).is_digit(radix))
        .count();
    let code = u32::from_str_radix(digits.get(..taken)?, radix).ok()?;
    length += taken;
    if digits.as_bytes().get(taken) == Some(&b';') {
        length += 1;
    }
    Some(Escape {
        character: char::from_u32(code)?,
        length,
    })
}

fn backslash(text: &str) -> Option<Escape> {
    let rest = text.get(2..)?;
    match text.as_bytes().get(1)? {
        b'u' => {
            if let Some(braced) = rest.strip_prefix('{') {
                let end = braced.bytes().take(7).position(|b| b == b'}')?;
                let code = u32::from_str_radix(braced.get(..end)?, 16).ok()?;
                return Some(Escape {
                    character: char::from_u32(code)?,
                    length: end + 4,
                });
            }
            let high = hex4(rest)?;
            if (0xD800..0xDC00).contains(&high) {
                let low = hex4(rest.get(4..)?.strip_prefix("\\u")?)?;
                let low = low.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
                let code = 0x10000 + ((high - 0xD800) << 10) + low;
                return Some(Escape {
                    character: char::from_u32(code)?,
                    length: 12,
                });
            }
            Some(Escape {
                character: char::from_u32(high)?,
                length: 6,
            })
        }
        b'x' => Some(Escape {
            character: char::from_u32(hex(rest.get(..2)?)?)?,
            length: 4,
        }),
        _ => None,
    }
}

fn percent(text: &str) -> Option<Escape> {
    // Only ASCII: longer sequences are ordinary in links and carry nothing that an ASCII spelling could hide.
    let code = hex(text.get(1..3)?)?;
    (0x20..0x7F).contains(&code).then_some(())?;
    Some(Escape {
        character: char::from_u32(code)?,
        length: 3,
    })
}

fn hex4(text: &str) -> Option<u32> {
    hex(text.get(..4)?)
}

fn hex(digits: &str) -> Option<u32> {
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(char, usize)> {
        escape(text).map(|e| (e.character, e.length))
    }

    #[test]
    fn every_spelling_of_one_letter() {
        assert_eq!(read("&#105;gn"), Some(('i', 6)));
        assert_eq!(read("&#x69;gn"), Some(('i', 6)));
        assert_eq!(read("&#105gn"), Some(('i', 5)));
        assert_eq!(read("\\u0069gn"), Some(('i', 6)));
        assert_eq!(read("\\u{69}gn"), Some(('i', 6)));
        assert_eq!(read("\\x69gn"), Some(('i', 4)));
        assert_eq!(read("%69gn"), Some(('i', 3)));
        assert_eq!(read("\\ud83d\\ude00"), Some(('\u{1F600}', 12)));
        assert_eq!(read("&lt;system"), Some(('<', 4)));
    }

    #[test]
    fn what_is_no_escape_stays() {
        for text in [
            "& more",
            "\\users",
            "100% of",
            "&#;",
            "\\ud83d alone",
            "%é",
            "&",
            "\\",
            "%",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
