//! The knobs of the rules, with the defaults of seed 003 (as token-sentinel 1.0.3 has them where the text differs).
//!
//! One table says it all: the structs, their defaults, and the bounds within which a policy file may set them. The
//! corpus rows may set anything of the right type.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::rule::Rule;
use super::similarity::Metric;

/// A knob of a rule, as a policy file may set it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knob {
    /// Name of the rule.
    pub rule: &'static str,
    /// Name of the knob.
    pub name: &'static str,
    /// Smallest and largest value of a number; none for flags, words and lists.
    pub range: Option<(f64, f64)>,
}

macro_rules! rules {
    ($($(#[doc = $about:literal])+ $rule:ident: $Knobs:ident {
        $($(#[doc = $doc:literal])+ $knob:ident: $type:ty = $default:expr, $(in $low:literal..=$high:literal,)?)*
    })+) => {
        /// What is looked for, and how strictly.
        #[derive(Clone, Debug, Deserialize, PartialEq)]
        #[serde(default, deny_unknown_fields)]
        pub struct Config {
            /// Firings below this confidence are dropped; 0.0 to 1.0.
            pub min_confidence: f64,
            /// Rules that are off.
            pub disabled: Vec<Rule>,
            /// A reported cause stays quiet for this long.
            pub repeat_seconds: f64,
            $($(#[doc = $about])+ pub $rule: $Knobs,)+
        }

        impl Default for Config {
            fn default() -> Self {
                Self {
                    min_confidence: 0.5,
                    disabled: Vec::new(),
                    repeat_seconds: 300.0,
                    $($rule: $Knobs::default(),)+
                }
            }
        }

        $($(#[doc = $about])+
        #[derive(Clone, Debug, Deserialize, PartialEq)]
        #[serde(default, deny_unknown_fields)]
        pub struct $Knobs { $($(#[doc = $doc])+ pub $knob: $type,)* }

        impl Default for $Knobs {
            fn default() -> Self {
                Self { $($knob: $default,)* }
            }
        })+

        /// Every knob of every rule.
        pub const KNOBS: &[Knob] = &[$($(Knob {
            rule: stringify!($rule),
            name: stringify!($knob),
            range: { let range: &[(f64, f64)] = &[$(($low, $high))?]; range.first().copied() },
        },)*)+];
    };
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

rules! {
    /// One tool, nearly the same arguments.
    tool_loop: ToolLoop {
        /// Calls of one tool that make a loop.
        min_calls: usize = 3, in 2.0..=200.0,
        /// Over how long, in seconds.
        window_seconds: f64 = 60.0, in 1.0..=3_600.0,
        /// Mean similarity from which it is one, 0.0 to 1.0; none: 0.70 for n-grams, 0.85 for Jaccard.
        cosine_threshold: Option<f64> = None, in 0.0..=1.0,
        /// How arguments are compared.
        similarity_metric: Metric = Metric::TfidfCharngram,
        /// Characters of an n-gram; clamped to 3 to 5.
        charngram_size: usize = 4, in 3.0..=5.0,
        /// Tools that are meant to be called again, in any case.
        polling_tools: Vec<String> = words(["poll", "check_status", "get_status", "poll_status", "wait_for", "wait_until"]),
        /// Accepted, without effect: a finding never quotes arguments (SPEC section 1).
        include_raw_args: bool = false,
        /// Bytes of one call's arguments that are compared.
        max_arg_bytes: usize = 65_536, in 256.0..=1_048_576.0,
        /// Bytes of one tool's arguments that are compared, oldest calls first.
        max_total_corpus_bytes: usize = 1_048_576, in 4_096.0..=16_777_216.0,
    }
    /// Prompts that grow.
    context_bloat: ContextBloat {
        /// Last turns that are looked at; 0: all.
        lookback_turns: usize = 10, in 0.0..=200.0,
        /// Tokens per turn from which it is bloat.
        slope_threshold: f64 = 1_500.0, in 1.0..=1_000_000.0,
        /// Shorter sessions are left alone.
        min_turns: usize = 5, in 2.0..=200.0,
    }
    /// Inputs embedded again: digests are compared, there is no knob.
    embedding_waste: EmbeddingWaste {}
    /// Calls without a word to the person.
    zombie: Zombie {
        /// Silence in minutes, and the window of the calls counted.
        threshold_minutes: f64 = 5.0, in 0.1..=1_440.0,
        /// Calls in the window.
        min_recent_calls: usize = 5, in 2.0..=200.0,
        /// Sessions that are meant to run for long.
        long_running_sessions: Vec<String> = Vec::new(),
    }
    /// Small questions to large models.
    model_misroute: ModelMisroute {
        /// Longer prompts are no small question.
        max_prompt_tokens: u64 = 500, in 1.0..=1_000_000.0,
        /// Longer answers are no label.
        max_completion_tokens: u64 = 50, in 1.0..=1_000_000.0,
        /// Routes (the call's `route`) that need the large model.
        allowed_routes: Vec<String> = Vec::new(),
    }
    /// Retries without a pause.
    retry_storm: RetryStorm {
        /// Equal requests that make a storm.
        min_retries: usize = 5, in 2.0..=200.0,
        /// Over how long, in seconds.
        window_seconds: f64 = 30.0, in 1.0..=3_600.0,
    }
    /// Too many, or too long, tool definitions.
    tool_definition_bloat: ToolDefinitionBloat {
        /// Tools from which it is bloat.
        tool_count_threshold: usize = 30, in 1.0..=100_000.0,
        /// Bytes of definitions from which it is bloat.
        tool_definition_bytes_threshold: usize = 30_000, in 1.0..=100_000_000.0,
        /// Accepted, without effect: definitions are measured, none is copied.
        max_tool_bytes: usize = 262_144, in 1.0..=100_000_000.0,
        /// Blocks above this get the confidence 0.5.
        max_total_bytes: usize = 5_242_880, in 1.0..=1_000_000_000.0,
        /// Accepted, without effect: no tool names are quoted.
        redact_names: bool = false,
    }
    /// One question to a retriever in many wordings.
    retrieval_thrash: RetrievalThrash {
        /// Calls of one tool that make it.
        min_calls: usize = 3, in 2.0..=200.0,
        /// Over how long, in seconds.
        window_seconds: f64 = 120.0, in 1.0..=3_600.0,
        /// Mean similarity from which it is one, 0.0 to 1.0, whatever the metric.
        cosine_threshold: f64 = 0.65, in 0.0..=1.0,
        /// How queries are compared.
        similarity_metric: Metric = Metric::TfidfCharngram,
        /// Characters of an n-gram; clamped to 3 to 5.
        charngram_size: usize = 4, in 3.0..=5.0,
        /// What a retriever's name looks like: a part of it, or a pattern where it holds `*`; in any case.
        retrieval_tool_patterns: Vec<String> = words([
            "search", "retrieve", "query", "lookup", "find_documents", "vector_search", "similarity_search",
            "rag_*", "*_search", "*_query", "*_retrieve",
        ]),
        /// Accepted, without effect: a finding never quotes arguments (SPEC section 1).
        include_raw_args: bool = false,
        /// Bytes of one call's arguments that are compared.
        max_arg_bytes: usize = 65_536, in 256.0..=1_048_576.0,
        /// Bytes of one tool's arguments that are compared, oldest calls first.
        max_total_corpus_bytes: usize = 1_048_576, in 4_096.0..=16_777_216.0,
    }
    /// One image in call after call.
    vision_re_upload: VisionReUpload {
        /// Calls in a row.
        min_calls: usize = 3, in 2.0..=200.0,
        /// Over how long, in seconds.
        window_seconds: f64 = 60.0, in 1.0..=3_600.0,
        /// Characters of an image's base64 that are hashed.
        max_image_bytes: usize = 5_242_880, in 1_024.0..=67_108_864.0,
    }
    /// Tiles for a yes or no.
    vision_high_detail_misroute: VisionHighDetailMisroute {
        /// Longer answers are no label.
        max_completion_tokens: u64 = 50, in 1.0..=1_000_000.0,
    }
    /// Images for an answer of a word.
    vision_cost_concentration: VisionCostConcentration {
        /// Share of the prompt's tokens that are images, 0.0 to 1.0.
        image_share_threshold: f64 = 0.80, in 0.0..=1.0,
        /// Answers of this many tokens or more are worth their images.
        max_completion_tokens: u64 = 50, in 1.0..=1_000_000.0,
    }
    /// Every channel billed: there is no knob.
    audio_multichannel_doubling: AudioMultichannelDoubling {}
    /// One text, many voices.
    voice_switching_loop: VoiceSwitchingLoop {
        /// Over how long, in seconds.
        window_seconds: f64 = 10.0, in 1.0..=3_600.0,
        /// Different voices.
        min_voices: usize = 3, in 2.0..=100.0,
    }
    /// Equal rerank requests.
    rerank_thrash: RerankThrash {
        /// Over how long, in seconds.
        window_seconds: f64 = 30.0, in 1.0..=3_600.0,
        /// Equal requests.
        min_calls: usize = 2, in 2.0..=200.0,
    }
    /// Corrections that change little.
    repair_loop: RepairLoop {
        /// Last turns of the conversation that are looked at; at most 64 are kept.
        window_turns: usize = 10, in 1.0..=64.0,
        /// Corrections among them.
        min_corrections: usize = 2, in 1.0..=64.0,
        /// Mean similarity of the answers around them, 0.0 to 1.0.
        similarity_threshold: f64 = 0.7, in 0.0..=1.0,
        /// A correction is shorter than this share of the answer it corrects.
        length_ratio: f64 = 0.8, in 0.0..=10.0,
    }
}

impl Config {
    /// Whether a rule is on.
    pub fn enabled(&self, rule: Rule) -> bool {
        !self.disabled.contains(&rule)
    }

    /// The configuration with these `<rule>.<knob>` settings (the corpus rows' spelling). An unknown rule or knob, or a
    /// value of another type, is an error that names it.
    pub fn from_flat(flat: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        let mut nested: BTreeMap<&str, Value> = BTreeMap::new();
        for (key, value) in flat {
            match key.split_once('.') {
                Some((rule, knob)) => {
                    let section = nested.entry(rule).or_insert_with(|| json!({}));
                    if let Some(section) = section.as_object_mut() {
                        section.insert(knob.to_owned(), value.clone());
                    }
                }
                None => {
                    nested.insert(key, value.clone());
                }
            }
        }
        serde_json::from_value(serde_json::to_value(nested)?)
    }
}

impl ToolLoop {
    /// The threshold in force for the metric in force.
    pub fn threshold(&self) -> f64 {
        self.cosine_threshold.unwrap_or(match self.similarity_metric {
            Metric::TfidfCharngram => 0.70,
            Metric::Jaccard => 0.85,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_follows_the_metric() {
        let flat = serde_json::json!({"tool_loop.similarity_metric": "jaccard"});
        let config = Config::from_flat(flat.as_object().unwrap()).unwrap();
        assert!((config.tool_loop.threshold() - 0.85).abs() < f64::EPSILON);
        assert!((Config::default().tool_loop.threshold() - 0.70).abs() < f64::EPSILON);
        let flat = serde_json::json!({"retrieval_thrash.similarity_metric": "jaccard"});
        let config = Config::from_flat(flat.as_object().unwrap()).unwrap();
        assert!((config.retrieval_thrash.cosine_threshold - 0.65).abs() < f64::EPSILON);
    }

    #[test]
    fn defaults_lie_within_their_bounds() {
        assert!(KNOBS.iter().all(|knob| Rule::from_name(knob.rule).is_some()));
        for Knob { rule, name, range } in KNOBS {
            let Some((low, high)) = range else { continue };
            for edge in [*low, *high] {
                let whole = format!("{edge:.0}").parse::<u64>().ok();
                let either = [serde_json::json!(edge), serde_json::json!(whole)].map(|value| {
                    let flat = serde_json::json!({ format!("{rule}.{name}"): value });
                    Config::from_flat(flat.as_object().unwrap()).is_ok()
                });
                assert!(either.contains(&true), "{rule}.{name} = {edge}");
            }
        }
    }

    #[test]
    fn unknown_knobs_are_refused_by_name() {
        for key in ["tool_loop.min_cals", "semantic_loop.min_calls"] {
            let flat = serde_json::json!({ key: 2 });
            let error = Config::from_flat(flat.as_object().unwrap())
                .unwrap_err()
                .to_string();
            let name = key.split('.').find(|part| error.contains(part));
            assert!(name.is_some(), "{error}");
        }
    }
}
