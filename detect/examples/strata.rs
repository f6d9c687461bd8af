//! Prints recall and false positives of the scorer per kind and stratum over the corpora.
//!
//! `cargo run -p kams-detect --example strata [-- --show STRATUM]`: with `--show`, also the rows on the wrong
//! side, with the signals that fired; with `--dump`, every row that is not held back as a JSON line. `--own` reads the
//! project's own texts instead, `--file FILE` any others.
#![expect(clippy::print_stdout, reason = "a developer's report")]

use std::collections::BTreeMap;
use std::path::Path;

use kams_detect::integrity::{Channel, score};

fn main() {
    let show = std::env::args().skip_while(|a| a != "--show").nth(1);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    let dump = std::env::args().any(|a| a == "--dump");
    let mut table: BTreeMap<(String, String, String), Vec<(f64, bool)>> = BTreeMap::new();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/texts.jsonl");
    let files = ["tooldesc", "toolresult", "foreign"].map(|f| folder.join(format!("{f}.open.jsonl")));
    let other = std::env::args().skip_while(|a| a != "--file").nth(1);
    let files = match other {
        Some(path) => vec![path.into()],
        None if std::env::args().any(|a| a == "--own") => vec![own],
        None => files.to_vec(),
    };
    for file in files {
        let Ok(lines) = std::fs::read_to_string(&file) else {
            println!("no corpora at {}", folder.display());
            return;
        };
        for line in lines.lines() {
            let Ok(row) = serde_json::from_str::<serde_json::Value>(line) else {
                continue;
            };
            let field = |name: &str| {
                row.get(name)
                    .and_then(|v| v.as_str())
                    .unwrap_or_default()
                    .to_owned()
            };
            let kind = field("kind");
            let channel = match kind.as_str() {
                "tool_description" => Channel::Description,
                "tool_param" => Channel::Parameter,
                "server_instructions" => Channel::Instructions,
                "tool_result" => Channel::Result,
                _ => continue,
            };
            let found = score(&field("text"), channel);
            let bad = field("label") == "malicious";
            let limit = if channel == Channel::Result { 0.55 } else { 0.30 };
            let stratum = field("stratum");
            let stratum = if field("split").is_empty() {
                stratum
            } else {
                format!("{stratum} {}", field("split"))
            };
            // Odd and even groups: one half is for tuning, the other for checking.
            let half = field("group")
                .bytes()
                .fold(7_u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)))
                % 2
                == 1;
            if dump && field("split") != "held" {
                let hits: Vec<_> = found
                    .hits
                    .iter()
                    .map(|h| serde_json::json!([h.signal, h.contribution, field("text").get(h.span.clone())]))
                    .collect();
                println!(
                    "{}",
                    serde_json::json!({"id": field("id"), "kind": kind, "label": field("label"), "group": field("group"),
                        "stratum": stratum, "score": found.value, "hits": hits, "half": half})
                );
            }
            // What is held back is counted and never looked at one by one.
            if field("split") != "held"
                && show.as_deref() == Some(stratum.as_str())
                && (found.value >= limit) != bad
            {
                println!(
                    "{} {kind} {:.2} {}",
                    field("id"),
                    found.value,
                    &field("text")
                        .replace('\n', "\\n")
                        .chars()
                        .take(300)
                        .collect::<String>()
                );
                for hit in &found.hits {
                    println!(
                        "      {:.2} {} {:?}",
                        hit.contribution,
                        hit.signal,
                        field("text")
                            .get(hit.span.clone())
                            .unwrap_or("?")
                            .chars()
                            .take(90)
                            .collect::<String>()
                    );
                }
            }
            table
                .entry((kind, field("label"), stratum))
                .or_default()
                .push((found.value, half));
        }
    }
    if dump {
        return;
    }
    println!(
        "{:20} {:10} {:17} {:>5} {:>8} {:>8}   half A / half B at 0.30, 0.55",
        "kind", "label", "stratum", "rows", ">=0.30", ">=0.55"
    );
    for ((kind, label, stratum), scores) in &table {
        let over = |limit: f64, half: Option<bool>| {
            scores
                .iter()
                .filter(|s| s.0 >= limit && half.is_none_or(|h| h == s.1))
                .count()
        };
        let of = |half: bool| scores.iter().filter(|s| s.1 == half).count();
        println!(
            "{kind:20} {label:10} {stratum:17} {:5} {:8} {:8}   {}/{} {}/{}   {}/{} {}/{}",
            scores.len(),
            over(0.30, None),
            over(0.55, None),
            over(0.30, Some(false)),
            of(false),
            over(0.30, Some(true)),
            of(true),
            over(0.55, Some(false)),
            of(false),
            over(0.55, Some(true)),
            of(true),
        );
    }
}
