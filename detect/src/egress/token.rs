//! Tokens with a published format: vendor prefixes, JSON web tokens, `Bearer`.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::class::Class;
use super::span::Hit;
use super::value::{is_drawn, is_placeholder, is_random_body};
use super::words::{contains, distinct, run_length};

/// Keys that vendors print in their documentation.
const DOCUMENTED: &[&[u8]] = &[
    b"AKIAIOSFODNN7EXAMPLE",
    b"ASIAIOSFODNN7EXAMPLE",
    b"AKIAI44QH8DHBEXAMPLE",
    b"AIDACKCEVSQ6C2EXAMPLE",
    b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    b"je7MtGbClwBF/2Zp9Utk/h3yCo8nvbEXAMPLEKEY",
    b"ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    b"gho_16C7e42F292c6912E7710c838347Ae178B4a",
];

/// Signature of the token that jwt.io shows.
const JWT_EXAMPLE: &[u8] = b"SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c";

/// Longest token that is looked at.
const MAX_TOKEN: usize = 8_192;

pub(crate) const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

const fn is_alnum(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

/// Whether a token may begin at `at`: not in the middle of a word. An escaped line end (`\n`) before it is no word.
pub(crate) fn begins(text: &[u8], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).and_then(|i| text.get(i)).copied() else {
        return true;
    };
    !is_word(before) || after_escape(text, at)
}

/// Whether the letter before `at` belongs to an escape such as `\n`.
fn after_escape(text: &[u8], at: usize) -> bool {
    at >= 2 && matches!(text.get(at - 1), Some(b'n' | b'r' | b't')) && text.get(at - 2) == Some(&b'\\')
}

/// End of the run of bytes that satisfy `class`, at most [`MAX_TOKEN`] long.
pub(crate) fn run_end(text: &[u8], start: usize, class: impl Fn(u8) -> bool) -> usize {
    let limit = text.len().min(start.saturating_add(MAX_TOKEN));
    let window = text.get(start..limit).unwrap_or_default();
    start + window.iter().position(|&b| !class(b)).unwrap_or(window.len())
}

fn slice(text: &[u8], span: Range<usize>) -> &[u8] {
    text.get(span).unwrap_or_default()
}

fn hit(text: &[u8], class: Class, span: Range<usize>) -> Hit {
    let value = slice(text, span.clone());
    let documented = DOCUMENTED.contains(&value) || (class == Class::Jwt && value.ends_with(JWT_EXAMPLE));
    Hit {
        documented,
        ..Hit::new(class, span)
    }
}

/// An AWS access key id: four letters and sixteen of A-Z, 0-9.
pub(crate) fn aws_id(text: &[u8], at: usize) -> Option<Hit> {
    let upper = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit();
    let before = at
        .checked_sub(1)
        .and_then(|i| text.get(i))
        .copied()
        .unwrap_or(b' ');
    let prefix = slice(text, at..at + 4);
    let known = [&b"AKIA"[..], b"ASIA", b"AIDA", b"AROA", b"ABIA", b"ACCA"].contains(&prefix);
    if !known || (is_alnum(before) && !after_escape(text, at)) {
        return None;
    }
    let end = run_end(text, at, is_alnum);
    let body = slice(text, at + 4..end);
    let documented = body.ends_with(b"EXAMPLE");
    let whole = end - at == 20 || (documented && end - at == 21);
    (whole && body.iter().all(|&b| upper(b)) && (documented || is_key_like(body))).then(|| Hit {
        documented,
        ..hit(text, Class::AwsKey, at..end)
    })
}

/// Sixteen characters that are not one repeated few.
fn is_key_like(body: &[u8]) -> bool {
    distinct(body) >= 6
}

/// A 40-character AWS secret within 300 bytes after or before an id: what no prefix gives away.
pub(crate) fn aws_secret_near(text: &[u8], id: &Range<usize>) -> Option<Hit> {
    let from = id.start.saturating_sub(300);
    let to = text.len().min(id.end + 300);
    let mut at = from;
    while at < to {
        let end = run_end(text, at, is_base64);
        if end - at == 40 && end <= to && is_aws_secret(slice(text, at..end)) {
            return Some(hit(text, Class::AwsKey, at..end));
        }
        // `secret=<40>`: the sign of assignment is part of the base64 alphabet.
        if end > at + 41 && text.get(end - 41) == Some(&b'=') && is_aws_secret(slice(text, end - 40..end)) {
            return Some(hit(text, Class::AwsKey, end - 40..end));
        }
        at = end + 1;
    }
    None
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// The shape of an AWS secret access key: 40 characters of base64, mixed.
pub(crate) fn is_aws_secret(value: &[u8]) -> bool {
    value.len() == 40
        && value.iter().all(|&b| is_base64(b))
        && value.iter().any(u8::is_ascii_lowercase)
        && value.iter().any(u8::is_ascii_uppercase)
        && value.iter().any(u8::is_ascii_digit)
        && run_length(value) < 3.2
}

/// `ghp_`, `gho_`, `ghu_`, `ghs_`, `ghr_` with 36 characters or, since 2026, an id and a JSON web token;
/// `github_pat_`.
pub(crate) fn github(text: &[u8], at: usize) -> Option<Hit> {
    let before = at
        .checked_sub(1)
        .and_then(|i| text.get(i))
        .copied()
        .unwrap_or(b' ');
    if is_alnum(before) && !after_escape(text, at) {
        return None;
    }
    if slice(text, at..at + 11).eq_ignore_ascii_case(b"github_pat_") {
        let end = run_end(text, at + 11, |b| is_alnum(b) || b == b'_');
        let body = slice(text, at + 11..end);
        return (body.len() >= 40 && is_random_body(body)).then(|| hit(text, Class::GithubToken, at..end));
    }
    let short_end = run_end(text, at + 4, is_alnum);
    let short = slice(text, at + 4..short_end);
    if text.get(short_end) == Some(&b'_')
        && !short.is_empty()
        && slice(text, short_end + 1..short_end + 4) == b"eyJ"
    {
        let end = trim_end(text, at, run_end(text, short_end, |b| is_word(b) || b == b'.'));
        return (end - at >= 80).then(|| hit(text, Class::GithubToken, at..end));
    }
    ((36..=255).contains(&short.len()) && is_random_body(short))
        .then(|| hit(text, Class::GithubToken, at..short_end))
}

/// `xoxb-`, `xoxp-`, `xoxe.xoxp-1-`, `xapp-1-` and the rest of Slack's.
pub(crate) fn slack(text: &[u8], at: usize) -> Option<Hit> {
    if !begins(text, at) && text.get(at.wrapping_sub(1)) != Some(&b'.') {
        return None;
    }
    let cookie = slice(text, at..at + 5).eq_ignore_ascii_case(b"xoxd-");
    let end = run_end(text, at, |b| {
        is_word(b) || b == b'.' || (cookie && matches!(b, b'%' | b'+' | b'/' | b'='))
    });
    let end = trim_end(text, at, end);
    let value = slice(text, at..end);
    let known = match value.get(3) {
        Some(b'p' | b'P') => value.get(4) == Some(&b'-'),
        Some(_) => matches!(value.get(4), Some(b'-' | b'.')) || slice(value, 4..6).ends_with(b"-"),
        None => false,
    };
    let body = slice(value, 5..value.len());
    let longest = body.split(|b| !is_alnum(*b)).map(<[u8]>::len).max().unwrap_or(0);
    let random = distinct(body) >= 8 && longest >= 10 && !is_placeholder(body);
    (known && body.len() >= 20 && body.iter().any(u8::is_ascii_digit) && random)
        .then(|| hit(text, Class::SlackToken, at..end))
}

/// `hooks.slack.com/services/T.../B.../...`: whoever knows the address may post.
pub(crate) fn slack_hook(text: &[u8], at: usize) -> Option<Hit> {
    let end = run_end(text, at, |b| is_alnum(b) || matches!(b, b'/' | b'.'));
    let parts: Vec<&[u8]> = slice(text, at..end).splitn(7, |b| *b == b'/').collect();
    let secret = parts.get(4)?;
    (parts.len() >= 5 && secret.len() >= 20 && is_random_body(secret))
        .then(|| hit(text, Class::SlackToken, at..end))
}

/// `sk-ant-` before `sk-`, with `sk-proj-`, `sk-svcacct-`, `sk-admin-`.
pub(crate) fn sk(text: &[u8], at: usize) -> Option<Hit> {
    if !begins(text, at) {
        return None;
    }
    let end = trim_end(text, at, run_end(text, at, is_word));
    let value = slice(text, at..end);
    if let Some(body) = value.strip_prefix(b"sk-ant-") {
        return (body.len() >= 20 && is_random_body(body)).then(|| hit(text, Class::AnthropicKey, at..end));
    }
    let body = value.get(3..)?;
    let longest = body.split(|b| !is_alnum(*b)).map(<[u8]>::len).max().unwrap_or(0);
    let named = [&b"proj-"[..], b"svcacct-", b"admin-", b"service-", b"None-"]
        .iter()
        .any(|p| body.starts_with(p));
    let shaped = if named { body.len() >= 32 } else { longest >= 20 };
    (body.len() >= 32 && shaped && body.iter().any(u8::is_ascii_digit) && is_random_body(body))
        .then(|| hit(text, Class::OpenaiKey, at..end))
}

/// A JSON web token: three base64url segments, or the five of an encrypted one, the first of which holds a
/// header.
pub(crate) fn jwt(text: &[u8], at: usize) -> Option<Hit> {
    let before = at
        .checked_sub(1)
        .and_then(|i| text.get(i))
        .copied()
        .unwrap_or(b' ');
    if (is_word(before) || before == b'.') && !after_escape(text, at) {
        return None;
    }
    let end = trim_end(text, at, run_end(text, at, |b| is_word(b) || b == b'.'));
    let value = slice(text, at..end);
    let mut parts = value.split(|b| *b == b'.');
    let header = parts.next()?;
    let payload = parts.next()?;
    let signature = parts.next()?;
    if header.len() < 12 || signature.len() < 16 {
        return None;
    }
    let mut decoded = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
    decoded.truncate(1_024);
    let real_header = contains(&decoded, "\"alg\"") || contains(&decoded, "\"typ\"");
    if !(real_header || payload.starts_with(b"eyJ")) || (payload.is_empty() && parts.clone().count() < 2) {
        return None;
    }
    let encrypted = parts.clone().count() == 2 && !payload.starts_with(b"eyJ");
    let length = if encrypted {
        value.len()
    } else {
        header.len() + payload.len() + signature.len() + 2
    };
    is_random_body(signature).then(|| hit(text, Class::Jwt, at..at + length))
}

/// The token behind `Bearer`, which stands at `at`.
pub(crate) fn bearer(text: &[u8], at: usize) -> Option<Hit> {
    if at
        .checked_sub(1)
        .and_then(|i| text.get(i))
        .is_some_and(|&b| is_alnum(b))
        && !after_escape(text, at)
    {
        return None;
    }
    let gap_start = at + 6;
    let gap = slice(text, gap_start..text.len().min(gap_start + 8));
    let skip = gap
        .iter()
        .position(|b| !matches!(b, b' ' | b'\t' | b':' | b'=' | b'"' | b'\'' | b'\n'))?;
    if skip == 0 {
        return None;
    }
    let start = gap_start + skip;
    let end = run_end(text, start, |b| {
        is_word(b) || matches!(b, b'.' | b'~' | b'+' | b'/' | b'=' | b'|' | b':')
    });
    let end = trim_end(text, start, end);
    let value = slice(text, start..end);
    let mixed = value.iter().any(u8::is_ascii_digit)
        || (value.iter().any(u8::is_ascii_lowercase) && value.iter().skip(1).any(u8::is_ascii_uppercase));
    let random = is_drawn(value) || (run_length(value) < 4.0 && is_random_body(value));
    (value.len() >= 20 && mixed && random && !is_placeholder(value))
        .then(|| hit(text, Class::BearerToken, start..end))
}

/// Cuts full stops and hyphens that end a sentence rather than a token.
fn trim_end(text: &[u8], start: usize, end: usize) -> usize {
    let tail = slice(text, start..end)
        .iter()
        .rposition(|b| !matches!(b, b'.' | b':'));
    tail.map_or(start, |last| start + last + 1)
}
