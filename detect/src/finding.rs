//! What a detector says it saw (SPEC section 1).
//!
//! A [`Finding`] is a plain struct: it has no wire form here (that is `kams-export`'s) and knows nothing of
//! users, processes or actions; the engine adds those.

use std::fmt;

/// How bad a finding is, in rising order.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// Worth a line in a report.
    Low,
    /// Worth a look this week.
    Medium,
    /// Worth a look today.
    High,
    /// Worth a page.
    Critical,
}

impl Severity {
    /// All severities, lowest first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// The contract name, upper case (`LOW` ... `CRITICAL`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "LOW",
            Self::Medium => "MEDIUM",
            Self::High => "HIGH",
            Self::Critical => "CRITICAL",
        }
    }

    /// The severity with this name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|s| s.name().eq_ignore_ascii_case(name))
    }

    /// One level lower, floored at LOW: what a provisional baseline does (seed 001).
    #[must_use]
    pub const fn lowered(self) -> Self {
        match self {
            Self::Low | Self::Medium => Self::Low,
            Self::High => Self::Medium,
            Self::Critical => Self::High,
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The family a finding belongs to; policy matches on it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// A definition changed against its baseline.
    IntegrityDrift,
    /// Server-supplied text or a tool name that attacks the model.
    IntegrityInjection,
    /// Sensitive data in what an agent sends to a server.
    EgressSensitive,
    /// One result that costs an unusual share of the context window.
    CostSpike,
    /// The interaction itself is unhealthy.
    Behaviour,
    /// Calls of one run that add up to abuse.
    RunChain,
    /// Tokens spent for nothing.
    Waste,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::IntegrityDrift,
        Self::IntegrityInjection,
        Self::EgressSensitive,
        Self::CostSpike,
        Self::Behaviour,
        Self::RunChain,
        Self::Waste,
    ];

    /// The contract name (SPEC section 1).
    pub const fn name(self) -> &'static str {
        match self {
            Self::IntegrityDrift => "INTEGRITY_DRIFT",
            Self::IntegrityInjection => "INTEGRITY_INJECTION",
            Self::EgressSensitive => "EGRESS_SENSITIVE",
            Self::CostSpike => "COST_SPIKE",
            Self::Behaviour => "BEHAVIOUR",
            Self::RunChain => "RUN_CHAIN",
            Self::Waste => "WASTE",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One thing that one detector saw.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Stable code, `KAMS-<AREA>-<NNN>`; never reused.
    pub code: &'static str,
    /// Detector name, such as `integrity.definition_drift`.
    pub detector: &'static str,
    /// Family.
    pub kind: Kind,
    /// Severity after baseline state and thresholds were taken into account.
    pub severity: Severity,
    /// 0.0 to 1.0.
    pub confidence: f64,
    /// The tool (or prompt, resource) concerned, as the server names it; none where the server is meant.
    pub tool: Option<String>,
    /// What makes two findings the same cause within one (user, server): hashed into the fingerprint. Never
    /// holds text of arguments or results.
    pub cause: String,
    /// What a person needs in order to judge it.
    pub evidence: Evidence,
}

/// A signal of the text scorer that fired.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalHit {
    /// Name in the weight table.
    pub signal: &'static str,
    /// weight x strength, 0.0 to 1.0: what goes into the noisy-OR.
    pub contribution: f64,
    /// The span that fired, at most 300 characters; empty where the text may not be quoted (results).
    pub quote: String,
    /// Where the span stands, such as `description` or `inputSchema.properties.path.description`.
    pub place: String,
}

/// One class of sensitive data at one place of the arguments. Never holds the value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitive {
    /// Class name of seed 000, such as `aws_key`.
    pub class: &'static str,
    /// JSON path of the outermost string, such as `$.items[2]`.
    pub path: String,
    /// How many matches of this class stand at this path.
    pub count: u32,
    /// Length of the first match, in bytes.
    pub length: usize,
    /// First 16 hex digits of HMAC-SHA-256 of the first match under the host's salt.
    pub digest: String,
    /// A key that vendors print in their documentation; reported as LOW.
    pub documented_example: bool,
}

/// Evidence by detector family. Which family may quote what is settled in SPEC section 1.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Evidence {
    /// A definition change.
    Drift {
        /// Change class, such as `DESCRIPTION_CHANGED`.
        change: &'static str,
        /// Whether the baseline was pinned.
        pinned: bool,
        /// Score of the added text; none where no text was added.
        score: Option<f64>,
        /// Signals behind the score.
        signals: Vec<SignalHit>,
        /// Up to 300 characters.
        description_before: Option<String>,
        /// Up to 300 characters.
        description_after: Option<String>,
        /// Schema paths that were added, removed or changed, at most 20.
        paths: Vec<String>,
    },
    /// Server text that reads as an instruction to the model.
    Text {
        /// Noisy-OR of the signals.
        score: f64,
        /// Signals behind the score.
        signals: Vec<SignalHit>,
        /// Where the text stands.
        place: String,
        /// Server-advertised text, up to 300 characters; none for results.
        quote: Option<String>,
    },
    /// A deceptive name.
    Name {
        /// What is wrong with it: `mixed_script`, `confusable`, `invisible`, `compatibility` or `shadowing`.
        reason: &'static str,
        /// The other name that it imitates, where there is one.
        imitates: Option<String>,
        /// All code points of the name, as `U+0430`.
        codepoints: Vec<String>,
    },
    /// Sensitive data in arguments.
    Egress(Vec<Sensitive>),
    /// An expensive result.
    Cost {
        /// Estimated tokens.
        tokens: u64,
        /// Bytes that enter the context.
        bytes: u64,
        /// False once reconciled against ground truth.
        estimated: bool,
    },
    /// A behaviour condition.
    Behaviour {
        /// How many calls make the condition true.
        count: u32,
        /// Over how many seconds.
        seconds: f64,
        /// Error ratio, or slowness as a multiple of the median; none where it does not apply.
        ratio: Option<f64>,
    },
    /// A run-level rule.
    Chain {
        /// Rule id.
        rule: String,
        /// Machine-readable reasons.
        reason_codes: Vec<String>,
        /// Evaluated fact paths with their values.
        facts: Vec<(String, String)>,
    },
    /// A waste rule.
    Waste {
        /// Rule name of seed 003.
        rule: &'static str,
        /// Numbers behind it.
        numbers: Vec<(&'static str, f64)>,
        /// What to do, one sentence.
        suggested_action: &'static str,
    },
}

/// Cuts `text` to at most `max` characters, on a character boundary.
pub fn cut(text: &str, max: usize) -> &str {
    match text.char_indices().nth(max) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowering_is_floored() {
        assert_eq!(Severity::Critical.lowered(), Severity::High);
        assert_eq!(Severity::Low.lowered(), Severity::Low);
    }

    #[test]
    fn cutting_keeps_characters_whole() {
        assert_eq!(cut("aé漢字", 3), "aé漢");
        assert_eq!(cut("ab", 300), "ab");
    }
}
