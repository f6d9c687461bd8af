//! Looser ways to tell a secret in text: names in other scripts, values on the next line, table rows, arguments of
//! calls, pairs of user and password, the value before its name.
//!
//! The joint is weaker evidence than `=`, so the value has to look like a credential by itself.

use std::ops::Range;

use super::assign::{byte, in_name, slice, spaces, token_end};
use super::class::Class;
use super::names::{Name, classify};
use super::qualified::qualified;
use super::span::Hit;
use super::value::{is_literal, looks_opaque};
use super::words::{contains, one_of, run_length};

/// How far a value may stand from what announces it.
pub(super) const REACH: usize = 96;

/// Names in other languages and scripts, which are no ASCII identifiers, and of two words that are common apart.
pub(super) const LABELS: &[&str] = &[
    "access code",
    "backup code",
    "backup codes",
    "recovery code",
    "unlock code",
    "pin code",
    "mot de passe",
    "contrase\u{f1}a",
    "clave de acceso",
    "has\u{142}o",
    "heslo",
    "\u{15f}ifre",
    "parola",
    "salasana",
    "l\u{f6}senord",
    "adgangskode",
    "jelsz\u{f3}",
    "\u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}",
    "\u{41f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}",
    "\u{5bc6}\u{7801}",
    "\u{5bc6}\u{78bc}",
    "\u{53e3}\u{4ee4}",
    "\u{5bc6}\u{94a5}",
    "\u{30d1}\u{30b9}\u{30ef}\u{30fc}\u{30c9}",
    "\u{be44}\u{bc00}\u{bc88}\u{d638}",
    "\u{643}\u{644}\u{645}\u{629} \u{627}\u{644}\u{645}\u{631}\u{648}\u{631}",
];

/// The value behind a label that ends at `end`.
pub(super) fn labelled(text: &[u8], end: usize) -> Option<Hit> {
    let gap = spaces(text, end);
    let rest = slice(text, gap..text.len().min(gap + 8));
    let joint = [
        "\u{ff1a}", "\u{306f}", ":", "=", "->", "\u{2192}", "is ", "ist ", "est ", "es ", "\u{662f}",
    ]
    .iter()
    .find(|j| rest.starts_with(j.as_bytes()))?;
    let span = cell(text, spaces(text, gap + joint.len()))?;
    hit(text, span)
}

/// The secret that `name` announces in one of the looser ways.
pub(super) fn loose(text: &[u8], name: &Range<usize>) -> Option<Hit> {
    let strength = classify(slice(text, name.clone()));
    if strength == Name::Plain {
        return None;
    }
    let strong = strength == Name::Strong;
    let span = argument(text, name)
        .or_else(|| macro_value(text, name))
        .or_else(|| pair(text, name))
        .or_else(|| wrapped(text, name))
        .or_else(|| default_value(text, name))
        .or_else(|| tagged(text, name))
        .or_else(|| next_line(text, name))
        .or_else(|| qualified(text, name))
        .or_else(|| row(text, name))
        .or_else(|| column(text, name).filter(|_| strong || own_line(text, name).is_some()))
        .or_else(|| spoken(text, name).filter(|_| strong || name.len() == 2))
        .or_else(|| before_name(text, name).filter(|_| strong))?;
    hit(text, span)
}

fn hit(text: &[u8], span: Range<usize>) -> Option<Hit> {
    credible(slice(text, span.clone())).then(|| Hit::new(Class::NamedSecret, span))
}

/// Whether a value is a credential by its looks: letters with digits or signs among them, no word, name or path.
fn credible(value: &[u8]) -> bool {
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = value.iter().filter(|b| b.is_ascii_alphabetic()).count();
    let signs = value
        .iter()
        .any(|b| matches!(b, b'!' | b'@' | b'#' | b'$' | b'%' | b'^' | b'&' | b'*'));
    (6..=200).contains(&value.len())
        && letters >= 2
        && (digits >= 2
            || digits == 1 && (signs || run_length(value) < 3.5)
            || run_length(value) < 2.5
            || signs && inner_sign(value))
        && is_literal(value)
        && looks_opaque(value)
        && !value
            .iter()
            .any(|b| matches!(b, b'(' | b')' | b'{' | b'}' | b'<' | b'>' | b' '))
        && !contains(value, "://")
        && !contains(value, "sha256")
        && !contains(value, "base64")
}

/// A sign in the midst of letters of both cases, as no word has it.
fn inner_sign(value: &[u8]) -> bool {
    let sign = |b: &u8| matches!(b, b'!' | b'@' | b'#' | b'$' | b'%' | b'^');
    let inner = value.get(1..value.len() - 1).unwrap_or_default();
    value.len() >= 8
        && inner.iter().any(sign)
        && value.iter().any(u8::is_ascii_uppercase)
        && value.iter().any(u8::is_ascii_lowercase)
        && run_length(value) < 5.0
}

/// `"`, `'` or a backtick, escaped or not: how many bytes it takes.
fn quote(text: &[u8], at: usize) -> Option<(usize, u8)> {
    let escapes = slice(text, at..text.len().min(at + 4))
        .iter()
        .take_while(|b| **b == b'\\')
        .count();
    let sign = byte(text, at + escapes);
    matches!(sign, b'"' | b'\'' | b'`').then_some((escapes + 1, sign))
}

/// The inside of a quoted string that begins at `at`, and where it ends with its quote.
pub(super) fn quoted(text: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let (width, sign) = quote(text, at)?;
    let start = at + width;
    let inside = slice(text, start..text.len().min(start + REACH * 2));
    let close = inside.iter().position(|b| *b == sign || *b == b'\n')?;
    (inside.get(close) == Some(&sign)).then(|| {
        let escapes = inside.get(..close).unwrap_or_default();
        let escapes = escapes.iter().rev().take_while(|b| **b == b'\\').count();
        (start..start + close - escapes, start + close + 1)
    })
}

/// A value of a cell or line: quoted, or up to a gap.
pub(super) fn cell(text: &[u8], at: usize) -> Option<Range<usize>> {
    if let Some((inside, _)) = quoted(text, at) {
        return Some(inside);
    }
    let end = token_end(text, at);
    (end > at).then_some(at..end)
}

/// The end of a name with the quote that closes it.
fn closed(text: &[u8], name: &Range<usize>) -> (usize, bool) {
    match quote(text, name.end) {
        Some((width, _)) => (name.end + width, true),
        None => (name.end, false),
    }
}

/// `define('DB_PASSWORD', 'x')`, `setdefault("KEY", "x")`.
fn argument(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let (end, named) = closed(text, name);
    let gap = spaces(text, end);
    if !named || byte(text, gap) != b',' {
        return None;
    }
    quoted(text, spaces(text, gap + 1)).map(|q| q.0)
}

/// `#define WIFI_PASSWORD "x"`, `setx API_KEY "x"`, `char pass[] = "x"`.
fn macro_value(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let mut at = name.end;
    if byte(text, at) == b'[' {
        let size = slice(text, at + 1..text.len().min(at + 8));
        at += 2 + size.iter().position(|b| *b == b']')?;
        let sign = spaces(text, at);
        return (byte(text, sign) == b'=').then(|| quoted(text, spaces(text, sign + 1)).map(|q| q.0))?;
    }
    let gap = spaces(text, at);
    (gap > at).then(|| quoted(text, gap).map(|q| q.0))?
}

/// `login("bob", "x")`: the second argument of the call whose bracket stands at `at`.
pub(super) fn call(text: &[u8], at: usize) -> Option<Hit> {
    pair(text, &(at..at)).and_then(|span| hit(text, span))
}

/// `auth=('bob', 'x')`, `BasicAuth("bob", "x")`.
fn pair(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let mut at = spaces(text, name.end);
    if matches!(byte(text, at), b'=' | b':') {
        at = spaces(text, at + 1);
    }
    if !matches!(byte(text, at), b'(' | b'[') {
        return None;
    }
    let (_, end) = quoted(text, spaces(text, at + 1))?;
    let comma = spaces(text, end);
    (byte(text, comma) == b',').then(|| quoted(text, spaces(text, comma + 1)).map(|q| q.0))?
}

/// `= new String("x")`, `= SecretStr("x")`, `= """x"""`.
fn wrapped(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let (end, _) = closed(text, name);
    let sign = spaces(text, end);
    if !matches!(byte(text, sign), b'=' | b':') {
        return None;
    }
    let start = spaces(text, sign + 1 + usize::from(byte(text, sign + 1) == b'='));
    let window = slice(text, start..text.len().min(start + 40));
    let marks = window.iter().take_while(|b| matches!(b, b'"' | b'\'')).count();
    if marks == 3 {
        let end = token_end(text, start + 3);
        return Some(start + 3..end);
    }
    let open = window.iter().position(|b| *b == b'(')?;
    let callee = window.get(..open)?;
    let plain = callee.iter().all(|b| in_name(*b) || matches!(b, b' ' | b':'));
    let last = callee
        .rsplit(|b| !b.is_ascii_alphanumeric())
        .next()
        .unwrap_or_default();
    let makes = one_of(
        last,
        &[
            "string",
            "str",
            "secretstr",
            "secret",
            "bytes",
            "quote",
            "encode",
            "b64encode",
            "securestring",
        ],
    );
    (plain && makes).then(|| quoted(text, spaces(text, start + open + 1)).map(|q| q.0))?
}

/// `variable "db_password" { default = "x" }`.
fn default_value(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let (end, named) = closed(text, name);
    let brace = spaces(text, end);
    if !named || byte(text, brace) != b'{' {
        return None;
    }
    let window = slice(text, brace..text.len().min(brace + REACH));
    let at = window.windows(7).position(|w| w == b"default")?;
    let sign = spaces(text, brace + at + 7);
    (byte(text, sign) == b'=').then(|| quoted(text, spaces(text, sign + 1)).map(|q| q.0))?
}

/// `<entry key="db.password">x</entry>`.
fn tagged(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let (end, named) = closed(text, name);
    if !named || byte(text, end) != b'>' {
        return None;
    }
    let start = end + 1;
    let window = slice(text, start..text.len().min(start + REACH * 2));
    let length = window.iter().position(|b| *b == b'<')?;
    Some(start..start + length)
}

/// `password:` and the value on a line of its own below, as in YAML or a form.
fn next_line(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let (end, _) = closed(text, name);
    let mut at = spaces(text, end);
    let colon = byte(text, at) == b':';
    if colon {
        at = spaces(text, at + 1);
        let block = slice(text, at..text.len().min(at + 3));
        at += block
            .iter()
            .take_while(|b| matches!(b, b'|' | b'>' | b'-' | b'+'))
            .count();
        at = spaces(text, at);
    }
    at += usize::from(byte(text, at) == b'\r');
    if byte(text, at) != b'\n' || !colon && own_line(text, name).is_none() {
        return None;
    }
    let start = spaces(text, at + 1);
    let span = cell(text, start)?;
    line_ends(text, span.end).then_some(span)
}

/// Nothing but the name on its line: where the line starts.
fn own_line(text: &[u8], name: &Range<usize>) -> Option<usize> {
    let before = slice(text, name.start.saturating_sub(24)..name.start);
    let lead = before.rsplit(|b| *b == b'\n').next().unwrap_or_default();
    lead.iter()
        .all(|b| matches!(b, b' ' | b'\t' | b'-' | b'*' | b'#' | b'"'))
        .then(|| name.start - lead.len())
}

fn line_ends(text: &[u8], at: usize) -> bool {
    let at = at + usize::from(quote(text, at).is_some());
    matches!(byte(text, spaces(text, at)), 0 | b'\n' | b'\r' | b'|' | b'#')
}

/// `| password | x |`, `password,x`, `password -> x`, a name and its value in one row.
fn row(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let (end, _) = closed(text, name);
    let gap = spaces(text, end);
    let rest = slice(text, gap..text.len().min(gap + 4));
    let (width, bare) = match rest {
        [b'|', ..] => (1, false),
        [b',' | b';', next, ..] if !matches!(next, b' ') => (1, true),
        [b'-', b'>', ..] => (2, false),
        [0xE2, 0x86, 0x92, ..] => (3, false),
        _ if slice(text, end..gap).contains(&b'\t') => (0, true),
        _ => return None,
    };
    if bare && own_line(text, name).is_none() {
        return None;
    }
    let span = cell(text, spaces(text, gap + width))?;
    (!bare || line_ends(text, span.end)).then_some(span)
}

/// The name heads a column of a small table: the cell below it.
fn column(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let lead = slice(text, name.start.saturating_sub(REACH)..name.start);
    let lead = lead.rsplit(|b| *b == b'\n').next().unwrap_or_default();
    let sign = lead
        .iter()
        .rev()
        .find(|b| matches!(b, b'|' | b',' | b';' | b'\t'))
        .copied()?;
    // The cell is the name and nothing else.
    let own = lead
        .rsplit(|b| *b == sign)
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let after = byte(text, spaces(text, name.end));
    if !own.is_empty() || after != sign && !matches!(after, b'\n' | b'\r') && byte(text, name.end) != sign {
        return None;
    }
    let place = memchr::memchr_iter(sign, lead).count();
    let rest = slice(text, name.end..text.len().min(name.end + REACH * 3));
    let mut start = name.end + rest.iter().position(|b| *b == b'\n')? + 1;
    for _ in 0..2 {
        let line = slice(text, start..text.len().min(start + REACH * 2));
        let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
        let cell = line.split(|b| *b == sign).nth(place)?;
        let value = cell.trim_ascii();
        if credible(value) {
            let at = start + (value.as_ptr().addr() - line.as_ptr().addr());
            return Some(at..at + value.len());
        }
        // Only the rule under a header may stand between.
        if !line
            .iter()
            .all(|b| matches!(b, b'-' | b'|' | b':' | b' ' | b'+' | b'=' | b'\r'))
        {
            return None;
        }
        start += line.len() + 1;
    }
    None
}

/// `login bob / password hunter2`, said with nothing between.
fn spoken(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let word = slice(text, name.clone());
    let gap = spaces(text, name.end);
    if gap == name.end
        || !one_of(
            word,
            &[
                "password",
                "passwd",
                "passphrase",
                "passcode",
                "passwort",
                "kennwort",
                "apikey",
                "pw",
                "pwd",
            ],
        )
    {
        return None;
    }
    let span = cell(text, gap)?;
    let value = slice(text, span.clone());
    (value.len() >= 8 && value.iter().filter(|b| b.is_ascii_digit()).count() >= 2).then_some(span)
}

/// `use hunter2 as the password`, `hunter2 is my passphrase`.
fn before_name(text: &[u8], name: &Range<usize>) -> Option<Range<usize>> {
    let lead = slice(text, name.start.saturating_sub(REACH)..name.start);
    let lead = lead.rsplit(|b| *b == b'\n').next().unwrap_or_default();
    let mut words = lead.rsplit(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    let mut word = words.next()?;
    if one_of(
        word,
        &[
            "the", "a", "my", "your", "our", "his", "her", "its", "new", "root", "admin", "db",
        ],
    ) {
        word = words.next()?;
        if one_of(word, &["the", "my", "your", "our", "new"]) {
            word = words.next()?;
        }
    }
    if !one_of(word, &["as", "is", "for"]) {
        return None;
    }
    let value = words.next()?;
    let trimmed = value
        .trim_ascii()
        .strip_prefix(b"\"")
        .or_else(|| value.strip_prefix(b"'"))
        .or_else(|| value.strip_prefix(b"`"))
        .unwrap_or(value);
    let end = trimmed
        .iter()
        .rposition(|b| !matches!(b, b'"' | b'\'' | b'`' | b','))
        .map_or(0, |p| p + 1);
    let value = trimmed.get(..end)?;
    let at = name.start - lead.len() + (value.as_ptr().addr() - lead.as_ptr().addr());
    Some(at..at + value.len())
}

/// `echo 'x' | sudo -S`, `echo x | docker login --password-stdin`: what is piped into a prompt at `at`.
pub(super) fn piped(text: &[u8], at: usize) -> Option<Hit> {
    let lead = slice(text, at.saturating_sub(REACH * 2)..at);
    let line = lead.rsplit(|b| *b == b'\n').next().unwrap_or_default();
    let bar = line.iter().rposition(|b| *b == b'|')?;
    let start = at - line.len();
    let said = line.get(..bar)?;
    let echo = said
        .windows(5)
        .rposition(|w| w == b"echo ")
        .map(|e| e + 5)
        .or_else(|| said.windows(7).rposition(|w| w == b"printf ").map(|p| p + 7))?;
    let mut from = spaces(text, start + echo);
    while byte(text, from) == b'-' {
        from = spaces(
            text,
            from + slice(text, from..start + bar).iter().position(|b| *b == b' ')?,
        );
    }
    let span = cell(text, from)?;
    let literal = slice(text, span.clone());
    (span.end <= start + bar && is_literal(literal) && looks_opaque(literal))
        .then(|| Hit::new(Class::NamedSecret, span))
}

/// `tool -u bob -p x`, `tool login -p x`: what follows a `-p` at `at`, where the line signs somebody in.
pub(super) fn short_flag(text: &[u8], at: usize) -> Option<Hit> {
    let span = cell(text, spaces(text, at))?;
    let value = slice(text, span.clone());
    let lead = slice(text, at.saturating_sub(REACH)..at);
    let lead = lead.rsplit(|b| *b == b'\n').next().unwrap_or_default();
    let rest = slice(text, span.end..text.len().min(span.end + REACH));
    let rest = rest.split(|b| *b == b'\n').next().unwrap_or_default();
    let signs_in = [lead, rest].iter().any(|part| {
        [" -u ", " --user", " login"]
            .iter()
            .any(|sign| contains(part, sign))
    });
    let plain = !value
        .iter()
        .any(|b| matches!(b, b'/' | b':' | b'.' | b'=' | b'\\' | b'$'));
    (signs_in && plain).then(|| hit(text, span))?
}

#[cfg(test)]
mod tests {
    use super::super::found;

    #[test]
    fn values_stand_where_people_put_them() {
        for text in [
            "define('DB_PASSWORD', 'blue77otter');",
            "os.environ.setdefault(\"API_KEY\", \"blue77otter\")",
            "#define WIFI_PASSWORD \"blue77otter\"",
            "char password[] = \"blue77otter\";",
            "requests.get(u, auth=('bob', 'blue77otter'))",
            "client(HTTPBasicAuth(\"bob\", \"blue77otter\"))",
            "String password = new String(\"blue77otter\");",
            "password = \"\"\"blue77otter\"\"\"",
            "variable \"db_password\" { default = \"blue77otter\" }",
            "db:\n  password:\n    blue77otter\n",
            "password: |\n  blue77otter\n",
            "Login\nbob\nPassword\nblue77otter\n",
            "| password | blue77otter |",
            "password\tblue77otter",
            "user,password\nbob,blue77otter\n",
            "| user | password |\n|---|---|\n| bob | blue77otter |",
            "host h1, login bob / password blue77otter",
            "Use blue77otter as the password.",
            "<entry key=\"db.password\">blue77otter</entry>",
            "echo 'blue77otter' | sudo -S ls",
            "printf blue77otter | docker login -u a --password-stdin",
            "contrase\u{f1}a: blue77otter",
            "\u{5bc6}\u{7801}\u{ff1a}blue77otter",
            "\u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}: blue77otter",
        ] {
            assert_eq!(found(text), ["blue77otter"], "{text}");
        }
    }

    #[test]
    fn talk_of_passwords_holds_none() {
        for text in [
            "getenv(\"DB_PASSWORD\", \"localhost\")",
            "t(\"password\", \"Password\")",
            "The password policy2 is strict.",
            "user,password,role\nbob,yes,admin\n",
            "Password\nForgot it?\n",
            "password:\n  minLength: 12\n",
            "This is the password.",
            "echo $TOKEN | docker login --password-stdin",
            "auth=(user, password)",
            "| password | string | required |",
            "#define PASSWORD_LENGTH \"x\"",
        ] {
            assert!(found(text).is_empty(), "{text}: {:?}", found(text));
        }
    }
}
