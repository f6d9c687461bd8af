//! `thresholds`: numbers of detectors. Those of waste rules have a section of their own.

use crate::policy::Thresholds;
use crate::reader::{Reader, show};
use crate::tree::Node;

/// Detector, knob, smallest and largest value.
pub(crate) const KNOBS: &[(&str, &str, f64, f64)] = &[
    ("integrity.description_delta", "high", 0.0, 1.0),
    ("integrity.description_delta", "medium", 0.0, 1.0),
    ("integrity.result_injection", "high", 0.0, 1.0),
    ("cost.spike", "medium", 1.0, 1e9),
    ("cost.spike", "high", 1.0, 1e9),
    ("behavioural.thrash", "repeats", 2.0, 1e4),
    ("behavioural.thrash", "window_seconds", 1.0, 86_400.0),
    ("behavioural.retry_storm", "failures", 2.0, 1e4),
    ("behavioural.error_rate", "ratio", 0.0, 1.0),
    ("behavioural.error_rate", "min_calls", 1.0, 1e4),
    ("behavioural.error_rate", "window_seconds", 1.0, 86_400.0),
    ("behavioural.latency_degradation", "factor", 1.0, 1e4),
    ("behavioural.latency_degradation", "min_seconds", 0.0, 86_400.0),
    ("behavioural.latency_degradation", "min_samples", 1.0, 1e4),
];

/// How the waste rules' detectors are called.
const WASTE_PREFIX: &str = "waste.";

pub(crate) fn read(reader: &mut Reader<'_>, node: &Node) -> Thresholds {
    let mut out = Thresholds::new();
    let Some(detectors) = reader.any_fields(node, "thresholds") else {
        return out;
    };
    for (detector, node) in detectors.iter() {
        let what = format!("thresholds.{}", show(&detector.text));
        if let Some(rule) = detector.text.strip_prefix(WASTE_PREFIX) {
            let hint = format!("write it under `waste:`, as `{}: {{...}}`", show(rule));
            reader.error_hint(detector.place, "waste rules have a section of their own", hint);
            continue;
        }
        if !KNOBS.iter().any(|(d, ..)| *d == detector.text) {
            let mut names: Vec<&str> = KNOBS.iter().map(|(d, ..)| *d).collect();
            names.dedup();
            reader.unknown_word(detector.place, "thresholds", &detector.text, names.into_iter());
            continue;
        }
        let known: Vec<_> = KNOBS.iter().filter(|(d, ..)| *d == detector.text).collect();
        let names: Vec<&str> = known.iter().map(|(_, knob, ..)| *knob).collect();
        let Some(fields) = reader.fields(node, &what, &names) else {
            continue;
        };
        let mut knobs = std::collections::BTreeMap::new();
        for (key, node) in fields.iter() {
            let bounds = known
                .iter()
                .find(|(_, knob, ..)| *knob == key.text)
                .map(|(.., min, max)| (*min, *max));
            let what = format!("{what}.{}", show(&key.text));
            let number = bounds.and_then(|(min, max)| reader.number(node, &what, min, max));
            if let Some(number) = number {
                knobs.insert(key.text.clone(), number);
            }
        }
        if let (Some(high), Some(medium)) = (knobs.get("high"), knobs.get("medium"))
            && high < medium
        {
            reader.error(fields.key_place("high"), format!("{what}: high is below medium"));
        }
        out.insert(detector.text.clone(), knobs);
    }
    out
}
