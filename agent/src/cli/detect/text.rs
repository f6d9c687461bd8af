//! One text, judged for a person: its score and what made it.

use kams_detect::Severity;
use kams_detect::corpus::{self, Options};
use kams_detect::egress;
use kams_detect::finding::{Evidence, Finding, cut};
use kams_detect::integrity::{self, Channel, Score};
use serde_json::{Value, json};

use super::{What, ended};
use crate::cli::out::Ink;
use crate::cli::table::{Cell, Column, Table};
use crate::cli::{CliError, Ended, Out};

/// Longest quote in characters.
const QUOTE: usize = 300;

pub(super) fn run(
    text: &str,
    what: What,
    fail_on: Option<Severity>,
    options: &Options,
    out: &mut Out,
) -> Result<Ended, CliError> {
    let channel = match what {
        What::Description => Channel::Description,
        What::Parameter => Channel::Parameter,
        What::Instructions => Channel::Instructions,
        What::Result => Channel::Result,
        What::Name => {
            // A file ends with a newline, a name does not.
            let found = integrity::deceptive_name(text.trim_end_matches(['\n', '\r']));
            return name(found.as_ref(), fail_on, out);
        }
        What::Arguments => return arguments(text, fail_on, options, out),
    };
    let (score, found) = integrity::text_finding(text, channel, "text", options.thresholds);
    let severity = found.as_ref().map(|finding| finding.severity);
    if out.is_json() {
        let signals: Vec<Value> = score
            .hits
            .iter()
            .map(|hit| {
                json!({
                    "signal": hit.signal,
                    "contribution": hit.contribution,
                    "start": hit.span.start,
                    "end": hit.span.end,
                    "quote": quote(text, hit),
                })
            })
            .collect();
        out.json(&json!({
            "score": score.value,
            "severity": severity.map(Severity::name),
            "detector": found.as_ref().map(|finding| finding.detector),
            "signals": signals,
        }))?;
    } else {
        table(text, &score, severity, out)?;
    }
    Ok(ended(severity, fail_on))
}

fn table(text: &str, score: &Score, severity: Option<Severity>, out: &mut Out) -> std::io::Result<()> {
    let verdict = match severity {
        Some(severity) => out.ink(Ink::Bad, severity.name()),
        None => out.ink(Ink::Good, "below every threshold"),
    };
    out.line(&format!("score {:.3}  {verdict}", score.value))?;
    if score.hits.is_empty() {
        return Ok(());
    }
    let columns = vec![
        Column::left("SIGNAL", 40),
        Column::right("ADDS"),
        Column::left("FIRED ON", QUOTE),
    ];
    let rows: Vec<Vec<Cell>> = score
        .hits
        .iter()
        .map(|hit| {
            vec![
                Cell::new(hit.signal),
                Cell::new(format!("{:.2}", hit.contribution)),
                Cell::new(quote(text, hit)).ink(Ink::Odd),
            ]
        })
        .collect();
    for line in Table::new(columns).all(&rows, out) {
        out.line(&line)?;
    }
    Ok(())
}

fn quote<'t>(text: &'t str, hit: &integrity::Hit) -> &'t str {
    cut(text.get(hit.span.clone()).unwrap_or_default(), QUOTE)
}

fn name(found: Option<&Finding>, fail_on: Option<Severity>, out: &mut Out) -> Result<Ended, CliError> {
    let evidence = found.and_then(|finding| match &finding.evidence {
        Evidence::Name {
            reason,
            imitates,
            codepoints,
        } => Some((*reason, imitates.as_deref(), codepoints.join(" "))),
        _ => None,
    });
    let severity = found.map(|finding| finding.severity);
    if out.is_json() {
        let (reason, imitates, codepoints) = match &evidence {
            Some((reason, imitates, codepoints)) => (Some(*reason), *imitates, Some(codepoints)),
            None => (None, None, None),
        };
        out.json(&json!({
            "severity": severity.map(Severity::name),
            "detector": found.map(|finding| finding.detector),
            "reason": reason,
            "imitates": imitates,
            "codepoints": codepoints,
        }))?;
    } else if let (Some(severity), Some((reason, imitates, codepoints))) = (severity, evidence) {
        let like = imitates.map_or_else(String::new, |name| {
            format!(", reads as {}", kams_export::text::visible(name))
        });
        let head = out.ink(Ink::Bad, severity.name());
        out.line(&format!("{head}  deceptive name: {reason}{like}"))?;
        out.line(&codepoints)?;
    } else {
        let quiet = out.ink(Ink::Good, "nothing odd about this name");
        out.line(&quiet)?;
    }
    Ok(ended(severity, fail_on))
}

fn arguments(
    text: &str,
    fail_on: Option<Severity>,
    options: &Options,
    out: &mut Out,
) -> Result<Ended, CliError> {
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    // What is no JSON is judged as one string.
    let arguments = if is_json {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    };
    let found = egress::scan_arguments(arguments.as_bytes(), None, &options.salt);
    let entries: Vec<Value> = found.iter().flat_map(corpus::egress::entries).collect();
    let worst = entries
        .iter()
        .filter_map(|entry| Severity::from_name(entry["severity"].as_str()?))
        .max();
    if out.is_json() {
        out.json(&json!({ "findings": entries }))?;
    } else if entries.is_empty() {
        let quiet = out.ink(Ink::Good, "nothing sensitive found");
        out.line(&quiet)?;
    } else {
        let columns = vec![
            Column::left("SEVERITY", 8),
            Column::left("CLASS", 24),
            Column::left("PATH", 60),
            Column::right("COUNT"),
            Column::right("LENGTH"),
        ];
        let rows: Vec<Vec<Cell>> = entries
            .iter()
            .map(|entry| {
                let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
                vec![
                    Cell::new(text("severity")).ink(Ink::Bad),
                    Cell::new(text("class")),
                    Cell::new(text("path")),
                    Cell::new(entry["count"].to_string()),
                    Cell::new(entry["length"].to_string()),
                ]
            })
            .collect();
        for line in Table::new(columns).all(&rows, out) {
            out.line(&line)?;
        }
    }
    Ok(ended(worst, fail_on))
}
