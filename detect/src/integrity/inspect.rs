//! First sightings and results: texts judged on their own.

use std::fmt::Display;

use super::definition::{Definition, Subject};
use super::scorer::{Score, score};
use super::sentence::Channel;
use crate::finding::{Evidence, Finding, Kind, Severity, SignalHit, cut};

/// Detector name for definitions seen for the first time.
pub const DESCRIPTION_INJECTION: &str = "integrity.description_injection";
/// Detector name for results.
pub const RESULT_INJECTION: &str = "integrity.result_injection";

const QUOTE: usize = 300;

/// Where scores turn into severities; policy may override both (`integrity.description_delta`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Reads as an instruction.
    pub high: f64,
    /// May be one.
    pub medium: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            high: 0.55,
            medium: 0.30,
        }
    }
}

/// A definition that has no baseline yet: a finding when its own text already reads as an instruction. Severity
/// as on a provisional baseline.
pub fn first_sighting(definition: &Definition, thresholds: Thresholds) -> Option<Finding> {
    let mut texts: Vec<_> = definition
        .about_texts()
        .into_iter()
        .map(|t| (t, definition.channel()))
        .collect();
    texts.extend(
        definition
            .schema_texts()
            .into_iter()
            .map(|t| (t, Channel::Parameter)),
    );
    let (value, signals) = score_places(&texts);
    let quote = signals.first().map(|s| s.quote.clone()).unwrap_or_default();
    let place = signals.first().map(|s| s.place.clone()).unwrap_or_default();
    let tool = (definition.subject != Subject::Instructions).then(|| definition.name.clone());
    let cause = format!(
        "{:?} {} {} {}",
        definition.subject, definition.name, definition.description_digest, definition.schema_digest
    );
    description_finding(value, signals, tool, place, quote, cause, thresholds)
}

/// One server-advertised text on its own.
pub fn text_finding(
    text: &str,
    channel: Channel,
    place: &str,
    thresholds: Thresholds,
) -> (Score, Option<Finding>) {
    let score = score(text, channel);
    let signals = place_hits(&score, text, place);
    let finding = if channel == Channel::Result {
        result_finding(&score, None, &place, thresholds)
    } else {
        let quote = signals.first().map(|s| s.quote.clone()).unwrap_or_default();
        let cause = format!("{place} {}", cut(&quote, 80));
        description_finding(
            score.value,
            signals,
            None,
            place.to_owned(),
            quote,
            cause,
            thresholds,
        )
    };
    (score, finding)
}

fn description_finding(
    value: f64,
    signals: Vec<SignalHit>,
    tool: Option<String>,
    place: String,
    quote: String,
    cause: String,
    thresholds: Thresholds,
) -> Option<Finding> {
    let severity = if value >= thresholds.high {
        Severity::High
    } else if value >= thresholds.medium {
        Severity::Medium
    } else {
        return None;
    };
    Some(Finding {
        code: "KAMS-INT-002",
        detector: DESCRIPTION_INJECTION,
        kind: Kind::IntegrityInjection,
        severity,
        confidence: value.max(0.6),
        tool,
        cause,
        evidence: Evidence::Text {
            score: value,
            signals,
            place,
            quote: Some(quote),
        },
    })
}

/// Scores one text of a result (text block, string of `structuredContent`, embedded resource, resource or
/// prompt read, task result) that stands at `path`; a finding at the high threshold only. The evidence names
/// signals and the path and never quotes.
pub fn result_text(
    text: &str,
    tool: Option<&str>,
    path: &dyn Display,
    thresholds: Thresholds,
) -> Option<Finding> {
    result_finding(&score(text, Channel::Result), tool, path, thresholds)
}

fn result_finding(
    score: &Score,
    tool: Option<&str>,
    path: &dyn Display,
    thresholds: Thresholds,
) -> Option<Finding> {
    (score.value >= thresholds.high).then(|| {
        // Written out here only: most texts are clean.
        let path = path.to_string();
        let signals: Vec<SignalHit> = score
            .hits
            .iter()
            .map(|hit| SignalHit {
                signal: hit.signal,
                contribution: hit.contribution,
                quote: String::new(),
                place: path.clone(),
            })
            .collect();
        let names: Vec<&str> = signals.iter().map(|s| s.signal).collect();
        Finding {
            code: "KAMS-INT-004",
            detector: RESULT_INJECTION,
            kind: Kind::IntegrityInjection,
            severity: Severity::High,
            confidence: score.value.max(0.6),
            tool: tool.map(str::to_owned),
            cause: format!("{} {}", tool.unwrap_or_default(), names.join(",")),
            evidence: Evidence::Text {
                score: score.value,
                signals,
                place: path,
                quote: None,
            },
        }
    })
}

/// The highest score over several texts, with its signals placed and quoted.
pub(super) fn score_places(texts: &[((String, String), Channel)]) -> (f64, Vec<SignalHit>) {
    let mut best = (0.0, Vec::new());
    for ((place, text), channel) in texts {
        let found = score(text, *channel);
        if found.value > best.0 {
            best = (found.value, place_hits(&found, text, place));
        }
    }
    best
}

/// Hits as evidence: each with its place and what it fired on.
pub(super) fn place_hits(score: &Score, text: &str, place: &str) -> Vec<SignalHit> {
    score
        .hits
        .iter()
        .map(|hit| SignalHit {
            signal: hit.signal,
            contribution: hit.contribution,
            quote: cut(text.get(hit.span.clone()).unwrap_or_default(), QUOTE).to_owned(),
            place: place.to_owned(),
        })
        .collect()
}
