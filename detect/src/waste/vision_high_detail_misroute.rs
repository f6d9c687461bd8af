//! `vision_high_detail_misroute`: OpenAI image tiles paid for a question that the small overview would answer.
//! Confidence 0.75.

use super::call::LlmCall;
use super::config::Config;
use super::model_misroute::tokens;
use super::rule::{Firing, Rule};
use super::similarity::as_f64;

pub(super) fn evaluate(call: &LlmCall, config: &Config) -> Option<Firing> {
    let knobs = &config.vision_high_detail_misroute;
    (call.provider == "openai"
        && call.request.high_detail_images > 0
        && call.usage.completion_tokens <= knobs.max_completion_tokens
        && !call.request.classification.is_empty())
    .then(|| Firing {
        rule: Rule::VisionHighDetailMisroute,
        confidence: 0.75,
        suggested_action: "use_image_detail_low_for_classification",
        tool: None,
        subject: 0,
        numbers: vec![
            ("image_count", as_f64(call.request.high_detail_images)),
            ("completion_tokens", tokens(call.usage.completion_tokens)),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{calls, fires};
    use super::*;
    use serde_json::{Value, json};

    fn asked(provider: &str, detail: &Value, text: &str, completion: u64) -> bool {
        let mut image = json!({"url": "data:image/png;base64,QUJD"});
        if !detail.is_null() {
            image["detail"] = detail.clone();
        }
        let content = json!([{"type": "text", "text": text}, {"type": "image_url", "image_url": image}]);
        let call = json!({
            "provider": provider, "model": "gpt-5", "completion_tokens": completion,
            "raw_request": {"messages": [{"role": "user", "content": content}]},
        });
        fires(Rule::VisionHighDetailMisroute, &calls([call]), &json!({})).is_some()
    }

    #[test]
    fn high_detail_for_a_classification() {
        assert!(asked("openai", &json!("high"), "Is this a cat?", 50));
        assert!(asked("openai", &json!(null), "Is this a cat?", 5));
        assert!(!asked("openai", &json!("low"), "Is this a cat?", 5));
        assert!(!asked("openai", &json!("high"), "Read me the invoice", 5));
        assert!(!asked("openai", &json!("high"), "Is this a cat?", 51));
        assert!(!asked("anthropic", &json!("high"), "Is this a cat?", 5));
    }
}
