//! The knobs of the rules, with the defaults of seed 003 (as token-sentinel 1.0.3 has them where the text differs).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::rule::Rule;
use super::similarity::Metric;

/// What is looked for, and how strictly.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Firings below this confidence are dropped; 0.0 to 1.0.
    pub min_confidence: f64,
    /// Rules that are off.
    pub disabled: Vec<String>,
    /// A reported cause stays quiet for this long.
    pub repeat_seconds: f64,
    /// Knobs of `tool_loop`.
    pub tool_loop: ToolLoop,
    /// Knobs of `context_bloat`.
    pub context_bloat: ContextBloat,
    /// `embedding_waste` compares digests: it has no knob.
    pub embedding_waste: NoKnobs,
    /// Knobs of `zombie`.
    pub zombie: Zombie,
    /// Knobs of `model_misroute`.
    pub model_misroute: ModelMisroute,
    /// Knobs of `retry_storm`.
    pub retry_storm: RetryStorm,
    /// Knobs of `tool_definition_bloat`.
    pub tool_definition_bloat: ToolDefinitionBloat,
    /// Knobs of `retrieval_thrash`.
    pub retrieval_thrash: RetrievalThrash,
    /// Knobs of `vision_re_upload`.
    pub vision_re_upload: VisionReUpload,
    /// Knobs of `vision_high_detail_misroute`.
    pub vision_high_detail_misroute: VisionHighDetailMisroute,
    /// Knobs of `vision_cost_concentration`.
    pub vision_cost_concentration: VisionCostConcentration,
    /// `audio_multichannel_doubling` has no knob.
    pub audio_multichannel_doubling: NoKnobs,
    /// Knobs of `voice_switching_loop`.
    pub voice_switching_loop: VoiceSwitchingLoop,
    /// Knobs of `rerank_thrash`.
    pub rerank_thrash: RerankThrash,
    /// Knobs of `repair_loop`.
    pub repair_loop: RepairLoop,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            min_confidence: 0.5,
            disabled: Vec::new(),
            repeat_seconds: 300.0,
            tool_loop: ToolLoop::default(),
            context_bloat: ContextBloat::default(),
            embedding_waste: NoKnobs {},
            zombie: Zombie::default(),
            model_misroute: ModelMisroute::default(),
            retry_storm: RetryStorm::default(),
            tool_definition_bloat: ToolDefinitionBloat::default(),
            retrieval_thrash: RetrievalThrash::default(),
            vision_re_upload: VisionReUpload::default(),
            vision_high_detail_misroute: VisionHighDetailMisroute::default(),
            vision_cost_concentration: VisionCostConcentration::default(),
            audio_multichannel_doubling: NoKnobs {},
            voice_switching_loop: VoiceSwitchingLoop::default(),
            rerank_thrash: RerankThrash::default(),
            repair_loop: RepairLoop::default(),
        }
    }
}

impl Config {
    /// Whether a rule is on.
    pub fn enabled(&self, rule: Rule) -> bool {
        !self.disabled.iter().any(|name| name == rule.name())
    }

    /// The configuration with these `<rule>.<knob>` settings (the corpus rows' spelling). An unknown rule or knob, or a
    /// value of another type, is an error that names it.
    pub fn from_flat(flat: &serde_json::Map<String, serde_json::Value>) -> Result<Self, serde_json::Error> {
        let mut nested: BTreeMap<&str, serde_json::Value> = BTreeMap::new();
        for (key, value) in flat {
            match key.split_once('.') {
                Some((rule, knob)) => {
                    let section = nested.entry(rule).or_insert_with(|| serde_json::json!({}));
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

/// A rule without knobs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct NoKnobs {}

macro_rules! knobs {
    ($(#[doc = $title:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr,)+ }) => {
        $(#[doc = $title])+
        #[derive(Clone, Debug, Deserialize, PartialEq)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name { $($(#[doc = $doc])+ pub $field: $type,)+ }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }
    };
}

knobs! {
    /// One tool, nearly the same arguments.
    ToolLoop {
        /// Calls of one tool that make a loop.
        min_calls: usize = 3,
        /// Over how long, in seconds.
        window_seconds: f64 = 60.0,
        /// Mean similarity from which it is one, 0.0 to 1.0; none: 0.70 for n-grams, 0.85 for Jaccard.
        cosine_threshold: Option<f64> = None,
        /// How arguments are compared.
        similarity_metric: Metric = Metric::TfidfCharngram,
        /// Characters of an n-gram; clamped to 3 to 5.
        charngram_size: usize = 4,
        /// Tools that are meant to be called again, in any case.
        polling_tools: Vec<String> = [
            "poll", "check_status", "get_status", "poll_status", "wait_for", "wait_until",
        ].map(str::to_owned).to_vec(),
        /// Accepted, without effect: a finding never quotes arguments (SPEC section 1).
        include_raw_args: bool = false,
        /// Bytes of one call's arguments that are compared.
        max_arg_bytes: usize = 65_536,
        /// Bytes of one tool's arguments that are compared, oldest calls first.
        max_total_corpus_bytes: usize = 1_048_576,
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

knobs! {
    /// Prompts that grow.
    ContextBloat {
        /// Last turns that are looked at; 0: all.
        lookback_turns: usize = 10,
        /// Tokens per turn from which it is bloat.
        slope_threshold: f64 = 1_500.0,
        /// Shorter sessions are left alone.
        min_turns: usize = 5,
    }
}

knobs! {
    /// Calls without a word to the person.
    Zombie {
        /// Silence in minutes, and the window of the calls counted.
        threshold_minutes: f64 = 5.0,
        /// Calls in the window.
        min_recent_calls: usize = 5,
        /// Sessions that are meant to run for long.
        long_running_sessions: Vec<String> = Vec::new(),
    }
}

knobs! {
    /// Small questions to large models.
    ModelMisroute {
        /// Longer prompts are no small question.
        max_prompt_tokens: u64 = 500,
        /// Longer answers are no label.
        max_completion_tokens: u64 = 50,
        /// Routes (the call's `route`) that need the large model.
        allowed_routes: Vec<String> = Vec::new(),
    }
}

knobs! {
    /// Retries without a pause.
    RetryStorm {
        /// Equal requests that make a storm.
        min_retries: usize = 5,
        /// Over how long, in seconds.
        window_seconds: f64 = 30.0,
    }
}

knobs! {
    /// Too many, or too long, tool definitions.
    ToolDefinitionBloat {
        /// Tools from which it is bloat.
        tool_count_threshold: usize = 30,
        /// Bytes of definitions from which it is bloat.
        tool_definition_bytes_threshold: usize = 30_000,
        /// Accepted, without effect: definitions are measured, none is copied.
        max_tool_bytes: usize = 262_144,
        /// Blocks above this get the confidence 0.5.
        max_total_bytes: usize = 5_242_880,
        /// Accepted, without effect: no tool names are quoted.
        redact_names: bool = false,
    }
}

knobs! {
    /// One question to a retriever in many wordings.
    RetrievalThrash {
        /// Calls of one tool that make it.
        min_calls: usize = 3,
        /// Over how long, in seconds.
        window_seconds: f64 = 120.0,
        /// Mean similarity from which it is one, 0.0 to 1.0; none: 0.65 for n-grams, 0.85 for Jaccard.
        cosine_threshold: Option<f64> = None,
        /// How queries are compared.
        similarity_metric: Metric = Metric::TfidfCharngram,
        /// Characters of an n-gram; clamped to 3 to 5.
        charngram_size: usize = 4,
        /// What a retriever's name looks like: a part of it, or a pattern where it holds `*`; in any case.
        retrieval_tool_patterns: Vec<String> = [
            "search", "retrieve", "query", "lookup", "find_documents", "vector_search", "similarity_search",
            "rag_*", "*_search", "*_query", "*_retrieve",
        ].map(str::to_owned).to_vec(),
        /// Accepted, without effect: a finding never quotes arguments (SPEC section 1).
        include_raw_args: bool = false,
        /// Bytes of one call's arguments that are compared.
        max_arg_bytes: usize = 65_536,
        /// Bytes of one tool's arguments that are compared, oldest calls first.
        max_total_corpus_bytes: usize = 1_048_576,
    }
}

impl RetrievalThrash {
    /// The threshold in force for the metric in force.
    pub fn threshold(&self) -> f64 {
        self.cosine_threshold.unwrap_or(match self.similarity_metric {
            Metric::TfidfCharngram => 0.65,
            Metric::Jaccard => 0.85,
        })
    }
}

knobs! {
    /// One image in call after call.
    VisionReUpload {
        /// Calls in a row.
        min_calls: usize = 3,
        /// Over how long, in seconds.
        window_seconds: f64 = 60.0,
        /// Characters of an image's base64 that are hashed.
        max_image_bytes: usize = 5_242_880,
    }
}

knobs! {
    /// Tiles for a yes or no.
    VisionHighDetailMisroute {
        /// Longer answers are no label.
        max_completion_tokens: u64 = 50,
    }
}

knobs! {
    /// Images for an answer of a word.
    VisionCostConcentration {
        /// Share of the prompt's tokens that are images, 0.0 to 1.0.
        image_share_threshold: f64 = 0.80,
        /// Answers of this many tokens or more are worth their images.
        max_completion_tokens: u64 = 50,
    }
}

knobs! {
    /// One text, many voices.
    VoiceSwitchingLoop {
        /// Over how long, in seconds.
        window_seconds: f64 = 10.0,
        /// Different voices.
        min_voices: usize = 3,
    }
}

knobs! {
    /// Equal rerank requests.
    RerankThrash {
        /// Over how long, in seconds.
        window_seconds: f64 = 30.0,
        /// Equal requests.
        min_calls: usize = 2,
    }
}

knobs! {
    /// Corrections that change little.
    RepairLoop {
        /// Last turns of the conversation that are looked at; at most 64 are kept.
        window_turns: usize = 10,
        /// Corrections among them.
        min_corrections: usize = 2,
        /// Mean similarity of the answers around them, 0.0 to 1.0.
        similarity_threshold: f64 = 0.7,
        /// A correction is shorter than this share of the answer it corrects.
        length_ratio: f64 = 0.8,
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
        assert!((Config::default().retrieval_thrash.threshold() - 0.65).abs() < f64::EPSILON);
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
