//! Names that detectors report, to warn about a name in a rule that nothing can ever match.

/// Detector names of seeds 000, 001 and 003; waste rules are `waste.<rule>`.
pub(crate) const DETECTORS: &[&str] = &[
    "integrity.definition_drift",
    "integrity.description_injection",
    "integrity.tool_squatting",
    "integrity.result_injection",
    "egress.sensitive",
    "cost.context_spike",
    "behavioural.thrash",
    "behavioural.retry_storm",
    "behavioural.error_rate",
    "behavioural.latency_degradation",
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
