//! Names that detectors report, to warn about a name in a rule that nothing can ever match.

/// Detector names of seeds 000, 001 and 003; waste rules are `waste.<rule>`.
pub(crate) const DETECTORS: &[&str] = &[
    "integrity.definition_drift",
    "integrity.description_injection",
    "integrity.tool_squatting",
    "integrity.result_injection",
    "egress.sensitive",
    "cost.spike",
    "behavioural.thrash",
    "behavioural.retry_storm",
    "behavioural.error_rate",
    "behavioural.latency_degradation",
    "network.left_open",
    "network.refused",
    "relay.oversize",
    "relay.unjudged",
    "network.unfiltered",
    "run.chain",
];

/// Sensitive classes of seed 000.
pub(crate) const CLASSES: &[&str] = &[
    "private_key",
    "aws_key",
    "github_token",
    "slack_token",
    "anthropic_key",
    "openai_key",
    "jwt",
    "bearer_token",
    "card_number",
    "named_secret",
    "email",
    "phone",
    "high_entropy_secret",
];

/// Change classes of seed 001.
pub(crate) const CHANGES: &[&str] = &[
    "DESCRIPTION_CHANGED",
    "SCHEMA_WIDENED",
    "SCHEMA_CHANGED",
    "SCHEMA_NARROWED",
    "TOOL_ADDED",
    "TOOL_REMOVED",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The detectors' own source names each of them; a renamed detector must not leave policies warning falsely.
    #[test]
    fn detector_names_are_those_of_the_detectors() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../detect/src");
        let mut text = String::new();
        let mut open = vec![root];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(
                    std::fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                text += &std::fs::read_to_string(&path).unwrap();
            }
        }
        for name in DETECTORS.iter().filter(|name| **name != "run.chain") {
            assert!(text.contains(&format!("\"{name}\"")), "{name}");
        }
        for class in CLASSES {
            assert!(text.contains(&format!("\"{class}\"")), "{class}");
        }
        for change in CHANGES {
            assert!(text.contains(&format!("\"{change}\"")), "{change}");
        }
    }
}
