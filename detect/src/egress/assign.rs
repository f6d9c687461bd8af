//! Named secrets inside text: `.env` and INI lines, shell exports, YAML, JSON fragments, code, query strings,
//! XML, command-line flags, authorization headers.

use std::ops::Range;

use super::class::Class;
use super::names::{Name, classify};
use super::span::Hit;
use super::value::{is_literal, looks_opaque};
use super::words::{one_of, run_length};

/// Longest identifier on either side of the word that was found.
const MAX_NAME: usize = 64;
/// Longest value.
const MAX_VALUE: usize = 512;

/// Authorization schemes other than `Bearer` that are followed by a credential.
const SCHEMES: &[&str] = &[
    "basic",
    "token",
    "apikey",
    "api-key",
    "key",
    "bot",
    "digest",
    "hmac",
    "splunk",
    "ssws",
    "genie",
    "jwt",
    "negotiate",
];

/// How a value is joined to its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Joint {
    Equals,
    Colon,
    Space,
    Markup,
}

/// A value and how it is written.
struct Value {
    span: Range<usize>,
    quoted: bool,
}

pub(super) fn byte(text: &[u8], at: usize) -> u8 {
    text.get(at).copied().unwrap_or(0)
}

pub(super) fn slice(text: &[u8], span: Range<usize>) -> &[u8] {
    text.get(span).unwrap_or_default()
}

pub(super) const fn in_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

/// The identifier around `at`.
pub(crate) fn identifier(text: &[u8], at: usize) -> Range<usize> {
    let head = slice(text, at.saturating_sub(MAX_NAME)..at);
    let mut start = at - head.iter().rev().take_while(|b| in_name(**b)).count();
    let tail = slice(text, at..text.len().min(at + MAX_NAME));
    let mut end = at + tail.iter().take_while(|b| in_name(**b)).count();
    while start < at && matches!(byte(text, start), b'-' | b'.') {
        start += 1;
    }
    while end > at && matches!(byte(text, end - 1), b'-' | b'.') {
        end -= 1;
    }
    start..end
}

/// The secret assigned to the identifier `name`, if it is one.
pub(crate) fn assignment(text: &[u8], name: &Range<usize>) -> Option<Hit> {
    // The quick way out: most words of prose are followed by nothing of an assignment.
    let next = byte(text, name.end);
    if !matches!(
        next,
        b'=' | b':' | b'"' | b'\'' | b' ' | b'\t' | b'\\' | b']' | b'>' | b'`' | b'\n' | b'\r' | b'(' | b','
    ) {
        return None;
    }
    let word = slice(text, name.clone());
    let strength = classify(word);
    if strength == Name::Plain {
        return None;
    }
    let (joint, at, spaced) = joint(text, name)?;
    let value = value(text, at, joint)?;
    let value = if one_of(last_word(word), &["authorization", "auth"]) {
        credential_of_scheme(text, value)?
    } else if let Some(typed) = after_type(text, &value) {
        typed
    } else {
        value
    };
    let literal = slice(text, value.span.clone());
    let opaque = looks_opaque(literal);
    // `-passin pass:x`.
    let pass_source = joint == Joint::Colon
        && !spaced
        && slice(text, name.start.saturating_sub(9)..name.start)
            .windows(5)
            .any(|w| w == b"-pass");
    let cut_off = !value.quoted
        && text
            .get(value.span.end..)
            .is_some_and(|rest| rest.starts_with(b".."));
    let accepted = is_literal(literal)
        && literal.len() >= 4
        && !literal.starts_with(b"--")
        && !cut_off
        && match (strength, value.quoted) {
            (Name::Plain, _) => false,
            (Name::Weak, _) if pass_source => true,
            (Name::Weak, _) => {
                opaque
                    && (spaced || value.quoted || joint != Joint::Colon || begins_line(text, name.start))
                    && !is_expression(text, &value, literal)
            }
            (Name::Strong, true) => opaque || !literal.contains(&b' '),
            (Name::Strong, false) => {
                !is_expression(text, &value, literal)
                    && match joint {
                        Joint::Equals => opaque || !spaced,
                        // `a:secret:b` is a path of names.
                        Joint::Colon if !spaced => opaque && begins_line(text, name.start),
                        Joint::Colon => {
                            let password =
                                super::words::contains(word, "pass") || super::words::contains(word, "pwd");
                            opaque
                                || (password
                                    && begins_line(text, name.start)
                                    && ends_line(text, value.span.end))
                        }
                        Joint::Space | Joint::Markup => true,
                    }
            }
        };
    if !accepted {
        return None;
    }
    let class = if super::token::is_aws_secret(literal) && super::words::contains(word, "secret") {
        Class::AwsKey
    } else {
        Class::NamedSecret
    };
    let documented = literal.ends_with(b"EXAMPLEKEY");
    Some(Hit {
        documented,
        ..Hit::new(class, value.span)
    })
}

fn last_word(name: &[u8]) -> &[u8] {
    name.rsplit(|b| !b.is_ascii_alphanumeric()).next().unwrap_or(name)
}

/// What joins name and value, where the value begins, and whether spaces stand around the joint.
fn joint(text: &[u8], name: &Range<usize>) -> Option<(Joint, usize, bool)> {
    let mut at = name.end;
    if byte(text, at) == b'>' && name.start > 0 && byte(text, name.start - 1) == b'<' {
        return Some((Joint::Markup, at + 1, false));
    }
    // The closing quote or bracket of a quoted name, escaped or not.
    let closer = at;
    for _ in 0..6 {
        match byte(text, at) {
            b'\\' if matches!(byte(text, at + 1), b'"' | b'\'' | b'\\') => at += 1,
            b'"' | b'\'' | b']' | b'`' => at += 1,
            _ => break,
        }
    }
    let quoted_name = at > closer;
    let gap = spaces(text, at);
    match byte(text, gap) {
        b'=' | b':' => {
            let colon = byte(text, gap) == b':';
            let mut after = gap + 1;
            let arrow = matches!(byte(text, after), b'=' | b'>' | b'~');
            if arrow {
                after += 1;
            }
            if byte(text, after) == b'=' {
                after += 1;
            }
            if colon && byte(text, after) == b'/' && byte(text, after + 1) == b'/' {
                return None;
            }
            let start = spaces(text, after);
            let joint = if colon && !arrow {
                Joint::Colon
            } else {
                Joint::Equals
            };
            Some((joint, start, start > after || gap > at))
        }
        b'(' if gap == at && !quoted_name && matches!(byte(text, at + 1), b'"' | b'\'') => {
            let end = value(text, at + 1, Joint::Equals)?.span;
            looks_opaque(slice(text, end)).then_some((Joint::Equals, at + 1, false))
        }
        _ if next_member_is_value(text, at).is_some() => {
            let start = next_member_is_value(text, at)?;
            Some((Joint::Space, start, true))
        }
        b',' if quoted_name && is_flag(text, name) => Some((Joint::Space, spaces(text, gap + 1), true)),
        _ if gap > at || quoted_name => {
            let words = slice(text, gap..text.len().min(gap + 4));
            if words.starts_with(b"is ") {
                let start = spaces(text, gap + 3);
                let end = token_end(text, start);
                return looks_opaque(slice(text, start..end)).then_some((Joint::Space, start, true));
            }
            if let Some(start) = said_later(text, gap) {
                return Some((Joint::Space, start, true));
            }
            let bare = slice(text, gap..token_end(text, gap));
            let config = slice(text, name.clone()).iter().any(|b| matches!(b, b'_' | b'.'))
                && bare.len() >= 6
                && bare.iter().any(u8::is_ascii_digit)
                && bare.iter().any(u8::is_ascii_alphabetic)
                && looks_opaque(bare);
            if config && gap > at && !quoted_name {
                return Some((Joint::Space, gap, true));
            }
            let flag = is_flag(text, name) && byte(text, gap) != b'-';
            let sql = matches!(byte(text, gap), b'\'') && gap > at && !quoted_name;
            (flag || sql || in_netrc(text, name.start)).then_some((Joint::Space, gap, true))
        }
        _ => None,
    }
}

/// `the password for the box is hunter2`: where the value begins.
fn said_later(text: &[u8], at: usize) -> Option<usize> {
    let window = slice(text, at..text.len().min(at + 48));
    let clause = window
        .iter()
        .position(|b| matches!(b, b'.' | b'\n' | b';' | b',' | b'?' | b'"'))
        .unwrap_or(window.len());
    let verb = window.get(..clause)?.windows(4).position(|w| w == b" is ")?;
    let start = spaces(text, at + verb + 4);
    let end = token_end(text, start);
    let literal = slice(text, start..end);
    let mixed = literal.iter().any(u8::is_ascii_digit) && literal.iter().any(u8::is_ascii_alphabetic);
    (mixed && literal.len() >= 6 && run_length(literal) < 5.0).then_some(start)
}

/// The literal behind `IDENTIFIED BY`, which ends at `at`.
pub(crate) fn identified_by(text: &[u8], at: usize) -> Option<Hit> {
    let found = value(text, spaces(text, at), Joint::Space)?;
    let literal = slice(text, found.span.clone());
    (found.quoted && is_literal(literal)).then(|| Hit::new(Class::NamedSecret, found.span))
}

pub(super) fn spaces(text: &[u8], at: usize) -> usize {
    at + slice(text, at..text.len().min(at + 12))
        .iter()
        .take_while(|b| matches!(b, b' ' | b'\t'))
        .count()
}

/// `--password`, `-token`.
fn is_flag(text: &[u8], name: &Range<usize>) -> bool {
    name.start > 0
        && byte(text, name.start - 1) == b'-'
        && (name.start < 2 || !byte(text, name.start - 2).is_ascii_alphanumeric())
}

/// `machine HOST login USER password VALUE`.
fn in_netrc(text: &[u8], start: usize) -> bool {
    let before = slice(text, start.saturating_sub(96)..start);
    let mut words = before.rsplit(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    words.next().is_some()
        && words
            .next()
            .is_some_and(|w| one_of(w, &["login", "user", "username"]))
}

/// `name: DB_PASSWORD` followed by a member `value`: where that value begins.
fn next_member_is_value(text: &[u8], at: usize) -> Option<usize> {
    let window = slice(text, at..text.len().min(at + 48));
    let skip = window
        .iter()
        .position(|b| !matches!(b, b' ' | b'\t' | b'\n' | b'\r' | b',' | b'"' | b'\'' | b'\\'))?;
    let rest = window.get(skip..)?;
    let word = rest.get(..5)?;
    if skip == 0 || !word.eq_ignore_ascii_case(b"value") {
        return None;
    }
    let joint = rest.get(5..)?.iter().position(|b| matches!(b, b':' | b'='))?;
    let clean = rest
        .get(5..5 + joint)?
        .iter()
        .all(|b| matches!(b, b' ' | b'"' | b'\'' | b'\\'));
    clean.then(|| spaces(text, at + skip + 5 + joint + 1))
}

/// Reads the value at `at`.
fn value(text: &[u8], at: usize, joint: Joint) -> Option<Value> {
    if joint == Joint::Markup {
        let window = slice(text, at..text.len().min(at + MAX_VALUE));
        let end = window.iter().position(|b| *b == b'<')?;
        return Some(Value {
            span: at..at + end,
            quoted: true,
        });
    }
    let mut start = at;
    // b"", r"", f"", @"" and escaped quotes.
    if matches!(byte(text, start), b'b' | b'r' | b'f' | b'u' | b'@' | b'L')
        && matches!(byte(text, start + 1), b'"' | b'\'')
    {
        start += 1;
    }
    let escapes = slice(text, start..text.len().min(start + 8))
        .iter()
        .take_while(|b| **b == b'\\')
        .count();
    let quote = byte(text, start + escapes);
    if matches!(quote, b'"' | b'\'' | b'`') {
        start += escapes + 1;
        let window = slice(text, start..text.len().min(start + MAX_VALUE));
        let mut end = window
            .iter()
            .position(|b| *b == quote || *b == b'\n')
            .unwrap_or(window.len());
        while end > 0 && window.get(end - 1) == Some(&b'\\') {
            end -= 1;
        }
        return Some(Value {
            span: start..start + end,
            quoted: true,
        });
    }
    let end = token_end(text, start);
    (end > start).then_some(Value {
        span: start..end,
        quoted: false,
    })
}

/// End of an unquoted value.
pub(super) fn token_end(text: &[u8], start: usize) -> usize {
    let limit = text.len().min(start + MAX_VALUE);
    let mut at = start;
    while at < limit {
        match byte(text, at) {
            b'"' | b'\'' | b'`' | b'<' | b'>' | b'|' | b')' | b'}' | b']' | b'\\' => break,
            b if b.is_ascii_whitespace() => break,
            // A separator only where another pair or nothing follows: passwords hold such signs too.
            b';' | b'&' | b',' => {
                let next = byte(text, at + 1);
                let name = slice(text, at + 1..limit)
                    .iter()
                    .take(MAX_NAME)
                    .take_while(|b| in_name(**b))
                    .count();
                let pair = name > 0 && matches!(byte(text, at + 1 + name), b'=' | b':');
                if next == 0 || next.is_ascii_whitespace() || pair || matches!(next, b'"' | b'\'' | b'&') {
                    break;
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    while at > start && matches!(byte(text, at - 1), b'.' | b',' | b';' | b':') {
        at -= 1;
    }
    at
}

/// `password: str = "x"`: the value behind a type.
fn after_type(text: &[u8], found: &Value) -> Option<Value> {
    if found.quoted
        || !one_of(
            slice(text, found.span.clone()),
            &["str", "string", "&str", "secretstr", "text"],
        )
    {
        return None;
    }
    let gap = spaces(text, found.span.end);
    (byte(text, gap) == b'=').then(|| value(text, spaces(text, gap + 1), Joint::Equals))?
}

/// The credential behind a scheme: `Basic dXNlcjpwYXNz`. None for `Bearer`, which has a class of its own.
fn credential_of_scheme(text: &[u8], found: Value) -> Option<Value> {
    let whole = slice(text, found.span.clone());
    let scheme_len = whole
        .iter()
        .take_while(|b| b.is_ascii_alphabetic() || **b == b'-')
        .count();
    let scheme = whole.get(..scheme_len)?;
    if one_of(scheme, &["bearer"]) {
        return None;
    }
    if !one_of(scheme, SCHEMES) {
        return Some(found);
    }
    let start = spaces(text, found.span.start + scheme_len);
    let end = token_end(text, start);
    (end >= start + 6).then_some(Value {
        span: start..end,
        quoted: true,
    })
}

/// Code, not a literal: a call, an index, a member, another variable.
fn is_expression(text: &[u8], value: &Value, literal: &[u8]) -> bool {
    if value.quoted {
        return false;
    }
    let next = spaces(text, value.span.end);
    let opened = matches!(byte(text, value.span.end), b'<' | b'(' | b'[')
        || matches!(byte(text, next), b'(' | b'{' | b'[');
    if opened
        || matches!(literal.first(), Some(b'&' | b'*' | b':'))
        || literal.windows(2).any(|w| w == b"::" || w == b"->")
    {
        return true;
    }
    if literal.starts_with(b"__") {
        return true;
    }
    let words = literal.iter().all(|b| in_name(*b)) && !literal.iter().any(u8::is_ascii_digit);
    literal.contains(&b'(')
        || literal.contains(&b'[')
        || literal.contains(&b'{')
        || literal.starts_with(b"$")
        || (words && literal.contains(&b'.') && run_length(literal) >= 3.0)
        || (words && classify(literal) != Name::Plain)
        || (words && run_length(literal) >= 4.5 && matches!(byte(text, value.span.end), b')' | b',' | b']'))
}

/// Whether nothing but indentation, list marks and quotes stand before `start` on its line.
fn begins_line(text: &[u8], start: usize) -> bool {
    let before = slice(text, start.saturating_sub(40)..start);
    let lead = before.rsplit(|b| *b == b'\n').next().unwrap_or_default();
    lead.iter().all(|b| {
        matches!(
            b,
            b' ' | b'\t' | b'-' | b'+' | b'{' | b',' | b'"' | b'\'' | b'#' | b'*' | b'>' | b'\r' | b'\\'
        )
    })
}

/// Whether the line ends behind `end`.
fn ends_line(text: &[u8], end: usize) -> bool {
    let gap = spaces(text, end);
    matches!(byte(text, gap), 0 | b'\n' | b'\r' | b',' | b'}' | b'\\' | b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, word: &str) -> Option<String> {
        let at = text.find(word)?;
        let name = identifier(text.as_bytes(), at);
        assignment(text.as_bytes(), &name).and_then(|h| text.get(h.span).map(str::to_owned))
    }

    #[test]
    fn assignments() {
        for (text, word, secret) in [
            (
                "export DB_PASSWORD=iqpsTXarKDH; ./run.sh",
                "PASSWORD",
                "iqpsTXarKDH",
            ),
            (
                "mysql -u root --password=IyPSqg5cTpw orders",
                "password",
                "IyPSqg5cTpw",
            ),
            ("\"password\": \"fNM6OB01ymo\",", "password", "fNM6OB01ymo"),
            ("api_key: k81hhs7", "key", "k81hhs7"),
            ("  db.password = blue9otter", "password", "blue9otter"),
            ("password: str = \"tr0ub4dor\"", "password", "tr0ub4dor"),
            ("<password>hunter2</password>", "password", "hunter2"),
            ("Authorization: Basic dXNlcjpwYXNz", "Auth", "dXNlcjpwYXNz"),
            ("tool --token abc123def --x", "token", "abc123def"),
            ("{\\\"secret\\\": \\\"blue-otter-9\\\"}", "secret", "blue-otter-9"),
            ("- name: DB_PASSWORD\n  value: hunter2", "PASSWORD", "hunter2"),
            ("machine h login u password pw9x", "password", "pw9x"),
            ("ALTER USER a PASSWORD 'otter99'", "PASSWORD", "otter99"),
            ("?user=a&password=b7c8d&x=1", "password", "b7c8d"),
            ("my password is hunter2.", "password", "hunter2"),
        ] {
            assert_eq!(found(text, word).as_deref(), Some(secret), "{text}");
        }
    }

    #[test]
    fn no_assignments() {
        for (text, word) in [
            ("password = os.environ[\"DB_PASSWORD\"]", "password"),
            ("token = get_token(user)", "token"),
            ("SELECT password_hash IS NOT NULL", "password"),
            ("the secret to speed is batching", "secret"),
            ("password = self.password", "password"),
            ("f(password=password)", "password"),
            ("API_KEY=$OTHER", "KEY"),
            ("token: string", "token"),
            ("Note on the secret: batching is key", "secret"),
            ("password: ${DB}", "password"),
            ("Authorization: Bearer abc", "Auth"),
        ] {
            assert_eq!(found(text, word), None, "{text}");
        }
    }
}
