//! Which values are secrets, and which only refer to one, stand for one or hide one.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::words::{contains, distinct, one_of, run_length};

/// One automaton for [`PLACEHOLDERS`]; none only if the fixed list could not be built, which a test rules out.
static PLACEHOLDER: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(PLACEHOLDERS)
        .ok()
});

/// Words that stand for a value instead of being one.
const STAND_INS: &[&str] = &[
    "string",
    "text",
    "password",
    "passwd",
    "secret",
    "token",
    "hidden",
    "none",
    "null",
    "nil",
    "undefined",
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "required",
    "optional",
    "default",
    "unset",
    "empty",
    "n/a",
    "na",
    "tbd",
    "include",
    "omit",
    "same-origin",
    "bearer",
    "basic",
    "digest",
    "oauth",
    "oauth2",
    "prompt",
    "ask",
    "stdin",
    "auto",
    "invalid",
    "expired",
    "missing",
    "unknown",
    "secretstr",
    "str",
    "bytes",
    "number",
    "boolean",
    "object",
    "any",
    "void",
    "env",
    "file",
    "keyring",
    "keychain",
    "interactive",
    "enabled",
    "disabled",
    "managed",
    "inherit",
    "self",
    "this",
    "const",
    "static",
    "public",
    "private",
    "return",
    "async",
    "await",
    "function",
    "let",
    "var",
    "new",
];

/// Parts of placeholders.
const PLACEHOLDERS: &[&str] = &[
    "your",
    "placeholder",
    "changeme",
    "change-me",
    "change_me",
    "replace-",
    "replace_",
    "replaceme",
    "insert",
    "redacted",
    "dummy",
    "fixme",
    "todo",
    "xxxx",
    "****",
    "....",
    "not-a-real",
    "not_a_real",
    "not-set",
    "not_set",
    "example",
    "goes-here",
    "goes_here",
    "_here",
    "-here",
    "my-api",
    "my_api",
    "my-token",
    "my_token",
    "my-secret",
    "my_secret",
    "my-password",
    "mypassword",
    "enter-",
    "enter_",
    "masked",
    "sample",
    "fake-",
    "fake_",
    "<",
    "…",
    "•",
];

/// Starts of references to a secret kept elsewhere.
const REFERENCES: &[&str] = &[
    "op:",
    "vault:",
    "vault.",
    "secret:",
    "secrets:",
    "secretref:",
    "ref:",
    "ref+",
    "arn:",
    "ssm:",
    "env:",
    "env(",
    "env.",
    "file:",
    "file(",
    "keyring:",
    "keychain:",
    "doppler:",
    "bws:",
    "infisical:",
    "gcpsm:",
    "gcp-sm:",
    "gcp:",
    "aws-sm:",
    "awssm:",
    "awskms:",
    "azurekv:",
    "akv:",
    "sm:",
    "kms:",
    "k8s:",
    "sops:",
    "enc[",
    "!",
    "lookup(",
    "getenv(",
    "process.env",
    "os.environ",
    "os.getenv",
    "system.getenv",
    "secrets.",
    "secrets[",
    "var.",
    "local.",
    "data.",
    "config.",
    "config[",
    "settings.",
    "self.",
    "this.",
    "args.",
    "options.",
    "opts.",
    "params.",
    "request.",
    "req.",
    "ctx.",
    "props.",
    "state.",
    "projects/",
    "@microsoft.keyvault",
    "lastpass:",
    "bitwarden:",
    "1password:",
    "keepass:",
    "cyberark:",
    "conjur:",
    "secretsmanager:",
    "secretmanager:",
    "import.meta",
    "dotenv",
    "credhub:",
    "https://",
    "http://",
    "cmd:",
    "exec:",
    "read(",
    "[kams:",
    "[redacted",
    "[masked",
    "[hidden",
    "(redacted",
    "(hidden",
    "(masked",
];

/// Words of prose; a value that holds several is a sentence about a secret.
const PROSE: &[&str] = &[
    "the", "is", "a", "an", "of", "to", "for", "your", "must", "enter", "please", "and", "or", "be", "in",
    "with", "this", "that", "not", "are", "if", "it", "on", "at", "least", "by", "from", "as", "should",
    "can", "will",
];

/// Whether `value` is a secret's own text, not a reference, placeholder, mask, sentence or path.
pub(crate) fn is_literal(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    if value.len() < 3 || value.len() > 8_192 {
        return false;
    }
    let head = value.get(..value.len().min(256)).unwrap_or(value);
    !(one_of(head, STAND_INS)
        || is_masked(head)
        || is_reference(head)
        || is_placeholder(head)
        || is_constant_name(head)
        || is_path(head)
        || is_version(head)
        || is_sentence(head))
}

/// Masks: `********`, `xxxxx`, `abc***`, `sk-...`.
pub(crate) fn is_masked(value: &[u8]) -> bool {
    let marks = value
        .iter()
        .filter(|b| matches!(b, b'*' | b'.' | b'#' | b'x' | b'X' | b'-' | b'_' | b'0'))
        .count();
    marks == value.len() || contains(value, "***") || value.ends_with(b"...") || distinct(value) < 3
}

/// Placeholders: `YOUR_API_KEY`, `<token>`, `ghp_xxxxxxxx`.
pub(crate) fn is_placeholder(value: &[u8]) -> bool {
    PLACEHOLDER.as_ref().is_some_and(|parts| parts.is_match(value))
}

/// References: `${X}`, `{{ x }}`, `op://...`, `process.env.X`, `$TOKEN`, `%TOKEN%`.
pub(crate) fn is_reference(value: &[u8]) -> bool {
    if REFERENCES.iter().any(|r| {
        value
            .get(..r.len())
            .is_some_and(|h| h.eq_ignore_ascii_case(r.as_bytes()))
    }) {
        return true;
    }
    match value {
        [b'$' | b'(' | b'%', b'(', ..]
        | [b'$' | b'{' | b'#' | b'@', b'{', ..]
        | [b'_', b'_', .., b'_', b'_'] => true,
        [b'%', inside @ .., b'%'] => is_identifier(inside),
        [b'$', name @ ..] => {
            is_identifier(name)
                && (!name.iter().any(u8::is_ascii_digit) || !name.iter().any(u8::is_ascii_lowercase))
        }
        _ => false,
    }
}

fn is_identifier(text: &[u8]) -> bool {
    text.first()
        .is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && text.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// `DB_PASSWORD`: the name of a variable.
fn is_constant_name(value: &[u8]) -> bool {
    is_identifier(value)
        && value.contains(&b'_')
        && !value.iter().any(u8::is_ascii_lowercase)
        && value.iter().filter(|b| b.is_ascii_digit()).count() * 4 <= value.len()
}

/// An absolute, home or Windows path.
fn is_path(value: &[u8]) -> bool {
    // `/srv/app2/build7`, but not base64 that happens to begin with a slash.
    let simple = |rest: &[u8]| {
        rest.contains(&b'/')
            && rest.iter().all(|b| {
                b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'/' | b'.' | b'-' | b'_')
            })
    };
    match value {
        [b'/', rest @ ..] if simple(rest) => true,
        [b'/', rest @ ..] | [b'.' | b'~', b'/', rest @ ..] | [b'.', b'.', b'/', rest @ ..] => {
            run_length(rest) >= 3.0 && !rest.contains(&b' ')
        }
        [drive, b':', b'\\' | b'/', ..] => drive.is_ascii_alphabetic(),
        _ => false,
    }
}

/// `^7.29.7`, `>=1.0`, `v2.3.4-rc1`.
fn is_version(value: &[u8]) -> bool {
    let bare: &[u8] = value.trim_ascii_start();
    let skip = bare
        .iter()
        .take_while(|b| matches!(b, b'^' | b'~' | b'>' | b'<' | b'=' | b'v' | b' '))
        .count();
    let number = bare.get(skip..).unwrap_or_default();
    let core = number
        .iter()
        .take_while(|b| b.is_ascii_digit() || **b == b'.')
        .count();
    let dotted = number.get(..core).unwrap_or_default().contains(&b'.');
    dotted
        && number.first().is_some_and(u8::is_ascii_digit)
        && (core == number.len() || matches!(number.get(core), Some(b'-' | b'+')))
}

fn is_sentence(value: &[u8]) -> bool {
    let mut words = 0;
    let mut function_words = 0;
    for word in value
        .split(|b| !b.is_ascii_alphanumeric() && *b != b'\'')
        .filter(|w| !w.is_empty())
    {
        words += 1;
        function_words += usize::from(one_of(word, PROSE));
    }
    value.contains(&b' ') && words >= 3 && function_words >= 2
}

/// Whether `value` looks like a credential by itself: a digit among letters, mixed case inside, or symbols, and
/// not a plain word or identifier.
pub(crate) fn looks_opaque(value: &[u8]) -> bool {
    if value.len() < 5 || value.contains(&b' ') {
        return false;
    }
    let head = value.get(..value.len().min(256)).unwrap_or(value);
    let letters = head.iter().any(u8::is_ascii_alphabetic);
    let digits = head.iter().filter(|b| b.is_ascii_digit()).count();
    let inner_upper =
        head.iter().skip(1).any(u8::is_ascii_uppercase) && head.iter().any(u8::is_ascii_lowercase);
    let symbol = head.iter().any(|b| {
        matches!(
            b,
            b'!' | b'@' | b'#' | b'$' | b'%' | b'^' | b'&' | b'*' | b'+' | b'='
        )
    });
    (letters && digits > 0) || digits >= 6 || symbol || (inner_upper && run_length(head) < 4.5)
}

/// Whether letters and digits alone look drawn one by one: a few drawn values in a thousand have runs as
/// long as those of words, and no words have so many different characters without anything between them.
pub(crate) fn is_drawn(value: &[u8]) -> bool {
    let head = value.get(..value.len().min(64)).unwrap_or(value);
    head.iter().all(u8::is_ascii_alphanumeric)
        && head.iter().any(u8::is_ascii_lowercase)
        && head.iter().any(u8::is_ascii_uppercase)
        && distinct(head) >= 20
}

/// Whether the body of a vendor token is random enough to be one: not `xxxx`, `your-key-here` or `...`.
pub(crate) fn is_random_body(body: &[u8]) -> bool {
    let head = body.get(..body.len().min(128)).unwrap_or(body);
    let floor = (head.len() / 4).clamp(4, 10);
    distinct(head) >= floor
        && !contains(head, "xxxx")
        // Chance puts the word into a random body too, among many different characters.
        && (distinct(head) >= 20 || !contains(head, "your"))
        && (head.iter().any(u8::is_ascii_digit) || run_length(head) < 4.0 || is_drawn(head))
        && !(run_length(head) >= 4.0 && head.iter().filter(|b| matches!(b, b'-' | b'_')).count() >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_placeholders_builds() {
        assert!(PLACEHOLDER.is_some());
    }

    #[test]
    fn literal_secrets() {
        for value in [
            "hunter2",
            "s3cretpg",
            "blue-otter-9",
            "svc:pa55",
            "P@ss w0rd!",
            "tr0ub4dor",
            "$ecret99",
            "abc",
        ] {
            assert!(is_literal(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn drawn_values_with_long_runs() {
        for value in [
            "cJXDeCobXGXZoDGbZKMlHHloeXmsHYMFDAOOKLPE",
            "NPwlgynbcxsCiwbFdTgmnrgFthgmkiL2yORjoGPi",
        ] {
            assert!(
                is_drawn(value.as_bytes()) && is_random_body(value.as_bytes()),
                "{value}"
            );
        }
        for value in [
            "AuthenticationSchemeOfTheResourceServer",
            "authorization_header_of_every_request_made",
            "MustBeProvidedByTheIdentityProvider",
        ] {
            assert!(!is_drawn(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn stand_ins() {
        for value in [
            "",
            "true",
            "${DB_PASSWORD}",
            "${{ secrets.X }}",
            "{{api_key}}",
            "<your-api-key>",
            "YOUR_API_KEY",
            "********",
            "REDACTED",
            "[kams:redacted:jwt]",
            "op://a/b",
            "vault:kv/data#x",
            "$TOKEN",
            "$token",
            "%TOKEN%",
            "DB_PASSWORD",
            "/run/secrets/db",
            "process.env.KEY",
            "Enter your password to continue",
            "changeme",
            "sk-...",
            "xxxxxxxx",
        ] {
            assert!(!is_literal(value.as_bytes()), "{value}");
        }
    }
}
