//! Passwords in URLs and among the flags of well-known commands.

use super::assign::{byte, in_name, slice, spaces, token_end};
use super::class::Class;
use super::span::Hit;
use super::value::is_literal;
use super::words::{one_of, run_length};

/// The password in the userinfo of a URL whose `://` stands at `at`.
pub(crate) fn url_password(text: &[u8], at: usize) -> Option<Hit> {
    let start = at + 3;
    let window = slice(text, start..text.len().min(start + 300));
    let end = window
        .iter()
        .position(|b| {
            b.is_ascii_whitespace() || matches!(b, b'/' | b'?' | b'"' | b'\'' | b'<' | b'>' | b'`' | b'\\')
        })
        .unwrap_or(window.len());
    let authority = window.get(..end)?;
    let sign = authority.iter().rposition(|b| *b == b'@')?;
    let userinfo = authority.get(..sign)?;
    let colon = userinfo.iter().position(|b| *b == b':')?;
    let password = userinfo.get(colon + 1..)?;
    let user = userinfo.get(..colon)?;
    // Strictly, `#` begins the fragment; people leave it in passwords all the same, but not behind a host.
    if password.contains(&b'#') && user.contains(&b'.') || user.contains(&b'#') {
        return None;
    }
    let stands_for_itself = password == user
        && run_length(password) >= 4.0
        && one_of(password, &["user", "username", "password"]);
    let literal = !password.is_empty()
        && !stands_for_itself
        && (is_literal(password) || (password.len() < 3 && password.is_ascii()));
    let name_only = one_of(
        password,
        &["password", "pass", "pw", "pwd", "port", "secret", "token"],
    );
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
    ("openssl", &["-k", "-K"], false),
    ("7z", &["-p"], false),
    ("ldapadd", &["-w"], false),
    ("ldapmodify", &["-w"], false),
    ("smbclient", &["-U", "--user"], true),
    ("rpcclient", &["-U", "--user"], true),
    ("az", &["-p", "--password"], false),
];

/// `net user bob x`, `htpasswd -b file bob x`: the password that such a command takes last, behind `at`.
pub(crate) fn positional(text: &[u8], at: usize) -> Option<Hit> {
    let line = slice(text, at..text.len().min(at + 200));
    let line = line.split(|b| matches!(b, b'\n' | b'|' | b';')).next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    let batch = line.starts_with(b" -");
    let place = if batch { 3 } else { 1 };
    let value = words.nth(place)?;
    let start = at + (value.as_ptr().addr() - line.as_ptr().addr());
    let mixed = value.iter().any(u8::is_ascii_digit) && value.iter().any(u8::is_ascii_alphabetic);
    let plain = !value.iter().any(|b| matches!(b, b'/' | b'$' | b'<' | b'*'));
    (mixed && plain && is_literal(value) && value.len() >= 6)
        .then(|| Hit::new(Class::NamedSecret, start..start + value.len()))
}

/// The password among the flags of the command that begins at `at`.
pub(crate) fn command(text: &[u8], at: usize) -> Option<Hit> {
    if at > 0 && in_name(byte(text, at - 1)) {
        return None;
    }
    let name_len = slice(text, at..text.len().min(at + 24))
        .iter()
        .take_while(|b| in_name(**b))
        .count();
    let name = slice(text, at..at + name_len);
    let (_, flags, pair) = COMMANDS
        .iter()
        .find(|(command, _, _)| name == command.as_bytes())?;
    let login = one_of(name, &["docker", "podman", "helm", "az"]);
    let window = slice(text, at..text.len().min(at + 400));
    let line_end = window
        .iter()
        .position(|b| matches!(b, b'\n' | b'|' | b';'))
        .unwrap_or(window.len());
    if login && !super::words::contains(window.get(..line_end)?, " login") {
        return None;
    }
    let mut here = name_len;
    while here < line_end {
        here += window
            .get(here..line_end)?
            .iter()
            .take_while(|b| b.is_ascii_whitespace())
            .count();
        let len = window
            .get(here..line_end)?
            .iter()
            .take_while(|b| !b.is_ascii_whitespace())
            .count();
        let word = window.get(here..here + len)?;
        if word == name {
            return None;
        }
        for flag in *flags {
            let Some(rest) = word.strip_prefix(flag.as_bytes()) else {
                continue;
            };
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
                // Samba parts them by a percent sign.
                let sign = if name.ends_with(b"client") { b'%' } else { b':' };
                from += slice(text, from..to).iter().position(|b| *b == sign)? + 1;
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
