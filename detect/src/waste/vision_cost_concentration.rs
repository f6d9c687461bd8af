//! `vision_cost_concentration`: nearly the whole prompt is images, and the answer is a word. Gemini only, which tells
//! prompt tokens by modality. Confidence 0.65.

use super::call::LlmCall;
use super::config::Config;
use super::model_misroute::tokens;
use super::rule::{Firing, Rule};

pub(super) fn evaluate(call: &LlmCall, config: &Config) -> Option<Firing> {
    let knobs = &config.vision_cost_concentration;
    let image = call.usage.image_tokens.filter(|_| call.usage.prompt_tokens > 0)?;
    let share = tokens(image) / tokens(call.usage.prompt_tokens);
    (call.provider == "gemini"
        && share >= knobs.image_share_threshold
        && call.usage.completion_tokens < knobs.max_completion_tokens)
        .then(|| Firing {
            rule: Rule::VisionCostConcentration,
            confidence: 0.65,
            suggested_action: "reduce_image_count_or_resolution",
            tool: None,
            subject: 0,
            numbers: vec![
                ("image_tokens", tokens(image)),
                ("prompt_tokens", tokens(call.usage.prompt_tokens)),
                ("completion_tokens", tokens(call.usage.completion_tokens)),
                ("image_share", share),
            ],
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waste::Usage;

    fn fired(provider: &str, image: u64, prompt: u64, completion: u64) -> bool {
        let usage = Usage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            image_tokens: Some(image),
            ..Usage::default()
        };
        let call = LlmCall {
            provider: provider.into(),
            usage,
            ..LlmCall::default()
        };
        evaluate(&call, &Config::default()).is_some()
    }

    #[test]
    fn edges() {
        assert!(fired("gemini", 800, 1_000, 49));
        assert!(!fired("gemini", 799, 1_000, 49));
        assert!(!fired("gemini", 800, 1_000, 50));
        assert!(!fired("openai", 800, 1_000, 49));
        assert!(!fired("gemini", 0, 0, 0));
    }

    #[test]
    fn the_wire_names_counts_in_its_own_way() {
        use super::super::testing::{calls, fires};
        use serde_json::json;

        let asked = |details: serde_json::Value| {
            let call = json!({"provider": "gemini", "prompt_tokens": 1_000, "completion_tokens": 1,
                "raw_response_meta": {"prompt_tokens_details": details}});
            fires(Rule::VisionCostConcentration, &calls([call]), &json!({})).is_some()
        };
        assert!(asked(json!([{"modality": "IMAGE", "tokenCount": 900}])));
        assert!(asked(
            json!([{"modality": "IMAGE", "token_count": null, "tokenCount": 900}])
        ));
        assert!(!asked(json!([{"modality": "IMAGE", "token_count": "900"}])));
        assert!(!asked(
            json!([{"modality": "IMAGE", "token_count": 900}, {"modality": "IMAGE", "token_count": -200}])
        ));
    }
}
