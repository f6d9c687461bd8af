//! The report behind `kams waste`: stored findings of the waste rules, added up by user, agent, server and rule.

use std::collections::BTreeMap;

use kams_export::view::{FindingRecord, SCHEMA, Time};
use serde_json::{Value, json};

use super::DaemonBackend;
use crate::admin::{BackendError, FindingQuery, Scope, Selection};

/// Findings that are added up, the newest ones.
const MOST: usize = 10_000;

/// What is added up.
#[derive(Debug, Default)]
struct Sum {
    times: u64,
    tokens: Option<u64>,
    counted: bool,
    estimated: bool,
    first: Time,
    last: Time,
    suggested_action: String,
}

impl DaemonBackend {
    pub(super) fn waste_report(
        &self,
        scope: Scope,
        parameters: &[(String, String)],
    ) -> Result<Value, BackendError> {
        let mut selection = Selection {
            detector: Some("waste.*".to_owned()),
            findings: true,
            ..Selection::default()
        };
        for (name, value) in parameters {
            match name.as_str() {
                "from" => {
                    let time = Time::parse(value).map_err(|error| invalid(format!("`from`: {error}")))?;
                    selection.from = Some(time);
                }
                _ => return Err(invalid("the only parameter is `from`".to_owned())),
            }
        }
        let query = FindingQuery {
            since: 0,
            limit: MOST,
            selection,
        };
        let findings = self.past_findings(scope, &query)?;
        Ok(json!({"schema": SCHEMA, "findings": findings.len(), "most": MOST, "rows": rows(&findings)}))
    }

    pub(super) fn receiver(&self) -> Value {
        let listen = self.ingest.as_ref().and_then(|ingest| ingest.listen);
        json!({"schema": SCHEMA, "listen": listen.map(|address| address.to_string())})
    }
}

fn invalid(message: String) -> BackendError {
    BackendError::Invalid {
        message,
        remedy: "say from=2026-11-30T00:00:00Z, or nothing".to_owned(),
    }
}

fn rows(findings: &[FindingRecord]) -> Vec<Value> {
    let mut sums: BTreeMap<(u32, &str, &str, &str, &str), Sum> = BTreeMap::new();
    for finding in findings {
        let rule = finding
            .detector
            .strip_prefix("waste.")
            .unwrap_or(&finding.detector);
        let key = (
            finding.uid,
            finding.user.as_str(),
            finding.agent.as_str(),
            finding.server.as_str(),
            rule,
        );
        sums.entry(key).or_default().add(finding);
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.tokens, sum.times)));
    let row = |((uid, user, agent, server, rule), sum): ((u32, &str, &str, &str, &str), Sum)| {
        json!({
            "uid": uid, "user": user, "agent": agent, "server": server, "rule": rule,
            "times": sum.times, "tokens": sum.tokens, "basis": sum.basis(),
            "first": sum.first, "last": sum.last, "suggested_action": sum.suggested_action,
        })
    };
    rows.into_iter().map(row).collect()
}

impl Sum {
    fn add(&mut self, finding: &FindingRecord) {
        let number = |name: &str| finding.evidence.pointer(&format!("/numbers/{name}"))?.as_f64();
        if self.times == 0 || finding.time < self.first {
            self.first = finding.time;
        }
        if self.times == 0 || finding.time >= self.last {
            self.last = finding.time;
            let action = finding.evidence.get("suggested_action").and_then(Value::as_str);
            action.unwrap_or_default().clone_into(&mut self.suggested_action);
        }
        self.times += 1;
        if let Some(tokens) = number("tokens_at_stake") {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "float casts saturate"
            )]
            let tokens = tokens as u64;
            *self.tokens.get_or_insert(0) += tokens;
            if number("tokens_estimated") == Some(0.0) {
                self.counted = true;
            } else {
                self.estimated = true;
            }
        }
    }

    /// Where the tokens come from.
    const fn basis(&self) -> &'static str {
        match (self.counted, self.estimated) {
            (true, false) => "ground truth",
            (false, true) => "estimate",
            (true, true) => "mixed",
            (false, false) => "not counted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(at: i64, user: &str, tokens: Option<(f64, f64)>, action: &str) -> FindingRecord {
        let numbers = tokens.map_or_else(
            || json!({}),
            |(tokens, estimated)| json!({"tokens_at_stake": tokens, "tokens_estimated": estimated}),
        );
        FindingRecord {
            time: Time::from_unix_nanos(at),
            user: user.to_owned(),
            agent: "codex".to_owned(),
            detector: "waste.tool_loop".to_owned(),
            evidence: json!({"numbers": numbers, "suggested_action": action}),
            ..FindingRecord::default()
        }
    }

    #[test]
    fn findings_are_added_up_by_whom_they_concern() {
        let rows = rows(&[
            finding(1, "ana", Some((100.0, 1.0)), "old"),
            finding(9, "ana", Some((50.0, 0.0)), "new"),
            finding(5, "bob", None, "x"),
        ]);
        assert_eq!(rows.len(), 2);
        let ana = &rows[0];
        assert_eq!(
            (
                &ana["user"],
                &ana["times"],
                &ana["tokens"],
                &ana["basis"],
                &ana["suggested_action"]
            ),
            (
                &json!("ana"),
                &json!(2),
                &json!(150),
                &json!("mixed"),
                &json!("new")
            )
        );
        assert_eq!(
            (&rows[1]["tokens"], &rows[1]["basis"]),
            (&Value::Null, &json!("not counted"))
        );
    }
}
