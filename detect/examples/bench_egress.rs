//! What egress scanning and redaction cost, on ordinary and on hostile arguments.
//!
//! `cargo run --release -p kams-detect --example bench_egress` prints, for each case, its size, the median time of a
//! scan, the throughput, and the time of a redaction. It exits with 1 when a case takes more than 20 ms per 100 KB.
#![expect(clippy::print_stdout, reason = "the table is the product")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use kams_detect::egress::{ClassSet, Salt, scan_arguments};
use kams_detect::redact::redact;

/// The bound of DESIGN section 12.
const LIMIT_PER_100_KB: Duration = Duration::from_millis(20);
const MB: usize = 1 << 20;

fn main() -> ExitCode {
    let salt = Salt::new(b"bench");
    let mut slow = false;
    println!(
        "{:24} {:>10} {:>12} {:>9} {:>12} {:>8}",
        "case", "bytes", "scan", "MB/s", "redact", "findings"
    );
    for (name, document) in cases() {
        let rounds = (4 * MB / document.len().max(1)).clamp(1, 200);
        let mut times = Vec::new();
        let mut findings = 0;
        for _ in 0..rounds {
            let start = Instant::now();
            findings = scan_arguments(document.as_bytes(), None, &salt).len();
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let scan = times.get(times.len() / 2).copied().unwrap_or_default();
        let start = Instant::now();
        let redacted = redact(document.as_bytes(), ClassSet::ALL).map_or(0, |r| r.len());
        let redaction = start.elapsed();
        let bytes = u32::try_from(document.len()).unwrap_or(u32::MAX);
        let rate = f64::from(bytes) / 1e6 / scan.as_secs_f64();
        println!("{name:24} {bytes:>10} {scan:>12.1?} {rate:>9.0} {redaction:>12.1?} {findings:>8}");
        let limit = LIMIT_PER_100_KB.mul_f64((f64::from(bytes) / 1e5).max(1.0));
        if scan > limit || redacted > document.len() * 8 {
            println!("  too slow: limit {limit:?}");
            slow = true;
        }
    }
    if slow {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// A JSON string value of about `size` bytes that repeats `part`.
fn text(part: &str, size: usize) -> String {
    serde_json::json!({ "text": part.repeat(size / part.len() + 1) }).to_string()
}

fn cases() -> Vec<(String, String)> {
    let prose = "The build finished in 12 minutes; see src/main.rs:42 for the change to the retry loop. ";
    let code = "    let token = self.next_token()?; // password handling lives in auth.rs\n    if key == \"id\" { return Ok(()); }\n";
    let mut cases = vec![
        ("prose 10 KB".to_owned(), text(prose, 10_000)),
        ("code 10 KB".to_owned(), text(code, 10_000)),
        ("many fields 10 KB".to_owned(), fields(10_000)),
        (
            "nested JSON 10 KB".to_owned(),
            serde_json::json!({ "body": fields(7_000) }).to_string(),
        ),
        (
            "CJK 10 KB".to_owned(),
            text("構成を確認してから再実行します。", 10_000),
        ),
        ("prose 64 KB".to_owned(), text(prose, 64_000)),
        ("prose 1 MB".to_owned(), text(prose, MB)),
        ("prose 16 MB".to_owned(), text(prose, 16 * MB)),
        (
            "depth 10,000".to_owned(),
            format!("{}\"x\"{}", "[".repeat(10_000), "]".repeat(10_000)),
        ),
        ("depth 16 MB".to_owned(), "[".repeat(16 * MB)),
        ("objects 16 MB".to_owned(), "{\"a\":".repeat(16 * MB / 5)),
        ("quotes 16 MB".to_owned(), "\"".repeat(16 * MB)),
        (
            "backslashes 16 MB".to_owned(),
            format!("\"{}\"", "\\\\".repeat(8 * MB)),
        ),
    ];
    for (name, part) in [
        ("digits", "4"),
        ("spaced digits", "4 "),
        ("digit groups", "4111 "),
        ("base64", "QUJD"),
        ("hex", "41"),
        ("hex pairs", "41 "),
        ("begin", "-----BEGIN PRIVATE KEY-----"),
        (
            "begin and body",
            "-----BEGIN RSA PRIVATE KEY-----\\nkQ7fW2mZ9xT4bV1nR8cL5sD3gH6jP0aYeUoIqXwE",
        ),
        ("sk-", "sk-"),
        ("sk- bounded", " sk-a"),
        ("eyJ.", "eyJ.eyJ."),
        ("Bearer", "Bearer "),
        ("password=", "password="),
        ("password", "password"),
        ("password: \\\"", "password: \""),
        ("--password", "--password "),
        ("://", "://"),
        ("://a:b", "://a:a@"),
        ("@", "@"),
        ("a@", "a@"),
        ("a.a@a.a", "aa@bb.cc "),
        ("+1", "+1"),
        ("(1", "(1"),
        ("curl -u", "curl -u "),
        ("ghp_", "ghp_"),
        ("AKIA", "AKIA"),
        ("keys", "AKIAQ7ZK2MNPRST4UVWX "),
        ("percent", "%41"),
        ("entity", "&#65;"),
        ("\\\\u", "\\u0041"),
        ("zero width", "a\u{200b}"),
        ("concat", "\" + \""),
        ("_phg \\n", "_phg\n sk- "),
        ("{", "{"),
        ("[", "["),
        ("password is", "password a a a a a a a a a is "),
    ] {
        cases.push((format!("{name} x 1 MB"), text(part, MB)));
    }
    let mut nested = text(prose, MB);
    for _ in 0..4 {
        nested = serde_json::json!({ "w": nested }).to_string();
    }
    cases.push(("nested 4 deep".to_owned(), nested));
    cases.push((
        "secret keys".to_owned(),
        format!("{{{}\"z\":1}}", "\"password\":\"hunter2x\",".repeat(MB / 23)),
    ));
    cases
}

/// An object of many short members.
fn fields(size: usize) -> String {
    let mut members = serde_json::Map::new();
    let mut at = 0;
    while at * 48 < size {
        members.insert(
            format!("field_{at}"),
            serde_json::json!({ "id": at, "name": format!("item {at}"), "ok": true }),
        );
        at += 1;
    }
    serde_json::Value::Object(members).to_string()
}
