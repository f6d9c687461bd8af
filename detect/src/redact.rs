//! Typed redaction: the matched spans of a message become `[kams:redacted:<class>]`, every other byte stays (seed
//! 000, SPEC section 3).
//!
//! The replacement holds no character that JSON escapes, so it may stand at any depth of nested JSON strings. A bare
//! number becomes a string; its quotes are escaped as deep as it stands. Where a secret was seen only after
//! decoding, the whole encoded run goes.

use std::borrow::Cow;
use std::ops::Range;

use crate::egress::{Class, ClassSet, Hit, hits, outgoing, text_hits};

/// Shortest text that can hold a value worth hiding, in bytes.
const SHORTEST: usize = 8;

/// Rounds after which redaction stops: what a replacement leaves beside it can look like something new, rarely twice.
const MAX_ROUNDS: usize = 4;

/// `document` (raw JSON, such as a call's arguments) without the values of `classes`; none where it holds none.
pub fn redact(document: &[u8], classes: ClassSet) -> Option<Vec<u8>> {
    rounds(document, |bytes| found(bytes, 0..bytes.len(), classes))
}

/// A message from client to server without the values of `classes` in what it carries (arguments, answers; not
/// `_meta`, not ids or names); none where it holds none.
pub fn redact_message(message: &[u8], classes: ClassSet) -> Option<Vec<u8>> {
    rounds(message, |bytes| {
        outgoing(bytes)
            .into_iter()
            .flat_map(|region| found(bytes, region, classes))
            .collect()
    })
}

/// A name, id or place that a client or server chose, fit for events, labels and logs: values of sensitive classes
/// are replaced. Telephone numbers and mere entropy stay, because ids look like that and are needed to tell things
/// apart; [`betrays`] is for what has no such need.
pub fn shown(text: &str) -> Cow<'_, str> {
    let spans = sensitive(text, false);
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(String::from_utf8_lossy(&replace(text.as_bytes(), &spans)).into_owned())
}

/// Whether a text from arguments or results, such as the key of a member, holds a value of a sensitive class or is
/// itself an opaque credential.
pub fn betrays(text: &str) -> bool {
    !sensitive(text, true).is_empty()
}

/// What is wrong with a JSON text or value, without the values that the library's own message quotes.
pub fn json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // Errors of syntax name a place and a character class, and "missing" and "duplicate" our own members.
    if !error.is_data() || text.starts_with("missing field") || text.starts_with("duplicate field") {
        return text;
    }
    let Some((found, expected)) = text.rsplit_once(", expected ") else {
        return "a value that is not allowed here".to_owned();
    };
    let name = found
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.strip_suffix('`'))
        .filter(|name| !betrays(name));
    match name {
        Some(name) => format!("unknown member `{name}`, expected {expected}"),
        None => format!("not what belongs here: expected {expected}"),
    }
}

fn sensitive(text: &str, whole: bool) -> Vec<Hit> {
    if text.len() < SHORTEST {
        return Vec::new();
    }
    let mut found = text_hits(text.as_bytes(), whole);
    found.retain(|hit| whole || !matches!(hit.class, Class::Phone | Class::HighEntropySecret));
    found
}

/// What stands for a value of `class`.
pub fn replacement(class: Class) -> String {
    format!("[kams:redacted:{class}]")
}

fn rounds(bytes: &[u8], find: impl Fn(&[u8]) -> Vec<Hit>) -> Option<Vec<u8>> {
    let mut current: Option<Vec<u8>> = None;
    for _ in 0..MAX_ROUNDS {
        let input = current.as_deref().unwrap_or(bytes);
        let spans = find(input);
        if spans.is_empty() {
            break;
        }
        current = Some(replace(input, &spans));
    }
    current
}

fn found(bytes: &[u8], region: Range<usize>, classes: ClassSet) -> Vec<Hit> {
    let start = region.start;
    let mut found = hits(bytes.get(region).unwrap_or_default(), &mut |_, _, _, _, _| {});
    found.retain(|h| classes.contains(h.class));
    for hit in &mut found {
        hit.span = hit.span.start + start..hit.span.end + start;
    }
    found
}

fn replace(bytes: &[u8], spans: &[Hit]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    for hit in spans {
        out.extend_from_slice(bytes.get(at..hit.span.start).unwrap_or_default());
        let quote = hit.number_level.map(quote_at);
        out.extend_from_slice(quote.as_deref().unwrap_or_default().as_bytes());
        out.extend_from_slice(replacement(hit.class).as_bytes());
        out.extend_from_slice(quote.as_deref().unwrap_or_default().as_bytes());
        at = hit.span.end;
    }
    out.extend_from_slice(bytes.get(at..).unwrap_or_default());
    out
}

/// A quotation mark inside `level` JSON strings: `"`, `\"`, `\\\"`, ...
fn quote_at(level: u8) -> String {
    let mut quote = "\\".repeat((1_usize << level.min(8)) - 1);
    quote.push('"');
    quote
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::fmt::Write as _;

    fn all(document: &str) -> String {
        let out = redact(document.as_bytes(), ClassSet::ALL).unwrap_or_else(|| document.as_bytes().to_vec());
        String::from_utf8(out).unwrap()
    }

    /// A token in the published format, assembled so that no scanner of repositories takes it for a real one.
    fn token(body: &str) -> String {
        format!("gh{}_{body}", 'p')
    }

    const BODY: &str = "R7kQ2mZ9xT4bV1nW8cL5sD3gH6jP0aYeUoIq";

    #[test]
    fn only_the_span_changes() {
        let secret = token(BODY);
        let before =
            format!("{{ \"a\" : 1.50,\t\"text\":\"caf\\u00e9 {secret} \\ud83d\\ude00\\/\" , \"b\":[ ]}}");
        let after = all(&before);
        assert_eq!(after, before.replace(&secret, "[kams:redacted:github_token]"));
    }

    #[test]
    fn names_are_shown_without_the_credentials_in_them() {
        let secret = token(BODY);
        assert_eq!(
            shown(&format!("resource://{secret}/readme")),
            "resource://[kams:redacted:github_token]/readme"
        );
        assert_eq!(
            shown("postgres://app:hunter2-but-longer@db.internal/main"),
            "postgres://app:[kams:redacted:named_secret]@db.internal/main"
        );
        for name in [
            "echo",
            "list_directory",
            "get-structured-content",
            "mcp__github__create_pull_request",
            "f2d1a7c0-5b43-4d5e-9a51-8f4b6c7d2e10",
            "toolu_01XbQ8Zt3mKp9wRsVn5YcLdE",
            "notifications/tools/list_changed",
            "file:///srv/notes/2026-11-30.md",
        ] {
            assert_eq!(shown(name), name);
        }
        assert!(betrays(BODY) && betrays(&secret) && !betrays("description"));
    }

    #[test]
    fn errors_quote_no_value() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only its errors matter")]
        struct Row {
            count: u32,
            kind: Kind,
        }
        #[derive(Debug, serde::Deserialize)]
        enum Kind {
            Plain,
        }
        let secret = token(BODY);
        let told = |text: String| json_error(&serde_json::from_str::<Row>(&text).unwrap_err());
        for text in [
            format!(r#"{{"count": "{secret}"}}"#),
            format!(r#"{{"count": 1, "kind": "{secret}"}}"#),
            format!(r#"{{"{secret}": 1}}"#),
            format!(r#""{secret}, expected {secret}""#),
            format!(r#"{{"count": {secret}"#),
        ] {
            let said = told(text);
            assert!(!said.contains("R7kQ2mZ9"), "{said}");
        }
        assert!(told(r#"{"cuont": 1}"#.to_owned()).starts_with("unknown member `cuont`, expected `count`"));
        assert!(told(r#"{"count": 1}"#.to_owned()).contains("missing field `kind`"));
        assert!(told(r#"{"count": "x"}"#.to_owned()).contains("expected u32"));
    }

    #[test]
    fn nested_strings_keep_their_escaping() {
        let secret = token(BODY);
        let inner = json!({"cfg": {"v": secret, "q": "say \"hi\"\n"}}).to_string();
        let middle = json!({"deep": inner}).to_string();
        let outer = json!({"body": middle, "n": 3}).to_string();
        let after = all(&outer);
        assert_eq!(after, outer.replace(&secret, "[kams:redacted:github_token]"));
        let value: Value = serde_json::from_str(&after).unwrap();
        let middle: Value = serde_json::from_str(value["body"].as_str().unwrap()).unwrap();
        let inner: Value = serde_json::from_str(middle["deep"].as_str().unwrap()).unwrap();
        assert_eq!(inner["cfg"]["v"], "[kams:redacted:github_token]");
    }

    #[test]
    fn escaped_characters_go_as_a_whole() {
        let secret = token(BODY);
        let escaped = secret.chars().fold(String::new(), |mut text, c| {
            write!(text, "\\u{:04x}", u32::from(c)).unwrap();
            text
        });
        assert_eq!(
            all(&format!("{{\"a\":\"x {escaped} y\"}}")),
            r#"{"a":"x [kams:redacted:github_token] y"}"#
        );
    }

    #[test]
    fn encoded_runs_go_as_a_whole() {
        use base64::Engine as _;
        let encoded = base64::engine::general_purpose::STANDARD.encode(format!("k: {}", token(BODY)));
        assert_eq!(
            all(&format!("{{\"d\":\"see {encoded} there\"}}")),
            r#"{"d":"see [kams:redacted:github_token] there"}"#
        );
    }

    #[test]
    fn numbers_become_strings_at_their_depth() {
        assert_eq!(
            all(r#"{"card":4111111111111111}"#),
            r#"{"card":"[kams:redacted:card_number]"}"#
        );
        assert_eq!(
            all(r#"{"body":"{\"card\":4111111111111111}"}"#),
            r#"{"body":"{\"card\":\"[kams:redacted:card_number]\"}"}"#
        );
    }

    #[test]
    fn only_the_classes_asked_for() {
        let document = r#"{"to":"ada@corp.example","password":"hunter2"}"#;
        let classes = ClassSet::EMPTY.with(Class::Email);
        let after = redact(document.as_bytes(), classes).unwrap();
        assert_eq!(after, br#"{"to":"[kams:redacted:email]","password":"hunter2"}"#);
        assert_eq!(redact(b"{\"a\":\"plain\"}", ClassSet::ALL), None);
    }

    #[test]
    fn a_message_changes_in_its_arguments_only() {
        let secret = token(BODY);
        let message = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"{secret}\",\"params\":{{\"_meta\":{{\"t\":\"{secret}\"}},\"name\":\"x\",\"arguments\":{{\"q\":\"{secret}\"}}}}}}"
        );
        let after = String::from_utf8(redact_message(message.as_bytes(), ClassSet::ALL).unwrap()).unwrap();
        let at = message.rfind(&secret).unwrap();
        let (head, tail) = message.split_at(at);
        let expected = format!(
            "{head}{}",
            tail.replacen(&secret, "[kams:redacted:github_token]", 1)
        );
        assert_eq!(after, expected);
    }

    fn secrets() -> impl Strategy<Value = String> {
        prop_oneof![
            "[A-Za-z0-9]{36}".prop_map(|b| token(&b)),
            "[A-Z2-7]{16}".prop_map(|b| format!("AK{}{b}", "IA")),
            "[a-f0-9]{32}".prop_map(|b| format!("xo{}-123456789012-123456789012-123456789012-{b}", "xp")),
            "[A-Za-z0-9]{95}".prop_map(|b| format!("sk-{}-api03-{b}", "ant")),
            Just("4111 1111 1111 1111".to_owned()),
            "[a-z]{3,8}@[a-z]{3,8}\\.example".prop_map(|m| m),
            "[A-Za-z0-9+/]{64}".prop_map(|b| format!(
                "-----BEGIN {} KEY-----\n{b}\n{b}\n-----END {0} KEY-----",
                "PRIVATE"
            )),
        ]
    }

    fn trees() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-1000_i32..1000).prop_map(Value::from),
            "[ a-z\"\\\\\n\u{e9}\u{1F600}]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z]{1,4}", inner.clone(), 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
                inner.prop_map(|v| Value::from(v.to_string())),
            ]
        })
    }

    proptest! {
        #[test]
        fn planted_secrets_leave_and_nothing_else_changes(
            tree in trees(), secret in secrets(), before in "[a-z\u{e9} ]{0,8}", depth in 0_usize..4,
        ) {
            // Random bodies that the validators refuse as placeholders are no secrets.
            let direct = json!({ "t": secret }).to_string();
            prop_assume!(redact(direct.as_bytes(), ClassSet::ALL).is_some());
            let mut planted = json!({ "t": format!("{before} {secret} "), "tree": tree });
            for _ in 0..depth {
                planted = json!({ "w": planted.to_string() });
            }
            let document = planted.to_string();
            let after = redact(document.as_bytes(), ClassSet::ALL).expect("found");
            let text = String::from_utf8(after.clone()).unwrap();
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
            // No eight characters of the secret are left, unless they stand elsewhere in the document.
            let mut escaped = secret.clone();
            for _ in 0..=depth {
                let quoted = serde_json::to_string(&escaped).unwrap();
                escaped = quoted.trim_matches('"').to_owned();
            }
            prop_assert!(!text.contains(&escaped));
            // Everything outside one replaced span is the same, byte by byte.
            let start = document.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
            let end = document.bytes().rev().zip(text.bytes().rev()).take_while(|(a, b)| a == b).count();
            let marker = &text.as_bytes()[start.min(text.len() - end)..text.len() - end];
            prop_assert!(marker.len() <= 40, "{}", text);
            prop_assert_eq!(redact(&after, ClassSet::ALL), None);
        }

        #[test]
        fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = redact(&bytes, ClassSet::ALL);
            let _ = redact_message(&bytes, ClassSet::ALL);
        }

        #[test]
        fn json_like_bytes_are_safe(text in "[\\[\\]{}\",:\\\\u0-9@+a-z=/ -]{0,200}") {
            let _ = redact(text.as_bytes(), ClassSet::ALL);
        }

        #[test]
        fn valid_json_stays_valid(tree in trees()) {
            let document = tree.to_string();
            if let Some(after) = redact(document.as_bytes(), ClassSet::ALL) {
                prop_assert!(serde_json::from_slice::<Value>(&after).is_ok());
            }
        }
    }
}
