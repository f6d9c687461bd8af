//! SARIF 2.1.0, for `kams scan` and the code-scanning views that read it.

use serde_json::{Value, json};

use crate::view::FindingRecord;

/// Where a finding is to be shown: the line that declares the server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// Path of the configuration file, relative to the scanned root where it lies below it.
    pub file: String,
    /// Line, from 1; none where it is not known.
    pub line: Option<u32>,
}

/// One run of `kams scan` as a SARIF log. Each rule is listed once; results keep their order.
pub fn report(version: &str, findings: &[(FindingRecord, Option<Place>)]) -> Value {
    let mut rules: Vec<Value> = Vec::new();
    let mut results = Vec::with_capacity(findings.len());
    for (finding, place) in findings {
        let known = rules.iter().position(|r| r["id"] == finding.code.as_str());
        let index = known.unwrap_or_else(|| {
            rules.push(rule(finding));
            rules.len() - 1
        });
        results.push(result(finding, place.as_ref(), index));
    }
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "kams", "semanticVersion": version, "rules": rules}},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(finding: &FindingRecord) -> Value {
    json!({
        "id": finding.code,
        "name": finding.detector,
        "shortDescription": {"text": format!("{} ({})", finding.detector, finding.kind)},
        "properties": {"tags": ["security", "mcp"]},
    })
}

fn result(finding: &FindingRecord, place: Option<&Place>, rule_index: usize) -> Value {
    let mut result = json!({
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": level(&finding.severity),
        "message": {"text": message(finding)},
        "partialFingerprints": {"kams/v1": finding.fingerprint},
        "properties": {
            "severity": finding.severity,
            "confidence": finding.confidence,
            "server": finding.server,
            "tool": finding.tool,
            "evidence": finding.evidence,
        },
    });
    if let Some(place) = place {
        let mut physical = json!({"artifactLocation": {"uri": uri(&place.file)}});
        if let Some(line) = place.line {
            physical["region"] = json!({"startLine": line.max(1)});
        }
        result["locations"] = json!([{"physicalLocation": physical}]);
    }
    result
}

fn message(finding: &FindingRecord) -> String {
    match &finding.tool {
        Some(tool) => format!(
            "{} on tool `{tool}` of server `{}`",
            finding.detector, finding.server
        ),
        None => format!("{} on server `{}`", finding.detector, finding.server),
    }
}

/// SARIF knows three levels; a severity that this version does not know is shown rather than hidden.
fn level(severity: &str) -> &'static str {
    match severity {
        "HIGH" | "CRITICAL" => "error",
        "LOW" | "MEDIUM" => "warning",
        _ => "note",
    }
}

/// A path as a URI reference: everything but unreserved characters and slashes is percent-encoded.
fn uri(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.extend([byte >> 4, byte & 15].map(|n| char::from(HEX[usize::from(n)])));
        }
    }
    out
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(code: &str, severity: &str, tool: Option<&str>) -> FindingRecord {
        FindingRecord {
            code: code.into(),
            detector: "integrity.description_injection".into(),
            kind: "INTEGRITY_INJECTION".into(),
            severity: severity.into(),
            confidence: 0.7,
            server: "npm:demo".into(),
            tool: tool.map(Into::into),
            fingerprint: "00ff".into(),
            ..FindingRecord::default()
        }
    }

    #[test]
    fn each_rule_stands_once_and_results_point_at_it() {
        let place = Place {
            file: "home/a b/.mcp.json".into(),
            line: Some(7),
        };
        let log = report(
            "0.1.0",
            &[
                (finding("KAMS-INT-002", "HIGH", Some("add")), Some(place)),
                (finding("KAMS-INT-003", "LOW", None), None),
                (finding("KAMS-INT-002", "MEDIUM", Some("sub")), None),
            ],
        );
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["rules"].as_array().unwrap().len(), 2);
        let results = run["results"].as_array().unwrap();
        let index: Vec<_> = results.iter().map(|r| r["ruleIndex"].as_u64().unwrap()).collect();
        assert_eq!(index, [0, 1, 0]);
        let levels: Vec<_> = results.iter().map(|r| r["level"].as_str().unwrap()).collect();
        assert_eq!(levels, ["error", "warning", "warning"]);
        assert_eq!(
            results[0]["locations"][0]["physicalLocation"],
            json!({"artifactLocation": {"uri": "home/a%20b/.mcp.json"}, "region": {"startLine": 7}})
        );
        assert_eq!(results[0]["partialFingerprints"]["kams/v1"], "00ff");
        assert!(results[1].get("locations").is_none());
    }

    #[test]
    fn no_finding_is_a_valid_empty_run() {
        let log = report("0.1.0", &[]);
        assert_eq!(log["version"], "2.1.0");
        assert_eq!(log["runs"][0]["results"], json!([]));
    }
}
