//! The fifteen rules by name, and what one of them says when it fires.

use std::fmt;

use crate::finding::{Evidence, Finding, Kind, Severity};

use super::advice::advice;

macro_rules! rules {
    ($($variant:ident $name:literal $code:literal $doc:literal;)*) => {
        /// A waste class of seed 003.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Rule {
            $(#[doc = $doc] $variant,)*
        }

        impl Rule {
            /// All rules, in the seed's order.
            pub const ALL: [Self; 15] = [$(Self::$variant,)*];

            /// The contract name, such as `tool_loop`: label of `kams_waste_total`, section of the configuration.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The finding's code; stable, never reused.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => concat!("KAMS-WST-", $code),)* }
            }

            /// The finding's detector name.
            pub const fn detector(self) -> &'static str {
                match self { $(Self::$variant => concat!("waste.", $name),)* }
            }
        }
    };
}

rules! {
    ToolLoop "tool_loop" "001" "One tool, called again and again with nearly the same arguments.";
    ContextBloat "context_bloat" "002" "Prompts that grow turn by turn.";
    EmbeddingWaste "embedding_waste" "003" "An input that is embedded more than once.";
    Zombie "zombie" "004" "Calls go on, the person hears nothing.";
    ModelMisroute "model_misroute" "005" "A small classification sent to a large model.";
    RetryStorm "retry_storm" "006" "The same request again and again without a pause.";
    ToolDefinitionBloat "tool_definition_bloat" "007" "Tool definitions that fill the context before any work.";
    RetrievalThrash "retrieval_thrash" "008" "The same retrieval asked in many wordings.";
    VisionReUpload "vision_re_upload" "009" "One image sent turn after turn.";
    VisionHighDetailMisroute "vision_high_detail_misroute" "010" "Image tiles paid for a question that needs none.";
    VisionCostConcentration "vision_cost_concentration" "011" "A prompt of images for an answer of a word.";
    AudioMultichannelDoubling "audio_multichannel_doubling" "012" "Every channel of a recording billed.";
    VoiceSwitchingLoop "voice_switching_loop" "013" "One text spoken in voice after voice.";
    RerankThrash "rerank_thrash" "014" "The same rerank request again.";
    RepairLoop "repair_loop" "015" "The person corrects, the answer hardly changes.";
}

impl Rule {
    /// The rule with this contract name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// What the waste is worth telling: HIGH where the money runs until somebody stops it, LOW where a setting of one
    /// call could be cheaper, MEDIUM otherwise.
    pub const fn severity(self) -> Severity {
        match self {
            Self::ToolLoop | Self::Zombie | Self::RetryStorm => Severity::High,
            Self::ModelMisroute
            | Self::VisionHighDetailMisroute
            | Self::VisionCostConcentration
            | Self::EmbeddingWaste
            | Self::RepairLoop => Severity::Low,
            _ => Severity::Medium,
        }
    }
}

impl<'de> serde::Deserialize<'de> for Rule {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::from_name(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("no waste rule is called {name:?}")))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A rule that fired on a call. Holds numbers and names only, never a text of arguments, prompts or answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Firing {
    /// Which rule.
    pub rule: Rule,
    /// 0.0 to 1.0.
    pub confidence: f64,
    /// Contract name of what to do; [`advice`] says it in a sentence.
    pub suggested_action: &'static str,
    /// The tool concerned, where one is.
    pub tool: Option<String>,
    /// What the rule fired about, such as a request's digest: the same subject is the same cause.
    pub subject: u64,
    /// Figures behind it, named as in seed 003 where the seed names them.
    pub numbers: Vec<(&'static str, f64)>,
}

impl Firing {
    /// The finding of this firing.
    pub fn into_finding(self) -> Finding {
        Finding {
            code: self.rule.code(),
            detector: self.rule.detector(),
            kind: Kind::Waste,
            severity: self.rule.severity(),
            confidence: self.confidence,
            cause: format!("{}:{:016x}", self.rule.name(), self.subject),
            tool: self.tool,
            evidence: Evidence::Waste {
                rule: self.rule.name(),
                numbers: self.numbers,
                suggested_action: advice(self.suggested_action),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_are_distinct_and_lead_back() {
        for (index, rule) in Rule::ALL.into_iter().enumerate() {
            assert_eq!(Rule::from_name(rule.name()), Some(rule));
            assert_eq!(rule.code(), format!("KAMS-WST-{:03}", index + 1));
            assert_eq!(rule.detector(), format!("waste.{rule}"));
        }
        assert_eq!(
            Rule::from_name("semantic_loop"),
            None,
            "a deferred pattern is no rule"
        );
    }
}
