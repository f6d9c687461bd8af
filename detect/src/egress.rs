//! `egress.sensitive`: sensitive data in what an agent sends to a server (seed 000, SPEC section 3).
//!
//! Raw JSON goes in, findings come out; no tree is built. Each string is scanned as it stands, then once more
//! without its disguise (percent and `\u` escapes, zero-width and full-width characters, base64, hex); strings
//! that hold JSON are walked like the document itself, three levels deep, and keep the place of the outermost
//! string. Work is linear in the input: every candidate is bounded and begins at a word boundary.
//!
//! Measured on the shared cases (`corpora/secrets.open.jsonl`, the test in `corpus::egress` prints the table): all 196
//! secrets found with class and path, no finding in 137 core and 38 hard rows without one, nor in 3,340 rows made from
//! those by other random characters. On 8,466 generated rows (22 wrappers, 29 encodings, other formats): token and key
//! classes 99.8 to 100 %, bearer, card and mail 99.5 % and more, named fields 97 %, assignments in text 93 %, entropy
//! 92 %; of the encodings, gzip in base64 stays unseen, and a key whose armour line is broken or spread. What it costs is
//! printed by the example `bench_egress`: 60 us for 10 KB of prose, 310 us for 10 KB of code, 211 ms for 16 MB of prose,
//! no hostile input above 15 ms per 100 KB (on a busy machine of two cores).
//!
//! Ways to write a secret in text, as templates with six kinds of made-up values (`corpus/assignments.jsonl`, the test
//! `tests/assignments.rs`): 99 % of 235 templates that were tuned on and 94 % of 142 that were only counted (92 % before
//! [`qualified`], 58 % before [`loose`]); no alarm on 163 honest lines. detect-secrets 1.5 with its default plugins,
//! side by side on the first 147 templates and 91 lines: 51 % of the tuned and 36 % of the counted ones, 19 alarms. In
//! 7,500 pieces of documentation and code the looser rules added no alarm, and [`qualified`] none in 4,250 honest texts
//! (the corpora's and our own). What stays unseen: a credential that nothing names ("bob/x gets you in").
//!
//! A [`crate::Finding`] of this module carries class, place, count, length and a salted digest, never a value.

use std::borrow::Cow;

use crate::finding::Finding;

mod assign;
mod card;
mod class;
mod command;
mod email;
mod encoded;
mod entropy;
mod json;
mod layer;
mod loose;
mod names;
mod pem;
mod phone;
mod qualified;
mod record;
mod region;
mod scramble;
mod span;
mod text;
mod token;
mod unescape;
mod value;
mod words;

pub use class::{Class, ClassSet};
pub use record::Salt;

use json::{Item, Place, decoded, walk};
use record::Recorder;
pub(crate) use region::outgoing;
pub(crate) use span::Hit;
use span::to_source;
use text::{Context, number, scan};
use unescape::Escapes;

/// JSON inside strings is decoded so many times.
const MAX_LEVEL: u8 = 3;

/// Members that name what a sibling member `value` holds.
const NAME_MEMBERS: [&[u8]; 9] = [
    b"name",
    b"key",
    b"k",
    b"header",
    b"field",
    b"variable",
    b"var",
    b"param",
    b"label",
];
/// Members that hold what a sibling names, or what the object around them is named.
const VALUE_MEMBERS: [&[u8]; 6] = [b"value", b"val", b"v", b"plaintext", b"raw", b"current"];

/// Where a match stands, as the walk of the outermost document knows it.
pub(crate) trait Path {
    fn path(&self, hide: &dyn Fn(&[u8]) -> bool) -> String;
}

impl Path for Place<'_> {
    fn path(&self, hide: &dyn Fn(&[u8]) -> bool) -> String {
        Place::path(self, hide)
    }
}

/// Called for each match: place, offset of its outermost string, class, value, documented example.
pub(crate) type Report<'r> = dyn FnMut(&dyn Path, usize, Class, &[u8], bool) + 'r;

/// Findings in the raw JSON of a call's `params.arguments` (or another value that leaves the host), one per class.
/// `tool` is put on each finding. Bytes that are no JSON are scanned all the same.
pub fn scan_arguments(arguments: &[u8], tool: Option<&str>, salt: &Salt) -> Vec<Finding> {
    let mut recorder = Recorder::new(salt);
    hits(arguments, &mut |place, string, class, value, documented| {
        recorder.record(class, value, documented, string, |hide| place.path(hide));
    });
    recorder.into_findings(tool)
}

/// Findings in a whole message from client to server: in the arguments of tools and prompts and in elicitation and
/// sampling answers, `_meta` left out. Paths begin at the value that carries the data (`$` is `params.arguments`).
pub fn scan_message(message: &[u8], tool: Option<&str>, salt: &Salt) -> Vec<Finding> {
    let mut recorder = Recorder::new(salt);
    for region in outgoing(message) {
        let start = region.start;
        hits(
            message.get(region).unwrap_or_default(),
            &mut |place, string, class, value, documented| {
                recorder.record(class, value, documented, start + string, |hide| place.path(hide));
            },
        );
    }
    recorder.into_findings(tool)
}

/// All matches in a document, in its own bytes, sorted and disjoint.
pub(crate) fn hits(document: &[u8], report: &mut Report<'_>) -> Vec<Hit> {
    scan_document(document, 0, report)
}

/// What the scan of a plain text finds, as it stands there.
#[cfg(test)]
fn found(text: &str) -> Vec<&str> {
    text_hits(text.as_bytes(), false)
        .into_iter()
        .filter_map(|hit| text.get(hit.span))
        .collect()
}

/// All matches in a plain text; `whole`: the text itself may be an opaque credential.
pub(crate) fn text_hits(text: &[u8], whole: bool) -> Vec<Hit> {
    let context = Context { key: None, whole };
    let mut hits = scan(text, context, &mut |_, _, _| {});
    span::resolve(&mut hits);
    hits
}

fn scan_document(document: &[u8], level: u8, report: &mut Report<'_>) -> Vec<Hit> {
    let mut all = Vec::new();
    walk(document, |place, item| match item {
        Item::Key(span) => {
            let raw = place.raw(&span);
            let name = decoded(raw);
            let mut seen = Vec::new();
            let mut hits = scan(&name, Context::default(), &mut |class, value, documented| {
                seen.push((class, value.to_vec(), documented));
            });
            if let Some(first) = hits.first() {
                place.mask_key(first.class.name());
            }
            for (class, value, documented) in seen {
                report(place, span.start, class, &value, documented);
            }
            keep(
                &mut all,
                &mut hits,
                raw,
                span.start,
                matches!(name, Cow::Owned(_)),
            );
        }
        Item::Text(span) => {
            let raw = place.raw(&span);
            if raw.len() >= 3 {
                let text = decoded(raw);
                let key = governing_name(place);
                let context = Context {
                    key: key.as_deref(),
                    whole: true,
                };
                let place: &Place<'_> = place;
                let mut hits = if level < MAX_LEVEL && is_document(&text) {
                    scan_document(&text, level + 1, &mut |_, _, class, value, documented| {
                        report(place, span.start, class, value, documented);
                    })
                } else {
                    scan(&text, context, &mut |class, value, documented| {
                        report(place, span.start, class, value, documented);
                    })
                };
                keep(
                    &mut all,
                    &mut hits,
                    raw,
                    span.start,
                    matches!(text, Cow::Owned(_)),
                );
            }
            remember_name(place, span);
        }
        Item::Number(span) => {
            let digits = place.raw(&span);
            let negative = span.start.checked_sub(1).and_then(|i| document.get(i)) == Some(&b'-');
            if digits.len() < 4 || negative {
                return;
            }
            let key = governing_name(place);
            if let Some(class) = number(digits, key.as_deref()) {
                report(place, span.start, class, digits, false);
                all.push(Hit {
                    number_level: Some(level),
                    ..Hit::new(class, span)
                });
            }
        }
    });
    all
}

/// Carries a string's matches into the document's bytes.
fn keep(all: &mut Vec<Hit>, hits: &mut Vec<Hit>, raw: &[u8], start: usize, escaped: bool) {
    if escaped && !hits.is_empty() {
        to_source(Escapes::new(raw), hits);
    }
    all.extend(hits.drain(..).map(|mut hit| {
        hit.span = hit.span.start + start..hit.span.end + start;
        hit
    }));
}

/// Whether a string holds an object, an array or a string, as valid JSON.
fn is_document(text: &[u8]) -> bool {
    matches!(text.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'))
        && serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// The name that says what the current value is: its key, the `name` beside a `value`, the flag before it.
fn governing_name<'a>(place: &mut Place<'a>) -> Option<Cow<'a, [u8]>> {
    let array = place.in_array();
    let key = place.key();
    let label = place.frame().and_then(|f| f.label.clone());
    if array {
        if let Some(flag) = label {
            return Some(decoded(place.raw(&flag)));
        }
    } else if key.as_deref().is_some_and(|k| is_member(k, &VALUE_MEMBERS)) {
        return label
            .map(|span| decoded(place.raw(&span)))
            .or_else(|| place.parent_key())
            .or(key);
    }
    key
}

/// Keeps what may name the next value: a `name` member, or a command-line flag in an array.
fn remember_name(place: &mut Place<'_>, span: std::ops::Range<usize>) {
    let text = place.raw(&span);
    let keep = if place.in_array() {
        text.starts_with(b"-") && text.len() <= 64 && !text.contains(&b'=') && !text.contains(&b' ')
    } else if place.key().is_some_and(|k| is_member(&k, &NAME_MEMBERS)) {
        text.len() <= 128
    } else {
        return;
    };
    if let Some(frame) = place.frame() {
        frame.label = keep.then_some(span);
    }
}

fn is_member(key: &[u8], list: &[&[u8]]) -> bool {
    list.iter().any(|name| key.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;
    use serde_json::json;

    /// One value of each class, in its published format. Assembled, so that no scanner takes this file for a leak.
    fn planted() -> Vec<(Class, String)> {
        let body = "R7kQ2mZ9xT4bV1nW8cL5sD3gH6jP0aYeUoIqF2hB9tKw";
        let head = STANDARD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
        let claims = STANDARD.encode(r#"{"sub":"u-481","iat":1767545}"#);
        let claims = claims.trim_end_matches('=');
        let take = |n: usize| body.chars().take(n).collect::<String>();
        vec![
            (
                Class::PrivateKey,
                format!(
                    "-----BEGIN EC {0} KEY-----\n{body}\n-----END EC {0} KEY-----",
                    "PRIVATE"
                ),
            ),
            (Class::AwsKey, format!("AK{}", "IAQ7ZK2MNPRST4UVWX")),
            (Class::GithubToken, format!("gh{}_{}", 'o', take(36))),
            (
                Class::SlackToken,
                format!("xo{}-159063140631-3982547730124-{}", "xb", take(24)),
            ),
            (Class::AnthropicKey, format!("sk-{}-api03-{body}{body}", "ant")),
            (Class::OpenaiKey, format!("sk-{}-{body}", "proj")),
            (Class::Jwt, format!("{head}.{claims}.{}", take(43))),
            (Class::BearerToken, format!("Bearer {}", take(32))),
            (Class::CardNumber, "5555 5555 5555 4444".to_owned()),
            (Class::NamedSecret, "db_password=tr0ub4dor-and-3".to_owned()),
            (Class::Email, "k.olsen@corp.example".to_owned()),
            (Class::Phone, "+44 20 7946 0356".to_owned()),
            (Class::HighEntropySecret, take(40)),
        ]
    }

    fn classes(findings: &[Finding]) -> Vec<&'static str> {
        findings.iter().map(|f| f.code).collect()
    }

    #[test]
    fn no_eight_characters_of_a_value_get_out() {
        let salt = Salt::new(b"salt");
        for (class, value) in planted() {
            // In a value, in a key, below a key that holds it, and in JSON inside JSON.
            let documents = [
                json!({ "note": value }),
                json!({ value.clone(): 1 }),
                json!({ value.clone(): { "note": value } }),
                json!({ "body": json!({ "note": value }).to_string() }),
                json!({ format!("x{value}x"): [value] }),
            ];
            for (index, document) in documents.iter().enumerate() {
                let document = document.to_string();
                let findings = scan_arguments(document.as_bytes(), Some("tool"), &salt);
                assert!(
                    index == 1 || classes(&findings).contains(&class.code()),
                    "{class} {index} {findings:?}"
                );
                let shown = format!("{findings:?} {salt:?}");
                for window in value.as_bytes().windows(8) {
                    let part = String::from_utf8_lossy(window);
                    // The replaced key and the class names are ours, not the value's.
                    assert!(
                        !shown.contains(part.as_ref()) || "Bearer db_password".contains(part.as_ref()),
                        "{class} {index}: {shown}"
                    );
                }
            }
        }
    }

    #[test]
    fn disguises_do_not_hide_a_token() {
        let salt = Salt::new(b"salt");
        let (_, token) = planted().swap_remove(2);
        let spread: String = token.chars().flat_map(|c| [c, ' ']).collect();
        let each = |write: &dyn Fn(char) -> String| token.chars().map(write).collect::<String>();
        for hidden in [
            STANDARD.encode(format!("k: {token}\n")),
            STANDARD.encode(STANDARD.encode(&token)),
            hex::encode(&token),
            format!("0x{}", hex::encode_upper(&token)),
            each(&|c| format!("{:02x}:", u32::from(c))),
            each(&|c| format!("%{:02X}", u32::from(c))),
            each(&|c| format!("\\u{:04x}", u32::from(c))),
            each(&|c| format!("&#{};", u32::from(c))),
            token.chars().flat_map(|c| [c, '\u{200b}']).collect(),
            token
                .chars()
                .filter_map(|c| char::from_u32(u32::from(c) + 0xFEE0))
                .collect(),
            token.chars().rev().collect(),
            spread.trim_end().to_owned(),
            token.replacen("R7kQ2m", "R7k\nQ2m", 1),
            token.replacen("R7kQ2m", "R7k\" + \"Q2m", 1),
        ] {
            for text in [hidden.clone(), format!("run this: {hidden} now")] {
                let document = json!({ "data": text }).to_string();
                let findings = scan_arguments(document.as_bytes(), None, &salt);
                assert_eq!(classes(&findings), ["KAMS-EGR-003"], "{text}");
                let redacted = crate::redact::redact(document.as_bytes(), ClassSet::ALL).unwrap();
                let redacted: serde_json::Value = serde_json::from_slice(&redacted).unwrap();
                let left = redacted["data"].as_str().unwrap();
                assert!(
                    left.contains("[kams:redacted:github_token]") && left.len() < 60,
                    "{left}"
                );
            }
        }
    }

    #[test]
    fn neighbours_name_a_value() {
        let salt = Salt::new(b"salt");
        for document in [
            r#"{"env":[{"name":"DB_PASSWORD","value":"hunter2"}]}"#,
            r#"{"password":{"value":"hunter2"}}"#,
            r#"{"args":["--password","hunter2"]}"#,
            r#"{"passwords":["hunter2"]}"#,
            r#"{"pin_password":20260211}"#,
        ] {
            let findings = scan_arguments(document.as_bytes(), None, &salt);
            assert_eq!(classes(&findings), ["KAMS-EGR-010"], "{document}");
        }
    }

    #[test]
    fn counts_and_digests_by_place() {
        let salt = Salt::new(b"salt");
        let document = br#"{"to":["a@corp.example, b@corp.example","a@corp.example"]}"#;
        let findings = scan_arguments(document, None, &salt);
        let Some(crate::Evidence::Egress(places)) = findings.first().map(|f| f.evidence.clone()) else {
            panic!("{findings:?}");
        };
        let seen: Vec<_> = places
            .iter()
            .map(|p| (p.path.as_str(), p.count, p.length))
            .collect();
        assert_eq!(seen, [("$.to[0]", 2, 14), ("$.to[1]", 1, 14)]);
        assert_eq!(places[0].digest, salt.digest(b"a@corp.example"));
        assert_eq!(places[0].digest, places[1].digest);
    }

    #[test]
    fn meta_and_results_are_left_alone() {
        let salt = Salt::new(b"salt");
        let (_, token) = planted().swap_remove(2);
        let message = json!({ "id": token, "params": { "_meta": { "a": token }, "name": token, "arguments": { "a": 1 } } });
        assert!(scan_message(message.to_string().as_bytes(), None, &salt).is_empty());
        let answer = json!({ "id": 1, "result": { "action": "accept", "content": { "k": token } } });
        let findings = scan_message(answer.to_string().as_bytes(), None, &salt);
        assert_eq!(classes(&findings), ["KAMS-EGR-003"]);
    }

    #[test]
    fn hostile_depth_and_length_end() {
        let salt = Salt::new(b"salt");
        let (_, token) = planted().swap_remove(2);
        let depth = 10_000;
        let document = format!("{}\"{token}\"{}", "[{\"a\":".repeat(depth), "}]".repeat(depth));
        assert_eq!(
            classes(&scan_arguments(document.as_bytes(), None, &salt)),
            ["KAMS-EGR-003"]
        );
        let cut = format!(
            "{{\"a\":[\"{token}\",\"-----BEGIN RSA {} KEY-----{}",
            "PRIVATE",
            "\\n".repeat(60)
        );
        assert_eq!(
            classes(&scan_arguments(cut.as_bytes(), None, &salt)),
            ["KAMS-EGR-003"]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            scan_arguments(&bytes, None, &Salt::new(b""));
            scan_message(&bytes, None, &Salt::new(b""));
        }

        #[test]
        fn text_of_triggers_is_safe(parts in proptest::collection::vec(prop_oneof![
            Just("-----BEGIN PRIVATE KEY-----"), Just("-----END"), Just("ghp_"), Just("sk-"), Just("eyJ"), Just("."), Just("@"),
            Just("://"), Just(":"), Just("password"), Just("="), Just("\\"), Just("\""), Just("+1"), Just("4111"), Just(" "),
            Just("curl -u "), Just("Bearer "), Just("%41"), Just("&#65;"), Just("é"), Just("\u{200b}"), Just("\n"), Just("'"),
            Just("A7x"), Just("41:"), Just("_phg"), Just("identified by '"), Just(" is "), Just("("), Just("--"),
        ], 0..60)) {
            let document = json!({ "a": parts.concat(), "password": parts.concat() }).to_string();
            let after = crate::redact::redact(document.as_bytes(), ClassSet::ALL);
            if let Some(after) = after {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&after).is_ok());
            }
            scan_arguments(parts.concat().as_bytes(), None, &Salt::new(b""));
        }
    }
}
