//! Which names announce a secret: `api_key`, `PGPASSWORD`, `refreshToken`; and which only seem to:
//! `max_tokens`, `nextPageToken`, `password_file`.

mod table;

use super::words::{Words, ends_with, one_of};
use table::{ASKS, DESCRIBES, JOINED, KEY_KINDS, OTHER_TOKENS};

/// How much a name says about its value.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Name {
    /// Nothing.
    Plain,
    /// The value is a secret if it also looks like one (`token`, `pass`, `auth`).
    Weak,
    /// The value is a secret unless it refers to one or stands for one.
    Strong,
}

/// What `name` says about its value.
pub(crate) fn classify(name: &[u8]) -> Name {
    if name.len() < 2 || name.len() > 128 {
        return Name::Plain;
    }
    let words = Words::of(name);
    let Some(last) = words.last() else {
        return Name::Plain;
    };
    let last = trim_digits(last);
    if one_of(last, DESCRIBES) || words.get(0).is_some_and(|w| words.len() > 1 && one_of(w, ASKS)) {
        return Name::Plain;
    }
    let before = words.len().checked_sub(2).and_then(|i| words.get(i));
    if let Some(found) = last_word(last, before, &words) {
        return found;
    }
    // `password_hash`, `password_old`, `secret_value`, `api_key_v2`: the word before decides.
    let qualifier = one_of(
        last,
        &[
            "hash",
            "old",
            "new",
            "current",
            "value",
            "val",
            "plain",
            "plaintext",
            "raw",
            "confirm",
            "confirmation",
            "again",
            "repeat",
            "v1",
            "v2",
            "v",
            "prod",
            "production",
            "dev",
            "test",
            "staging",
            "live",
            "primary",
            "secondary",
            "backup",
            "default",
            "data",
            "string",
            "b64",
            "base64",
            "encoded",
            "hex",
            "main",
            "base",
        ],
    );
    if qualifier && let Some(word) = before {
        let earlier = words.len().checked_sub(3).and_then(|i| words.get(i));
        if let Some(found) = last_word(trim_digits(word), earlier, &words) {
            return found;
        }
    }
    Name::Plain
}

/// What a name ending in `last` says.
fn last_word(last: &[u8], before: Option<&[u8]>, words: &Words<'_>) -> Option<Name> {
    if one_of(
        last,
        &[
            "password",
            "passwords",
            "passwd",
            "passphrase",
            "passcode",
            "passwort",
            "kennwort",
            "senha",
            "contrasena",
            "wachtwoord",
            "secret",
            "secrets",
            "credential",
            "credentials",
            "apikey",
            "privatekey",
            "secretkey",
        ],
    ) {
        return Some(Name::Strong);
    }
    if one_of(last, &["token"]) {
        return Some(match before {
            Some(word) if one_of(word, OTHER_TOKENS) => Name::Plain,
            Some(_) => Name::Strong,
            None => Name::Weak,
        });
    }
    if one_of(last, &["key", "keys"]) {
        return Some(match before {
            Some(word) if one_of(word, KEY_KINDS) => {
                if one_of(
                    word,
                    &[
                        "api",
                        "access",
                        "secret",
                        "private",
                        "auth",
                        "encryption",
                        "signing",
                        "master",
                    ],
                ) {
                    Name::Strong
                } else {
                    Name::Weak
                }
            }
            _ => Name::Plain,
        });
    }
    if one_of(
        last,
        &[
            "authorization",
            "auth",
            "pass",
            "pwd",
            "pw",
            "pswd",
            "creds",
            "cred",
            "tokens",
            "otp",
            "jwt",
            "sas",
            "psk",
            "dsn",
        ],
    ) {
        let counted = words.iter().any(|w| one_of(w, OTHER_TOKENS));
        return Some(if counted {
            Name::Plain
        } else if one_of(last, &["pwd", "pswd"]) || (one_of(last, &["pass"]) && before.is_some()) {
            Name::Strong
        } else {
            Name::Weak
        });
    }
    if one_of(last, &["string", "str"]) && before.is_some_and(|w| one_of(w, &["connection", "conn"])) {
        return Some(Name::Weak);
    }
    if JOINED.iter().any(|joined| ends_with(last, joined)) {
        return Some(Name::Strong);
    }
    let joined_token = (ends_with(last, "token") || ends_with(last, "secret"))
        && !OTHER_TOKENS
            .iter()
            .any(|w| last.len() == w.len() + 5 && one_of(last.get(..w.len()).unwrap_or_default(), &[w]));
    joined_token.then_some(Name::Weak)
}

fn trim_digits(word: &[u8]) -> &[u8] {
    let end = word
        .iter()
        .rposition(|b| !b.is_ascii_digit())
        .map_or(word.len(), |i| i + 1);
    word.get(..end).unwrap_or(word)
}

/// Whether the name tells that the value is an identifier, a position or a digest: nothing opaque under it is a
/// credential by its looks alone.
pub(crate) fn announces_identifier(name: &[u8]) -> bool {
    let words = Words::of(name);
    let Some(last) = words.last() else {
        return false;
    };
    let last = trim_digits(last);
    let token = ends_with(last, "token");
    if token || one_of(last, &["key"]) {
        // A token or key that `classify` does not take for a secret is one of the other kinds.
        return classify(name) == Name::Plain;
    }
    one_of(
        last,
        &[
            "id",
            "ids",
            "uid",
            "uuid",
            "guid",
            "cursor",
            "etag",
            "hash",
            "digest",
            "checksum",
            "integrity",
            "sum",
            "sha",
            "md",
            "commit",
            "rev",
            "revision",
            "ref",
            "tree",
            "blob",
            "fingerprint",
            "thumbprint",
            "mint",
            "address",
            "addr",
            "wallet",
            "tx",
            "txid",
            "txn",
            "offset",
            "marker",
            "bookmark",
            "nonce",
            "etags",
            "after",
            "before",
            "image",
            "thumbnail",
            "icon",
            "avatar",
            "photo",
            "picture",
            "pubkey",
            "slug",
            "version",
            "checkpoint",
            "cid",
            "sort",
            "anchor",
            "traceparent",
            "span",
            "trace",
            "snapshot",
            "state",
            "signature",
            "file",
            "filename",
            "path",
        ],
    ) || ends_with(last, "id") && words.len() == 1 && last.len() <= 6
        || ends_with(last, "hash")
        || one_of(last, &["doc", "sheet"])
}

/// Whether a bare number under this name counts or orders something, so that no card number is meant.
pub(crate) fn announces_counter(name: &[u8]) -> bool {
    let words = Words::of(name);
    words.last().is_some_and(|last| {
        one_of(
            trim_digits(last),
            &[
                "id",
                "ids",
                "ts",
                "timestamp",
                "time",
                "at",
                "order",
                "imei",
                "ean",
                "isbn",
                "gtin",
                "upc",
                "sku",
                "serial",
                "tracking",
                "parcel",
                "nonce",
                "seq",
                "sequence",
                "offset",
                "cursor",
                "snowflake",
                "barcode",
                "created",
                "updated",
                "size",
                "bytes",
                "count",
                "invoice",
                "shipment",
                "batch",
                "inode",
                "pid",
            ],
        )
    })
}

/// Whether a value under this name may be a telephone number in national form.
pub(crate) fn announces_phone(name: &[u8]) -> bool {
    Words::of(name).iter().any(|w| {
        one_of(
            w,
            &[
                "phone",
                "tel",
                "telephone",
                "mobile",
                "cell",
                "cellphone",
                "fax",
                "msisdn",
                "whatsapp",
                "sms",
            ],
        ) || ends_with(w, "phone")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets() {
        for name in [
            "password",
            "PGPASSWORD",
            "db.password",
            "access_token",
            "refreshToken",
            "API-KEY",
            "x-api-key",
            "secretKey",
            "client_secret",
            "passwd",
            "pwd",
            "credentials",
            "auth_token",
            "SECRET",
            "awsSecretAccessKey",
            "apikey",
            "DB_PASS",
            "private_key",
            "password2",
            "new_password",
            "slack_bot_token",
            "GITHUB_TOKEN",
            "_authToken",
            "SLACK_SIGNING_SECRET",
            "signing_key",
        ] {
            assert_eq!(classify(name.as_bytes()), Name::Strong, "{name}");
        }
        for name in ["token", "auth", "pass", "service_key"] {
            assert_eq!(classify(name.as_bytes()), Name::Weak, "{name}");
        }
    }

    #[test]
    fn names_that_only_seem_so() {
        for name in [
            "max_tokens",
            "nextPageToken",
            "password_file",
            "secret_name",
            "api_key_env",
            "secret_arn",
            "tokenizer",
            "key",
            "keywords",
            "primary_key",
            "sortKey",
            "public_key",
            "monkey",
            "secretary",
            "passenger",
            "bypass",
            "prompt_tokens",
            "csrf_token_required",
            "has_password",
            "tokenizationId",
            "file_key",
            "author",
            "compass",
            "progressToken",
            "eos_token",
            "token_count",
            "pagetoken",
            "authentication_method",
            "password_policy",
        ] {
            assert_eq!(classify(name.as_bytes()), Name::Plain, "{name}");
        }
    }
}
