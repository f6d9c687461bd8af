//! `integrity.definition_drift`: a definition against its recorded baseline (seed 001).

use std::collections::{BTreeSet, HashMap};

use super::added::{added, excerpt};
use super::definition::{Definition, Subject};
use super::inspect::{Joined, Thresholds, place_hits, score_places};
use super::schema::Surface;
use super::scorer::Score;
use super::sentence::Channel;
use super::signals::Signal;
use crate::finding::{Evidence, Finding, Kind, Severity, SignalHit};

/// Detector name.
pub const DRIFT: &str = "integrity.definition_drift";
/// Code of drift findings.
pub const DRIFT_CODE: &str = "KAMS-INT-001";

const QUOTE: usize = 300;
const MOST_PATHS: usize = 20;

/// How a definition changed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Change {
    /// Title, description or annotations.
    DescriptionChanged,
    /// New properties, or names no longer required.
    SchemaWidened,
    /// Both widened and narrowed, or neither with another digest.
    SchemaChanged,
    /// Properties removed, or names newly required.
    SchemaNarrowed,
    /// Not in the baseline.
    ToolAdded,
    /// Only in the baseline.
    ToolRemoved,
}

impl Change {
    /// The contract name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DescriptionChanged => "DESCRIPTION_CHANGED",
            Self::SchemaWidened => "SCHEMA_WIDENED",
            Self::SchemaChanged => "SCHEMA_CHANGED",
            Self::SchemaNarrowed => "SCHEMA_NARROWED",
            Self::ToolAdded => "TOOL_ADDED",
            Self::ToolRemoved => "TOOL_REMOVED",
        }
    }

    /// Severity of the class itself, before baseline state and score.
    pub const fn base(self) -> Severity {
        match self {
            Self::DescriptionChanged => Severity::High,
            Self::SchemaWidened | Self::SchemaChanged | Self::ToolAdded => Severity::Medium,
            Self::SchemaNarrowed | Self::ToolRemoved => Severity::Low,
        }
    }

    /// Severity with baseline state and score of the added text (seed 001, table "Resulting severity").
    pub fn severity(self, pinned: bool, score: f64, thresholds: Thresholds) -> Severity {
        match (score >= thresholds.high, score >= thresholds.medium, pinned) {
            (true, _, true) => Severity::Critical,
            (true, _, false) | (false, true, true) => Severity::High,
            (false, true, false) => Severity::Medium,
            (false, false, true) => self.base(),
            (false, false, false) => self.base().lowered(),
        }
    }
}

/// Changes of one definition; none of the two given: nothing. A definition can give a description and a schema
/// change. The score of each is over the text that the change adds.
pub fn diff(
    before: Option<&Definition>,
    after: Option<&Definition>,
    pinned: bool,
    thresholds: Thresholds,
) -> Vec<Finding> {
    match (before, after) {
        (Some(before), Some(after)) => changed(before, after, pinned, thresholds),
        (None, Some(after)) => {
            let mut texts: Vec<_> = after
                .about_texts()
                .into_iter()
                .map(|t| (t, after.channel()))
                .collect();
            texts.extend(after.schema_texts().into_iter().map(|t| (t, Channel::Parameter)));
            let (score, signals) = score_places(&texts);
            let report = Report {
                change: Change::ToolAdded,
                pinned,
                thresholds,
                score: Some(score),
                signals,
            };
            vec![report.finding(after, None, shown(after.description(), 0), Vec::new())]
        }
        (Some(before), None) => {
            let report = Report {
                change: Change::ToolRemoved,
                pinned,
                thresholds,
                score: None,
                signals: Vec::new(),
            };
            vec![report.finding(before, shown(before.description(), 0), None, Vec::new())]
        }
        (None, None) => Vec::new(),
    }
}

/// A stored baseline beside its state.
#[derive(Clone, Copy, Debug)]
pub struct Baseline<'a> {
    /// What was recorded.
    pub definition: &'a Definition,
    /// Pinned by a person, rather than provisional.
    pub pinned: bool,
}

/// Compares a listing with what was recorded for the same server. Definitions are compared one by one; what is
/// missing from the listing is reported only when `full`: the listing is complete (all pages read) and the
/// baselines were recorded under the same client capabilities and revision.
pub fn compare(
    baselines: &[Baseline<'_>],
    listed: &[Definition],
    full: bool,
    thresholds: Thresholds,
) -> Vec<Finding> {
    let mut known: HashMap<(Subject, &str), Baseline<'_>> = baselines
        .iter()
        .map(|b| ((b.definition.subject, b.definition.name.as_str()), *b))
        .collect();
    let all_pinned = !baselines.is_empty() && baselines.iter().all(|b| b.pinned);
    let mut findings = Vec::new();
    for definition in listed {
        match known.remove(&(definition.subject, definition.name.as_str())) {
            Some(b) => findings.extend(diff(Some(b.definition), Some(definition), b.pinned, thresholds)),
            None => findings.extend(diff(None, Some(definition), all_pinned, thresholds)),
        }
    }
    if full {
        let mut gone: Vec<_> = known.into_values().collect();
        gone.sort_by(|a, b| a.definition.name.cmp(&b.definition.name));
        findings.extend(
            gone.into_iter()
                .flat_map(|b| diff(Some(b.definition), None, b.pinned, thresholds)),
        );
    }
    findings
}

fn changed(before: &Definition, after: &Definition, pinned: bool, thresholds: Thresholds) -> Vec<Finding> {
    let mut findings = Vec::new();
    if before.description_digest != after.description_digest {
        let change = TextChange::of(&before.about_texts(), &after.about_texts(), after.channel());
        let report = Report {
            change: Change::DescriptionChanged,
            pinned,
            thresholds,
            score: change.score(),
            signals: change.signals(),
        };
        let (old, new) = change.shown.unwrap_or_else(|| {
            let from = first_difference(before.description(), after.description());
            (
                shown(before.description(), from),
                shown(after.description(), from),
            )
        });
        findings.push(report.finding(after, old, new, change.paths));
    }
    if before.schema_digest != after.schema_digest {
        let change = TextChange::of(&before.schema_texts(), &after.schema_texts(), Channel::Parameter);
        let (class, mut paths) = schema_class(&before.surface(), &after.surface());
        paths.extend(change.paths.iter().cloned());
        paths.dedup();
        paths.truncate(MOST_PATHS);
        let report = Report {
            change: class,
            pinned,
            thresholds,
            score: change.score(),
            signals: change.signals(),
        };
        let (old, new) = change.shown.unwrap_or_default();
        findings.push(report.finding(after, old, new, paths));
    }
    findings
}

/// Which class a moved schema digest has, with the paths that say so. An object that is itself new or gone
/// counts once, at its own place: what stands inside it is not compared.
fn schema_class(before: &Surface, after: &Surface) -> (Change, Vec<String>) {
    type Facts = BTreeSet<(String, String)>;
    let only = |here: &Facts, there: &Facts, places: &BTreeSet<String>| -> Vec<String> {
        here.difference(there)
            .filter(|f| places.contains(&f.0))
            .map(|f| format!("{}.{}", f.0, f.1))
            .collect()
    };
    let gone = only(&before.properties, &after.properties, &after.places);
    let new = only(&after.properties, &before.properties, &before.places);
    let freed = only(&before.required, &after.required, &after.places);
    let bound = only(&after.required, &before.required, &before.places);
    let widened = !new.is_empty() || !freed.is_empty();
    let narrowed = !gone.is_empty() || !bound.is_empty();
    let class = match (widened, narrowed) {
        (true, false) => Change::SchemaWidened,
        (false, true) => Change::SchemaNarrowed,
        _ => Change::SchemaChanged,
    };
    let marked = [
        ("+", new),
        ("-", gone),
        ("optional ", freed),
        ("required ", bound),
    ];
    let paths = marked
        .into_iter()
        .flat_map(|(mark, paths)| paths.into_iter().map(move |p| format!("{mark}{p}")))
        .collect();
    (class, paths)
}

/// Added text over several places.
struct TextChange {
    score: Option<Score>,
    hits: Vec<SignalHit>,
    /// Before and after around what scored highest, or around the first change.
    shown: Option<(Option<String>, Option<String>)>,
    paths: Vec<String>,
}

impl TextChange {
    fn of(before: &[(String, String)], after: &[(String, String)], channel: Channel) -> Self {
        let old: HashMap<&str, &str> = before.iter().map(|t| (t.0.as_str(), t.1.as_str())).collect();
        let mut change = Self {
            score: None,
            hits: Vec::new(),
            shown: None,
            paths: Vec::new(),
        };
        let mut best = -1.0;
        let mut pieces: Vec<(&str, String)> = Vec::new();
        for (place, text) in after {
            let was = old.get(place.as_str()).copied().unwrap_or_default();
            if was == text {
                continue;
            }
            if change.paths.len() < MOST_PATHS {
                change.paths.push(place.clone());
            }
            let new = added(was, text);
            let Some(first) = new.spans.first() else { continue };
            let piece = new.text(text);
            let mut score = super::scorer::score(&piece, channel);
            pieces.push((place, piece));
            if !score.hits.is_empty() {
                rewrite(&mut score, new.share, was.is_empty());
            }
            if score.value > best {
                best = score.value;
                // The excerpt shows the stretch that scored: the longest new one, or the first.
                let focus = new
                    .spans
                    .iter()
                    .max_by_key(|s| s.len())
                    .map_or(first.start, |s| s.start);
                let from = first_difference(was, text);
                change.shown = Some((shown(was, from), shown(text, focus)));
                change.hits = place_hits(&score, &new.text(text), place);
                change.score = Some(score);
            }
        }
        let pieces: Vec<(&str, &str)> = pieces.iter().map(|p| (p.0, p.1.as_str())).collect();
        if let Some((score, hits)) = Joined::of(&pieces).score(channel)
            && score.value > best
        {
            change.hits = hits;
            change.score = Some(score);
        }
        for (place, _) in before {
            if change.paths.len() < MOST_PATHS && !after.iter().any(|t| t.0 == *place) {
                change.paths.push(place.clone());
            }
        }
        change
    }

    fn score(&self) -> Option<f64> {
        self.score.as_ref().map(|s| s.value)
    }

    fn signals(&self) -> Vec<SignalHit> {
        self.hits.clone()
    }
}

/// The size of a rewrite supports other signals; alone it says nothing.
fn rewrite(score: &mut Score, share: f64, new_place: bool) {
    if new_place || share <= 0.0 {
        return;
    }
    let contribution = Signal::Rewrite.weight() * share.min(1.0);
    score.value = 1.0 - (1.0 - score.value) * (1.0 - contribution);
    score.hits.push(super::scorer::Hit {
        signal: Signal::Rewrite.name(),
        contribution,
        span: 0..0,
    });
}

struct Report {
    change: Change,
    pinned: bool,
    thresholds: Thresholds,
    score: Option<f64>,
    signals: Vec<SignalHit>,
}

impl Report {
    fn finding(
        self,
        about: &Definition,
        before: Option<String>,
        after: Option<String>,
        paths: Vec<String>,
    ) -> Finding {
        let score = self.score.unwrap_or(0.0);
        let contributed = score >= self.thresholds.medium;
        Finding {
            code: DRIFT_CODE,
            detector: DRIFT,
            kind: Kind::IntegrityDrift,
            severity: self.change.severity(self.pinned, score, self.thresholds),
            confidence: if contributed { score.max(0.6) } else { 0.99 },
            tool: (about.subject != Subject::Instructions).then(|| about.name.clone()),
            cause: format!(
                "{} {:?} {} {} {}",
                self.change.name(),
                about.subject,
                about.name,
                about.description_digest,
                about.schema_digest
            ),
            evidence: Evidence::Drift {
                change: self.change.name(),
                pinned: self.pinned,
                score: self.score,
                signals: self.signals,
                description_before: before,
                description_after: after,
                paths,
            },
        }
    }
}

fn shown(text: &str, focus: usize) -> Option<String> {
    (!text.is_empty()).then(|| excerpt(text, focus, QUOTE))
}

fn first_difference(a: &str, b: &str) -> usize {
    a.char_indices()
        .zip(b.chars())
        .find(|((_, x), y)| x != y)
        .map_or(a.len().min(b.len()), |((i, _), _)| i)
}

#[cfg(test)]
mod tests;
