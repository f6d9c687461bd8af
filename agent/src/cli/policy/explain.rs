//! `kams policy explain`: a finding's record back into what policy sees, and each rule's word on it.

use std::path::{Path, PathBuf};

use kams_detect::Severity;
use kams_detect::finding::Kind;
use kams_detect::redact::json_error;
use kams_export::text::visible;
use kams_export::view::{FindingRecord, Record, SCHEMA};
use kams_policy::{Baseline, Exception, Finding, Now, Policy, RuleVerdict, Subject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::text;
use crate::cli::client::Client;
use crate::cli::out::Ink;
use crate::cli::{CliError, Out};

/// The file that the word names, if it names one.
pub(super) fn file(word: &str) -> Option<PathBuf> {
    (word == "-" || Path::new(word).is_file()).then(|| PathBuf::from(word))
}

/// All findings of a file of records; other records are passed over.
pub(super) fn read(file: &Path) -> Result<Vec<FindingRecord>, CliError> {
    let whole = text::text(file)?;
    let failed = |why: String| CliError::Input {
        file: visible(&file.to_string_lossy()),
        why,
    };
    let mut found = Vec::new();
    for (number, line) in (1_u32..).zip(whole.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let value: Value =
            serde_json::from_str(line).map_err(|error| failed(format!("line {number}: {error}")))?;
        if value.get("detector").is_some() {
            let record = FindingRecord::deserialize(&value);
            found.push(record.map_err(|error| failed(format!("line {number}: {}", json_error(&error))))?);
        }
    }
    if found.is_empty() {
        return Err(failed("no finding in it".to_owned()));
    }
    Ok(found)
}

/// The newest finding of the daemon with this number or fingerprint.
pub(super) async fn ask(client: &Client, word: &str) -> Result<Vec<FindingRecord>, CliError> {
    let mut stream = client.lines("/v1/findings?limit=10000").await?;
    let mut found = None;
    let number: Option<u64> = word.parse().ok().filter(|number| *number > 0);
    while let Some(line) = stream.next().await? {
        if let Ok(Record::Finding(record)) = serde_json::from_slice(&line)
            && (number == Some(record.seq) || record.fingerprint == word)
        {
            found = Some(record);
        }
    }
    found.map(|record| vec![record]).ok_or_else(|| CliError::Input {
        file: visible(word),
        why: "no finding has this number or fingerprint, and no file has this name; see `kams findings -o json`"
            .to_owned(),
    })
}

fn seen(record: &FindingRecord) -> Option<Finding<'_>> {
    let word = |name: &str| record.evidence.get(name).and_then(Value::as_str);
    let mut classes: Vec<&str> = Vec::new();
    let places = record.evidence.get("sensitive").and_then(Value::as_array);
    for class in places
        .into_iter()
        .flatten()
        .filter_map(|place| place.get("class")?.as_str())
    {
        if !classes.contains(&class) {
            classes.push(class);
        }
    }
    Some(Finding {
        subject: Subject {
            user: &record.user,
            agent: &record.agent,
            server: &record.server,
            tool: record.tool.as_deref(),
            relayed: record.enforced,
        },
        detector: &record.detector,
        kind: Kind::from_name(&record.kind)?,
        severity: Severity::from_name(&record.severity)?,
        classes,
        change: word("change"),
        baseline: match word("baseline") {
            Some("pinned") => Some(Baseline::Pinned),
            Some("provisional") => Some(Baseline::Provisional),
            _ => None,
        },
        fingerprint: &record.fingerprint,
        gap: record.gap,
    })
}

/// Explains each.
pub(super) fn records(
    records: &[FindingRecord],
    policy: &Policy,
    exceptions: &[Exception],
    out: &mut Out,
) -> Result<(), CliError> {
    for record in records {
        let finding = seen(record).ok_or_else(|| CliError::Input {
            file: visible(&record.fingerprint),
            why: "a kind or severity that this version does not know".to_owned(),
        })?;
        one(record, &finding, policy, exceptions, out)?;
    }
    Ok(())
}

fn one(
    record: &FindingRecord,
    finding: &Finding<'_>,
    policy: &Policy,
    exceptions: &[Exception],
    out: &mut Out,
) -> Result<(), CliError> {
    let wall_ms = u64::try_from(record.time.unix_nanos() / 1_000_000).unwrap_or(0);
    let explained = policy.explain(finding, exceptions, Now::at(wall_ms));
    let decision = &explained.decision;
    let excepted = |rule: &str| {
        let hit = decision.hits.iter().find(|hit| hit.rule == rule)?;
        hit.excepted.as_deref()
    };
    let verdict = |rule: &str, verdict: &RuleVerdict| match verdict {
        RuleVerdict::Matched => excepted(rule).map_or_else(
            || "matched".to_owned(),
            |exception| format!("matched, set aside by exception {exception}"),
        ),
        RuleVerdict::NoMatch(key) => format!("`{key}` does not hold"),
        RuleVerdict::Exempt => "matched, but its `unless` holds".to_owned(),
        RuleVerdict::OtherEvent => "not for findings".to_owned(),
    };
    if out.is_json() {
        let rules = explained.rules.iter().map(|(name, action, line, word)| {
            json!({"rule": name, "action": action.name(), "line": line, "verdict": verdict(name, word),
                "matched": *word == RuleVerdict::Matched})
        });
        return Ok(out.json_line(&json!({
            "schema": SCHEMA,
            "fingerprint": record.fingerprint,
            "policy": policy.name(),
            "hash": policy.hash(),
            "mode": decision.mode.name(),
            "servers_line": explained.settings.line,
            "rules": rules.collect::<Vec<_>>(),
            "decision": decision.outcome.name(),
            "action": decision.action.map(kams_policy::Action::name),
            "rule": decision.rule,
            "would": decision.would.map(kams_policy::Action::name),
        }))?);
    }
    let tool = record.tool.as_deref().unwrap_or("-");
    let head = format!(
        "{} {} {}  {}  {}",
        record.severity, record.detector, record.fingerprint, record.server, tool
    );
    out.line(&out.ink(Ink::Strong, &visible(&head)))?;
    for (name, action, line, word) in &explained.rules {
        let ink = if *word == RuleVerdict::Matched {
            Ink::Odd
        } else {
            Ink::Faint
        };
        let text = format!(
            "  line {line}  {name}  {}  {}",
            action.name(),
            verdict(name, word)
        );
        out.line(&out.ink(ink, &visible(&text)))?;
    }
    let from = explained.settings.line.map_or_else(
        || "the policy's own".to_owned(),
        |line| format!("`servers` entry at line {line}"),
    );
    let mut last = format!(
        "  mode {} ({from}): {}, action {} by rule {}",
        decision.mode.name(),
        decision.outcome.name(),
        decision.action.map_or("none", kams_policy::Action::name),
        decision.rule.as_deref().unwrap_or("none"),
    );
    if let Some(would) = decision.would {
        last.extend(["; enforce would ", would.name()]);
    }
    Ok(out.line(&visible(&last))?)
}
