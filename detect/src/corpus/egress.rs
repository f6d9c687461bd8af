//! `kams detect --corpus` for rows of kind `secret` and `args`: the arguments of a call in, one entry for each
//! class and place out.

use serde_json::{Value, json};

use crate::Evidence;
use crate::egress::{Class, Salt, scan_arguments};
use crate::finding::{Finding, Severity};

/// The result row of one `secret` or `args` row: `id` and `findings`, one entry for each (class, path).
pub fn row(row: &Value, salt: &Salt) -> Value {
    let arguments = row.get("value").map(Value::to_string).unwrap_or_default();
    let findings: Vec<Value> = scan_arguments(arguments.as_bytes(), None, salt)
        .iter()
        .flat_map(entries)
        .collect();
    json!({ "id": row.get("id"), "findings": findings })
}

/// The places of an egress finding, one JSON object each; nothing for other findings.
pub fn entries(finding: &Finding) -> Vec<Value> {
    let Evidence::Egress(places) = &finding.evidence else {
        return Vec::new();
    };
    places
        .iter()
        .map(|place| {
            let severity = match Class::from_name(place.class) {
                Some(class) if !place.documented_example => class.severity(),
                _ => Severity::Low,
            };
            json!({
                "code": finding.code,
                "detector": finding.detector,
                "kind": finding.kind.name(),
                "severity": severity.name(),
                "confidence": finding.confidence,
                "class": place.class,
                "path": place.path,
                "count": place.count,
                "length": place.length,
                "digest": place.digest,
                "documented_example": place.documented_example,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    fn rows(file: &str) -> Option<Vec<Value>> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../shared/corpora")
            .join(file);
        let text = std::fs::read_to_string(path).ok()?;
        Some(
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        )
    }

    fn found(result: &Value) -> Vec<(String, String, u64)> {
        result["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| {
                let text = |k: &str| f[k].as_str().unwrap().to_owned();
                (text("class"), text("path"), f["count"].as_u64().unwrap())
            })
            .collect()
    }

    /// Recall by class and stratum, false positives by stratum, on the shared cases.
    #[test]
    fn shared_cases() {
        let Some(rows) = rows("secrets.open.jsonl") else {
            return;
        };
        let salt = Salt::new(b"corpus");
        let mut table: BTreeMap<(String, String), (u32, u32, u32)> = BTreeMap::new();
        let mut false_alarms: BTreeMap<String, (u32, u32)> = BTreeMap::new();
        for case in &rows {
            let text = |k: &str| case[k].as_str().unwrap_or_default().to_owned();
            let (label, stratum) = (text("label"), text("stratum"));
            let found = found(&row(case, &salt));
            if label == "benign" {
                let entry = false_alarms.entry(stratum).or_default();
                entry.0 += 1;
                if !found.is_empty() {
                    entry.1 += 1;
                    println!("false alarm {} {} {found:?}", text("id"), text("fp_class"));
                }
                continue;
            }
            let hit = found
                .iter()
                .any(|(class, path, _)| *class == label && *path == text("path"));
            let mut others = found.iter().filter(|(class, _, _)| *class != label).count();
            for also in case["also"].as_array().into_iter().flatten() {
                for path in also["paths"].as_array().unwrap() {
                    let there = found.iter().any(|(c, p, _)| {
                        Some(c.as_str()) == also["label"].as_str() && Some(p.as_str()) == path.as_str()
                    });
                    assert!(there, "{also}");
                    others -= 1;
                }
            }
            let entry = table.entry((label, stratum)).or_default();
            entry.0 += 1;
            entry.1 += u32::from(hit);
            entry.2 += u32::from(others > 0);
            if !hit || others > 0 {
                println!("{} {} {} {found:?}", text("id"), text("label"), text("format"));
            }
        }
        for ((label, stratum), (all, hit, others)) in &table {
            println!("{label:20} {stratum:20} {hit:3}/{all:3}  other classes: {others}");
        }
        for (stratum, (all, wrong)) in &false_alarms {
            println!("benign {stratum:10} {wrong}/{all}");
        }
        for ((label, stratum), (all, hit, _)) in &table {
            let floor = match (label.as_str(), stratum.as_str()) {
                (_, "evasion") => 0.7,
                ("high_entropy_secret", _) => 0.85,
                ("named_secret", _) => 0.95,
                ("bearer_token" | "card_number" | "email" | "phone", _) => 0.97,
                _ => 0.99,
            };
            assert!(
                f64::from(*hit) >= floor * f64::from(*all),
                "{label} {stratum}: {hit} of {all}"
            );
        }
        assert!(false_alarms["core"].1 <= 1, "core: {:?}", false_alarms["core"]);
        assert!(false_alarms["hard"].1 <= 4, "hard: {:?}", false_alarms["hard"]);
    }

    #[test]
    fn reported_issues() {
        let Some(rows) = rows("issues.open.jsonl") else {
            return;
        };
        let salt = Salt::new(b"corpus");
        for case in rows.iter().filter(|r| r["kind"] == "args") {
            let found = found(&row(case, &salt));
            let classes: Vec<&str> = found.iter().map(|(class, _, _)| class.as_str()).collect();
            match case["label"].as_str().unwrap() {
                "benign" => assert!(classes.is_empty(), "{} {found:?}", case["id"]),
                label => assert_eq!(classes, [label], "{}", case["id"]),
            }
        }
    }

    #[test]
    fn documented_examples_are_low() {
        let case = json!({"id": "x", "value": {"note": "AKIAIOSFODNN7EXAMPLE"}});
        let result = row(&case, &Salt::new(b"s"));
        assert_eq!(result["findings"][0]["severity"], "LOW");
        assert_eq!(result["findings"][0]["documented_example"], true);
    }
}
