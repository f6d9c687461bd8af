//! What a word that is no plain word is: a link, a path, an identifier, a script.

use unicode_normalization::char::is_combining_mark;

use crate::integrity::lexicon::{Classes, DEST, LEXICON, PATH, SECRET, WordHash};

/// Links, mail and network addresses, paths.
pub(super) fn address(word: &str) -> Option<Classes> {
    if let Some(scheme) = word.find("://") {
        return (scheme > 0).then_some(DEST);
    }
    if word.len() > 7 && word.get(..4).is_some_and(|w| w.eq_ignore_ascii_case("www.")) {
        return Some(DEST);
    }
    if let Some((name, host)) = word.split_once('@') {
        let mail = !name.is_empty()
            && host.split('.').filter(|p| p.len() > 1).count() >= 1
            && !host.contains('/')
            && host.len() > 2;
        return mail.then_some(DEST);
    }
    let mut octets = word
        .split(['.', ':', '/'])
        .take(4)
        .map(|o| o.parse::<u8>().is_ok());
    if word.matches('.').count() >= 3 && octets.by_ref().all(|ok| ok) {
        return Some(DEST);
    }
    if word.starts_with(['~', '/']) && word.len() > 2
        || word.starts_with("./")
        || word.starts_with("../")
        || word.contains("/.")
        || word.starts_with('.') && word.len() > 2
    {
        return Some(PATH);
    }
    let (_, end) = word.rsplit_once('.')?;
    let extension = [
        "json", "env", "pem", "key", "txt", "yaml", "yml", "db", "sqlite", "conf", "cfg", "ini", "toml",
        "csv", "py", "js", "ts", "log", "md", "sh", "kdbx", "p12", "pfx",
    ];
    if extension.iter().any(|e| end.eq_ignore_ascii_case(e)) {
        return Some(PATH);
    }
    let host = [
        "com", "net", "org", "io", "example", "dev", "app", "xyz", "ru", "cn", "me", "ai", "co",
    ];
    (host.iter().any(|h| end.eq_ignore_ascii_case(h)) && word.len() > 5).then_some(DEST)
}

/// How often a small letter is followed by a capital one.
pub(super) fn humps(name: &str) -> usize {
    name.as_bytes()
        .windows(2)
        .filter(|w| matches!(w, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()))
        .count()
}

#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Script {
    Spaceless,
    Letters,
    Pause,
    Rest,
}

pub(super) fn script_kind(c: char) -> Script {
    match c {
        '\u{3041}'..='\u{30FF}'
        | '\u{3400}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7A3}'
        | '\u{20000}'..='\u{2FA1F}' => Script::Spaceless,
        '、' | '。' | '，' | '：' | '；' | '！' | '？' | '—' | '–' | '…' | '•' | '«' | '»' => {
            Script::Pause
        }
        '’' => Script::Letters,
        c if c.is_alphanumeric() || is_combining_mark(c) || c == '_' => Script::Letters,
        _ => Script::Rest,
    }
}

/// Whether a path or identifier names a secret: credential files, key stores, variables such as `DB_PASSWORD`.
pub(super) fn secret_path(path: &str) -> Classes {
    let mut secret = 0;
    let mut before = WordHash::START;
    for part in path
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|p| !p.is_empty())
    {
        let hash = WordHash::lower(part);
        secret |= LEXICON.word(hash) & SECRET;
        secret |= LEXICON.pair(before, hash) & SECRET;
        before = hash;
        for piece in part.split('_') {
            let hash = WordHash::lower(piece);
            secret |= LEXICON.pair(before, hash) & SECRET;
            before = hash;
        }
    }
    // GITHUB_TOKEN, DB_PASSWORD: names of variables that hold secrets.
    let ending = path.rsplit('_').next().unwrap_or_default();
    if path.contains('_')
        && path.bytes().all(|b| !b.is_ascii_lowercase())
        && ["TOKEN", "KEY", "SECRET", "PASSWORD", "PASS", "PWD", "CREDENTIALS"].contains(&ending)
    {
        secret |= SECRET;
    }
    let lower = path.to_ascii_lowercase();
    let known = [
        "/.aws",
        "/.kube",
        "/.docker",
        "mcp.json",
        "/.config",
        "_history",
        "/.git-credentials",
        "/etc/sudoers",
        ".env",
        "id_rsa",
        "login data",
        ".pem",
        ".cursor/",
        ".claude",
        ".vscode/mcp",
        "/proc/self/environ",
        "tfstate",
        ".kdbx",
        "/etc/shadow",
        "/etc/passwd",
        "credentials.",
        "secrets.",
        "/.gitconfig",
        "wallet.dat",
        "localstorage",
        "/var/run/secrets",
        ".zsh_",
        "cookies.sqlite",
        ".p12",
        ".pfx",
        "/.gnupg",
    ];
    if known.iter().any(|k| lower.contains(k)) {
        secret |= SECRET;
    }
    // What lies beside the keys and is no secret.
    if lower.ends_with(".ssh/config")
        || lower.ends_with(".env.example")
        || lower.rsplit('.').next() == Some("pub")
        || lower.ends_with("known_hosts")
    {
        secret = 0;
    }
    secret
}
