//! Mail addresses, and the many other things with an `@` in them.

use super::class::Class;
use super::span::Hit;
use super::words::one_of;

/// Longest local part (RFC 5321).
const MAX_LOCAL: usize = 64;
/// Longest domain (RFC 1035).
const MAX_DOMAIN: usize = 253;

/// Endings that look like a top-level domain and are a file's.
const FILE_ENDINGS: &[&str] = &[
    "png",
    "jpg",
    "jpeg",
    "gif",
    "svg",
    "webp",
    "avif",
    "ico",
    "bmp",
    "css",
    "scss",
    "js",
    "mjs",
    "ts",
    "tsx",
    "jsx",
    "json",
    "yaml",
    "yml",
    "toml",
    "xml",
    "html",
    "htm",
    "md",
    "txt",
    "pdf",
    "tar",
    "gz",
    "tgz",
    "exe",
    "dll",
    "so",
    "map",
    "lock",
    "service",
    "socket",
    "timer",
    "target",
    "mount",
    "local",
    "internal",
    "localhost",
    "localdomain",
    "lan",
    "git",
    "py",
    "rb",
    "go",
    "java",
    "class",
    "conf",
    "log",
    "ini",
];

const fn local_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'%' | b'+' | b'-' | b'\'') || byte >= 0x80
}

const fn domain_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-') || byte >= 0x80
}

/// The address around the `@` at `at`.
pub(crate) fn email(text: &[u8], at: usize) -> Option<Hit> {
    let head = text.get(at.saturating_sub(MAX_LOCAL + 1)..at)?;
    let local = head.iter().rev().take_while(|b| local_char(**b)).count();
    let mut start = at - local;
    // An escaped line end before the address is no part of it.
    if start > 0 && text.get(start - 1) == Some(&b'\\') && matches!(text.get(start), Some(b'n' | b'r' | b't'))
    {
        start += 1;
    }
    while start < at && matches!(text.get(start), Some(b'.' | b'\'' | b'-' | b'%')) {
        start += 1;
    }
    if start >= at || at - start > MAX_LOCAL || text.get(at - 1) == Some(&b'.') {
        return None;
    }
    let tail = text.get(at + 1..text.len().min(at + 1 + MAX_DOMAIN))?;
    let mut domain = tail.iter().take_while(|b| domain_char(**b)).count();
    while domain > 0 && matches!(tail.get(domain - 1), Some(b'.' | b'-')) {
        domain -= 1;
    }
    let name = tail.get(..domain)?;
    let mut labels = name.rsplit(|b| *b == b'.');
    let top = labels.next()?;
    let second = labels.next()?;
    let valid = top.len() >= 2
        && (top.iter().all(u8::is_ascii_alphabetic)
            || top.starts_with(b"xn--")
            || top.iter().all(|b| *b >= 0x80))
        && !one_of(top, FILE_ENDINGS)
        && !second.is_empty()
        && !name.starts_with(b".")
        && !name.starts_with(b"-")
        && !name.windows(2).any(|w| w == b"..");
    if !valid || is_address_of_something_else(text, start, at, at + 1 + domain) {
        return None;
    }
    Some(Hit::new(Class::Email, start..at + 1 + domain))
}

/// `git@host:path`, `ssh://user@host`, `ssh deploy@host`, `pkg@1.x`.
fn is_address_of_something_else(text: &[u8], start: usize, at: usize, end: usize) -> bool {
    let local = text.get(start..at).unwrap_or_default();
    let next = text.get(end).copied().unwrap_or(b' ');
    let after = text.get(end + 1).copied().unwrap_or(b' ');
    if next == b':' && (after.is_ascii_alphanumeric() || matches!(after, b'/' | b'~' | b'.')) {
        return true;
    }
    if matches!(next, b'/' | b'@') || one_of(local, &["git", "hg", "svn"]) {
        return true;
    }
    let window_start = start.saturating_sub(64);
    let before = text.get(window_start..start).unwrap_or_default();
    // The userinfo of a URL; `mailto:` has no slashes.
    let word = before
        .rsplit(|b| b.is_ascii_whitespace() || matches!(b, b'"' | b'\'' | b'<' | b'(' | b','))
        .next();
    if word.is_some_and(|w| w.windows(3).any(|p| p == b"://") && !w.contains(&b'?') && !w.contains(&b'=')) {
        return true;
    }
    let line = before
        .rsplit(|b| matches!(b, b'\n' | b';' | b'|' | b'&'))
        .next()
        .unwrap_or_default();
    line.split(|b| !b.is_ascii_alphanumeric() && *b != b'-')
        .any(|w| one_of(w, &["ssh", "scp", "sftp", "rsync", "ssh-copy-id", "mosh"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<&str> {
        let at = text.find('@')?;
        email(text.as_bytes(), at).and_then(|h| text.get(h.span))
    }

    #[test]
    fn addresses() {
        for (text, address) in [
            (
                "mailto:r.silva+lists@mail.example.net",
                "r.silva+lists@mail.example.net",
            ),
            ("Ada <k_olsen@corp.example>.", "k_olsen@corp.example"),
            ("to=zoe@example.org, then", "zoe@example.org"),
            ("a@sub.dept.example.co.uk.", "a@sub.dept.example.co.uk"),
            ("jörg@bücher.example", "jörg@bücher.example"),
        ] {
            assert_eq!(found(text), Some(address));
        }
    }

    #[test]
    fn other_uses_of_the_sign() {
        for text in [
            "git@github.com:example/tools.git",
            "@types/node@20.11.5",
            "icon@2x.png",
            "@media screen",
            "app@sha256:7021",
            "https://svc:pw@git.example/r.git",
            "ssh deploy@prod.example.com uptime",
            "backup@daily.service",
            "user@host",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
