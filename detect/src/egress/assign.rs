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
const SCHEMES: &[&str] = &["basic", "token", "apikey", "api-key", "key", "bot", "digest", "hmac", "splunk", "ssws", "genie", "jwt", "negotiate"];

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

fn byte(text: &[u8], at: usize) -> u8 {
    text.get(at).copied().unwrap_or(0)
}

fn slice(text: &[u8], span: Range<usize>) -> &[u8] {
    text.get(span).unwrap_or_default()
}

const fn in_name(b: u8) -> bool {
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
    if !matches!(next, b'=' | b':' | b'"' | b'\'' | b' ' | b'\t' | b'\\' | b']' | b'>' | b'`' | b'\n' | b'\r' | b')' | b',') {
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
    let cut_off = !value.quoted && text.get(value.span.end..).is_some_and(|rest| rest.starts_with(b".."));
    let accepted = is_literal(literal)
        && !cut_off
        && match (strength, value.quoted) {
            (Name::Plain, _) => false,
            (Name::Weak, _) => opaque && (spaced || value.quoted || joint != Joint::Colon || begins_line(text, name.start)) && !is_expression(text, &value, literal),
            (Name::Strong, true) => opaque || !literal.contains(&b' '),
            (Name::Strong, false) => {
                !is_expression(text, &value, literal)
                    && match joint {
                        Joint::Equals => opaque || !spaced,
                        // `a:secret:b` is a path of names.
                        Joint::Colon if !spaced => opaque && begins_line(text, name.start),
                        Joint::Colon => opaque || (begins_line(text, name.start) && ends_line(text, value.span.end)),
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
    Some(Hit { documented, ..Hit::new(class, value.span) })
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
            let joint = if colon && !arrow { Joint::Colon } else { Joint::Equals };
            Some((joint, start, start > after || gap > at))
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
            let flag = is_flag(text, name) && byte(text, gap) != b'-';
            let sql = matches!(byte(text, gap), b'\'') && gap > at && !quoted_name;
            (flag || sql || in_netrc(text, name.start)).then_some((Joint::Space, gap, true))
        }
        _ => None,
    }
}

fn spaces(text: &[u8], at: usize) -> usize {
    at + slice(text, at..text.len().min(at + 12)).iter().take_while(|b| matches!(b, b' ' | b'\t')).count()
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
    super::words::contains(before, "login ") && byte(text, start.saturating_sub(1)).is_ascii_whitespace()
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
    let clean = rest.get(5..5 + joint)?.iter().all(|b| matches!(b, b' ' | b'"' | b'\'' | b'\\'));
    clean.then(|| spaces(text, at + skip + 5 + joint + 1))
}

/// Reads the value at `at`.
fn value(text: &[u8], at: usize, joint: Joint) -> Option<Value> {
    if joint == Joint::Markup {
        let window = slice(text, at..text.len().min(at + MAX_VALUE));
        let end = window.iter().position(|b| *b == b'<')?;
        return Some(Value { span: at..at + end, quoted: true });
    }
    let mut start = at;
    // b"", r"", f"", @"" and escaped quotes.
    if matches!(byte(text, start), b'b' | b'r' | b'f' | b'u' | b'@' | b'L') && matches!(byte(text, start + 1), b'"' | b'\'') {
        start += 1;
    }
    let escapes = slice(text, start..text.len().min(start + 8)).iter().take_while(|b| **b == b'\\').count();
    let quote = byte(text, start + escapes);
    if matches!(quote, b'"' | b'\'' | b'`') {
        start += escapes + 1;
        let window = slice(text, start..text.len().min(start + MAX_VALUE));
        let mut end = window.iter().position(|b| *b == quote || *b == b'\n').unwrap_or(window.len());
        while end > 0 && window.get(end - 1) == Some(&b'\\') {
            end -= 1;
        }
        return Some(Value { span: start..start + end, quoted: true });
    }
    let end = token_end(text, start);
    (end > start).then_some(Value { span: start..end, quoted: false })
}

/// End of an unquoted value.
fn token_end(text: &[u8], start: usize) -> usize {
    let limit = text.len().min(start + MAX_VALUE);
    let mut at = start;
    while at < limit {
        match byte(text, at) {
            b'"' | b'\'' | b'`' | b'<' | b'>' | b'|' | b')' | b'}' | b']' | b'\\' => break,
            b if b.is_ascii_whitespace() => break,
            // A separator only where another pair or nothing follows: passwords hold such signs too.
            b';' | b'&' | b',' => {
                let next = byte(text, at + 1);
                let name = slice(text, at + 1..limit).iter().take(MAX_NAME).take_while(|b| in_name(**b)).count();
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
    if found.quoted || !one_of(slice(text, found.span.clone()), &["str", "string", "&str", "secretstr", "text"]) {
        return None;
    }
    let gap = spaces(text, found.span.end);
    (byte(text, gap) == b'=').then(|| value(text, spaces(text, gap + 1), Joint::Equals))?
}

/// The credential behind a scheme: `Basic dXNlcjpwYXNz`. None for `Bearer`, which has a class of its own.
fn credential_of_scheme(text: &[u8], found: Value) -> Option<Value> {
    let whole = slice(text, found.span.clone());
    let scheme_len = whole.iter().take_while(|b| b.is_ascii_alphabetic() || **b == b'-').count();
    let scheme = whole.get(..scheme_len)?;
    if one_of(scheme, &["bearer"]) {
        return None;
    }
    if !one_of(scheme, SCHEMES) {
        return Some(found);
    }
    let start = spaces(text, found.span.start + scheme_len);
    let end = token_end(text, start);
    (end >= start + 6).then_some(Value { span: start..end, quoted: true })
}

/// Code, not a literal: a call, an index, a member, another variable.
fn is_expression(text: &[u8], value: &Value, literal: &[u8]) -> bool {
    if value.quoted {
        return false;
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
    lead.iter().all(|b| matches!(b, b' ' | b'\t' | b'-' | b'+' | b'{' | b',' | b'"' | b'\'' | b'#' | b'*' | b'>' | b'\r' | b'\\'))
}

/// Whether the line ends behind `end`.
fn ends_line(text: &[u8], end: usize) -> bool {
    let gap = spaces(text, end);
    matches!(byte(text, gap), 0 | b'\n' | b'\r' | b',' | b'}' | b'\\' | b'#')
}

/// The password in the userinfo of a URL whose `://` stands at `at`.
pub(crate) fn url_password(text: &[u8], at: usize) -> Option<Hit> {
    let start = at + 3;
    let window = slice(text, start..text.len().min(start + 300));
    let end = window
        .iter()
        .position(|b| b.is_ascii_whitespace() || matches!(b, b'/' | b'?' | b'#' | b'"' | b'\'' | b'<' | b'>' | b'`' | b'\\'))
        .unwrap_or(window.len());
    let authority = window.get(..end)?;
    let sign = authority.iter().rposition(|b| *b == b'@')?;
    let userinfo = authority.get(..sign)?;
    let colon = userinfo.iter().position(|b| *b == b':')?;
    let password = userinfo.get(colon + 1..)?;
    let user = userinfo.get(..colon)?;
    let stands_for_itself = password == user && run_length(password) >= 4.0 && one_of(password, &["user", "username", "password"]);
    let literal = !password.is_empty() && !stands_for_itself && (is_literal(password) || (password.len() < 3 && password.is_ascii()));
    let name_only = one_of(password, &["password", "pass", "pw", "pwd", "port", "secret", "token"]);
    (literal && !name_only).then(|| Hit::new(Class::NamedSecret, start + colon + 1..start + sign))
}

/// Commands whose flags carry a password, and the flags.
const COMMANDS: &[(&str, &[&str], bool)] = &[
    ("curl", &["-u", "--user", "-U", "--proxy-user"], true),
    ("http", &["-a", "--auth"], true),
    ("https", &["-a", "--auth"], true),
    ("sshpass", &["-p"], false),
    ("mysql", &["-p"], false),
    ("mysqldump", &["-p"], false),
    ("mysqladmin", &["-p"], false),
    ("mariadb", &["-p"], false),
    ("redis-cli", &["-a"], false),
    ("mongosh", &["-p"], false),
    ("mongo", &["-p"], false),
    ("docker", &["-p"], false),
    ("podman", &["-p"], false),
    ("helm", &["-p"], false),
    ("mosquitto_pub", &["-P"], false),
    ("mosquitto_sub", &["-P"], false),
    ("ldapsearch", &["-w"], false),
    ("unzip", &["-P"], false),
    ("zip", &["-P"], false),
    ("sqlcmd", &["-P"], false),
];

/// The password among the flags of the command that begins at `at`.
pub(crate) fn command(text: &[u8], at: usize) -> Option<Hit> {
    if at > 0 && in_name(byte(text, at - 1)) {
        return None;
    }
    let name_len = slice(text, at..text.len().min(at + 24)).iter().take_while(|b| in_name(**b)).count();
    let name = slice(text, at..at + name_len);
    let (_, flags, pair) = COMMANDS.iter().find(|(command, _, _)| name == command.as_bytes())?;
    let login = one_of(name, &["docker", "podman", "helm"]);
    let window = slice(text, at..text.len().min(at + 400));
    let line_end = window.iter().position(|b| matches!(b, b'\n' | b'|' | b';')).unwrap_or(window.len());
    if login && !super::words::contains(window.get(..line_end)?, " login") {
        return None;
    }
    let mut here = name_len;
    while here < line_end {
        here += window.get(here..line_end)?.iter().take_while(|b| b.is_ascii_whitespace()).count();
        let len = window.get(here..line_end)?.iter().take_while(|b| !b.is_ascii_whitespace()).count();
        let word = window.get(here..here + len)?;
        if word == name {
            return None;
        }
        for flag in *flags {
            let Some(rest) = word.strip_prefix(flag.as_bytes()) else { continue };
            let attached = !rest.is_empty();
            if attached && flag.len() > 2 && !rest.starts_with(b"=") {
                continue;
            }
            let mysql = flag == &"-p" && (name.starts_with(b"mysql") || name.starts_with(b"maria"));
            if !attached && mysql {
                continue;
            }
            let mut start = at + here + flag.len();
            if !attached {
                start = spaces(text, start);
            } else if rest.starts_with(b"=") {
                start += 1;
            }
            let quote = byte(text, start);
            let (from, to) = if matches!(quote, b'"' | b'\'') {
                let inside = slice(text, start + 1..text.len().min(start + 200));
                (start + 1, start + 1 + inside.iter().position(|b| *b == quote)?)
            } else {
                (start, token_end(text, start))
            };
            let mut from = from;
            if *pair {
                from += slice(text, from..to).iter().position(|b| *b == b':')? + 1;
            }
            let literal = slice(text, from..to);
            let port = login && literal.iter().all(|b| b.is_ascii_digit() || *b == b':');
            if is_literal(literal) && !literal.starts_with(b"-") && !literal.starts_with(b"$") && !port {
                return Some(Hit::new(Class::NamedSecret, from..to));
            }
        }
        here += len.max(1);
    }
    None
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
            ("export DB_PASSWORD=iqpsTXarKDH; ./run.sh", "PASSWORD", "iqpsTXarKDH"),
            ("mysql -u root --password=IyPSqg5cTpw orders", "password", "IyPSqg5cTpw"),
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

    #[test]
    fn urls_and_commands() {
        let text = "postgres://app:ljAkSxPscDP@db.example:5432/orders";
        let hit = url_password(text.as_bytes(), 8).unwrap();
        assert_eq!(text.get(hit.span), Some("ljAkSxPscDP"));
        for (text, secret) in [
            ("curl -sS -u bob:hunter2 https://x", Some("hunter2")),
            ("mysql -u root -ppa55word db", Some("pa55word")),
            ("docker run -p 8080:80 x", None),
            ("sshpass -p 'otter 9' ssh h", Some("otter 9")),
        ] {
            let hit = command(text.as_bytes(), 0);
            assert_eq!(hit.and_then(|h| text.get(h.span)), secret, "{text}");
        }
    }
}
