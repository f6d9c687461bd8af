//! Names of secrets with something between them and the value: a purpose ("password for the server: x"), a remark
//! in brackets ("token (prod): x"), attributes of an element, an index, the columns of an INSERT, a YAML tag; and names
//! of two words ("licence key: x").

use std::ops::Range;

use super::assign::{byte, in_name, slice, spaces};
use super::loose::{REACH, cell, quoted};
use super::names::{Name, classify};
use super::words::one_of;

/// Most words of a purpose.
const MOST_WORDS: usize = 5;

/// Words before a name that say nothing of its kind, and kinds of keys that people show around.
const NO_KIND: &[&str] = &[
    "the", "an", "this", "that", "your", "my", "our", "its", "their", "his", "her", "each", "every", "any",
    "no", "new", "same", "is", "of", "and", "or", "for", "with", "to", "in", "as", "per", "by", "from",
    "gpg", "pgp", "ssh", "host", "public", "release",
];

/// The value behind `name` with such a thing between.
pub(super) fn qualified(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    purpose(text, name)
        .or_else(|| element(text, name))
        .or_else(|| indexed(text, name))
        .or_else(|| typed(text, name))
        .or_else(|| inserted(text, name))
}

/// `name` with the word before it, where the two together name a secret: "licence key", "api token".
pub(super) fn two_words(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let last = slice(text, name.clone());
    if !one_of(last, &["key", "keys", "token", "secret", "code", "password"]) {
        return None;
    }
    let gap = name.start.checked_sub(1)?;
    if byte(text, gap) != b' ' {
        return None;
    }
    let lead = slice(text, gap.saturating_sub(24)..gap);
    let length = lead.iter().rev().take_while(|b| b.is_ascii_alphabetic()).count();
    let whole = gap - length..name.end;
    let kind = slice(text, gap - length..gap);
    (length >= 2 && !one_of(kind, NO_KIND) && classify(slice(text, whole.clone())) > classify(last))
        .then_some(whole)
}

/// A sign that a value follows, at `at`: where that begins.
fn sign(text: &[u8], at: usize) -> Option<usize> {
    let at = spaces(text, at);
    let width = match slice(text, at..text.len().min(at + 3)) {
        [b'-', b'>', ..] | [b':', b'=', ..] => 2,
        [0xE2, 0x86, 0x92] => 3,
        [b':' | b'=', ..] => 1,
        _ => return None,
    };
    Some(spaces(text, at + width))
}

/// `password for the server: x`, `token (prod) = x`, `pass phrase: x`.
fn purpose(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let mut at = spaces(text, name.end);
    if at == name.end {
        return None;
    }
    if byte(text, at) == b'(' {
        let inside = slice(text, at + 1..text.len().min(at + 26));
        let close = inside.iter().position(|b| matches!(b, b')' | b'\n' | b'('))?;
        if inside.get(close) != Some(&b')') {
            return None;
        }
        return cell(text, sign(text, at + close + 2)?);
    }
    for place in 0..=MOST_WORDS {
        if place > 0
            && let Some(start) = sign(text, at)
        {
            return cell(text, start);
        }
        at = spaces(text, at);
        let word = slice(text, at..text.len().min(at + 24));
        let length = word.iter().take_while(|b| in_name(**b)).count();
        let word = word.get(..length)?;
        let leads = one_of(word, &["for", "of", "to", "on", "in", "at", "phrase"]);
        if length == 0 || place == 0 && !leads {
            return None;
        }
        at += length;
    }
    None
}

/// `<Password type="plain">x</Password>`.
fn element(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    if name.start == 0 || byte(text, name.start - 1) != b'<' || byte(text, name.end) != b' ' {
        return None;
    }
    let window = slice(text, name.end..text.len().min(name.end + REACH));
    let close = window.iter().position(|b| matches!(b, b'>' | b'<' | b'\n'))?;
    if window.get(close) != Some(&b'>') || window.get(close.wrapping_sub(1)) == Some(&b'/') {
        return None;
    }
    let start = name.end + close + 1;
    let inside = slice(text, start..text.len().min(start + REACH * 2));
    let length = inside.iter().position(|b| *b == b'<')?;
    Some(start..start + length)
}

/// `passwd[root]=x`, `secrets["db"]: x`.
fn indexed(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    if byte(text, name.end) != b'[' {
        return None;
    }
    let window = slice(text, name.end..text.len().min(name.end + 32));
    let close = window.iter().position(|b| matches!(b, b']' | b'\n'))?;
    (window.get(close) == Some(&b']')).then(|| cell(text, sign(text, name.end + close + 1)?))?
}

/// `password: !!str x`, `password ::= x`.
fn typed(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let at = spaces(text, name.end);
    let rest = slice(text, at..text.len().min(at + 24));
    if rest.starts_with(b"::=") {
        return cell(text, spaces(text, at + 3));
    }
    let tag = spaces(text, at + 1);
    if rest.first() != Some(&b':')
        || !slice(text, tag..text.len().min(tag + 5)).eq_ignore_ascii_case(b"!!str")
    {
        return None;
    }
    cell(text, spaces(text, tag + 5))
}

/// `INSERT INTO t (name, password) VALUES ('bob', 'x')`: the value in the place of the column.
fn inserted(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    if !matches!(byte(text, spaces(text, name.end)), b',' | b')')
        || classify(slice(text, name.clone())) != Name::Strong
    {
        return None;
    }
    let lead = slice(text, name.start.saturating_sub(REACH * 2)..name.start);
    let open = lead.iter().rposition(|b| *b == b'(')?;
    let place = memchr::memchr_iter(b',', lead.get(open..)?).count();
    let rest = slice(text, name.end..text.len().min(name.end + REACH * 2));
    let close = rest.iter().position(|b| *b == b')')?;
    let mut at = spaces(text, name.end + close + 1);
    if !slice(text, at..text.len().min(at + 6)).eq_ignore_ascii_case(b"values") {
        return None;
    }
    at = spaces(text, at + 6);
    if byte(text, at) != b'(' {
        return None;
    }
    at += 1;
    for _ in 0..place {
        at = spaces(text, at);
        at = match quoted(text, at) {
            Some((_, end)) => end,
            None => {
                at + slice(text, at..text.len().min(at + REACH))
                    .iter()
                    .position(|b| *b == b',')?
            }
        };
        at = spaces(text, at);
        if byte(text, at) != b',' {
            return None;
        }
        at += 1;
    }
    quoted(text, spaces(text, at)).map(|q| q.0)
}

#[cfg(test)]
mod tests {
    use super::super::found;

    #[test]
    fn something_may_stand_between_name_and_value() {
        for text in [
            "password for the build server: blue77otter",
            "the pw for the db -> blue77otter",
            "token (prod): blue77otter",
            "pass phrase: blue77otter",
            "API key for staging = blue77otter",
            "licence key: blue77otter",
            "<Password type=\"plain\">blue77otter</Password>",
            "passwd[root]=blue77otter",
            "password: !!str blue77otter",
            "password ::= blue77otter",
            "INSERT INTO users (name, password) VALUES ('bob', 'blue77otter');",
        ] {
            assert_eq!(found(text), ["blue77otter"], "{text}");
        }
    }

    #[test]
    fn talk_with_a_colon_later_holds_none() {
        for text in [
            "password for the build server: see the vault",
            "token for each request (see docs): required",
            "The primary key of users: id_2024",
            "tokens in prompt: 1200",
            "<password type=\"string\">Password</password>",
            "INSERT INTO users (name, password) VALUES (:name, :password)",
            "Passwords in version 2: hashed",
            "keys[0] = value",
            "Release GPG key: 9554F04D7259F04124DE6B476D5A82AC7E37093B",
            "says which user is the token requested on behalf of",
        ] {
            assert!(found(text).is_empty(), "{text}: {:?}", found(text));
        }
    }
}
