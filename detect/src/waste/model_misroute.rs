//! `model_misroute`: a short classification sent to a large model. Confidence 0.7.

use super::call::{LlmCall, digest};
use super::config::Config;
use super::rule::{Firing, Rule};
use super::similarity::as_f64;

/// Beginnings of the names of large models, and what to do instead.
const LARGE: [(&str, &str); 14] = [
    ("claude-opus", "route_to_claude-haiku-4-5"),
    ("claude-sonnet", "route_to_claude-haiku-4-5"),
    ("claude-3-5-sonnet", "route_to_claude-haiku-4-5"),
    ("claude-4-sonnet", "route_to_claude-haiku-4-5"),
    ("gpt-5", "route_to_gpt-5-mini"),
    ("gpt-4-turbo", "route_to_gpt-4o-mini"),
    ("gpt-4o", "route_to_gpt-4o-mini"),
    ("gemini-2.5-pro", "route_to_gemini-2.5-flash"),
    ("gemini-2.0-pro", "route_to_gemini-2.5-flash"),
    ("deepseek-reasoner", "route_to_deepseek-chat"),
    ("command-r-plus", "route_to_command-r"),
    ("command-a", "route_to_command-r"),
    ("mistral-large", "route_to_mistral-small-latest"),
    ("mistral/mistral-large", "route_to_mistral-small-latest"),
];

/// Beginnings that look large and are not.
const SMALL: [&str; 3] = ["gpt-5-mini", "gpt-5-nano", "gpt-4o-mini"];

/// Vendors that gateways put before a model's name.
const VENDORS: [&str; 10] = [
    "anthropic",
    "openai",
    "google",
    "deepseek",
    "cohere",
    "mistral",
    "meta-llama",
    "groq",
    "perplexity",
    "xai",
];

pub(super) fn evaluate(call: &LlmCall, config: &Config) -> Option<Firing> {
    let knobs = &config.model_misroute;
    let small = call.usage.prompt_tokens <= knobs.max_prompt_tokens
        && call.usage.completion_tokens <= knobs.max_completion_tokens
        && !call.request.classification.is_empty();
    if !small
        || knobs
            .allowed_routes
            .iter()
            .any(|route| !route.is_empty() && *route == call.route)
    {
        return None;
    }
    let model = bare(&call.model, call.request.gateway);
    if SMALL.iter().any(|small| model.starts_with(small)) {
        return None;
    }
    let (_, action) = LARGE.iter().find(|(large, _)| model.starts_with(large))?;
    Some(Firing {
        rule: Rule::ModelMisroute,
        confidence: 0.7,
        suggested_action: action,
        tool: None,
        subject: digest(model.as_bytes()),
        numbers: vec![
            ("prompt_tokens", tokens(call.usage.prompt_tokens)),
            ("completion_tokens", tokens(call.usage.completion_tokens)),
            ("matched_keywords", as_f64(call.request.classification.len())),
        ],
    })
}

pub(super) fn tokens(count: u64) -> f64 {
    as_f64(usize::try_from(count).unwrap_or(usize::MAX))
}

/// A model's name without a gateway's key (`@key/`) and vendor in front. An unknown vendor is taken off only where the
/// request went through a gateway: a model of one's own may have a slash in its name.
fn bare(model: &str, gateway: bool) -> &str {
    let key = |key: &str| {
        key.strip_prefix('@').is_some_and(|key| {
            !key.is_empty()
                && key
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        })
    };
    let mut model = model;
    while let Some((_, rest)) = model.split_once('/').filter(|(first, _)| key(first)) {
        model = rest;
    }
    match model.split_once('/') {
        Some((vendor, rest)) if VENDORS.contains(&vendor) => rest,
        Some((vendor, rest)) if gateway && !vendor.is_empty() && !rest.is_empty() => rest,
        _ => model,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{calls, fires};
    use super::*;
    use serde_json::{Value, json};

    fn routed(model: &str, extra: &Value) -> Option<Firing> {
        let mut call = json!({
            "model": model, "prompt_tokens": 500, "completion_tokens": 50,
            "raw_request": {"messages": [{"role": "user", "content": "Classify: parcel is late"}]},
        });
        for (key, value) in extra.as_object().into_iter().flatten() {
            call[key] = value.clone();
        }
        fires(Rule::ModelMisroute, &calls([call]), &json!({}))
    }

    #[test]
    fn large_models_small_ones_and_gateways() {
        for (model, action) in [
            ("claude-opus-4-8[1m]", Some("route_to_claude-haiku-4-5")),
            ("claude-haiku-4-5", None),
            ("gpt-5.5", Some("route_to_gpt-5-mini")),
            ("gpt-5-nano-2026", None),
            ("openai/gpt-4o-mini", None),
            ("@prod-1/gpt-4o", Some("route_to_gpt-4o-mini")),
            ("@a/@b/openai/gpt-4o", Some("route_to_gpt-4o-mini")),
            ("my/gpt-4o", None),
        ] {
            assert_eq!(
                routed(model, &json!({})).map(|fired| fired.suggested_action),
                action,
                "{model}"
            );
        }
        let gateway = json!({"raw_request": {
            "base_url": "https://openai.helicone.ai/v1",
            "messages": [{"role": "user", "content": [{"text": "yes or"}, {"text": "no?"}]}],
        }});
        assert!(routed("my/gpt-4o", &gateway).is_some());
        assert!(routed("/gpt-4o", &gateway).is_none(), "no vendor at all");
    }

    #[test]
    fn sizes_and_routes() {
        assert!(routed("gpt-5", &json!({"prompt_tokens": 501})).is_none());
        assert!(routed("gpt-5", &json!({"completion_tokens": 51})).is_none());
        let mut call = LlmCall {
            model: "gpt-5".into(),
            route: "legal".into(),
            ..LlmCall::default()
        };
        call.request.classification.push("classify");
        let mut config = Config::default();
        assert!(evaluate(&call, &config).is_some());
        config.model_misroute.allowed_routes.push("legal".into());
        assert!(evaluate(&call, &config).is_none());
    }
}
