//! The Gemini format (Gemini CLI).

use serde_json::{Value, json};

use super::{Asked, Call, Offer, Response, texts};

pub(super) fn asked(body: &Value) -> Asked {
    let offered = body["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["functionDeclarations"].as_array())
        .flatten()
        .filter_map(|tool| tool["name"].as_str())
        .map(|name| Offer {
            name: name.to_owned(),
            namespace: None,
        })
        .collect();
    let results = body["contents"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|content| content["parts"].as_array())
        .flatten()
        .filter_map(|part| part.get("functionResponse"))
        .map(|answer| texts(&answer["response"]))
        .collect();
    Asked { offered, results }
}

pub(super) fn response(next: Option<(&Call, &Offer)>, turn: usize, closing: &str, stream: bool) -> Response {
    let tokens = super::prompt_tokens(turn);
    let part = match next {
        Some((call, offer)) => json!({"functionCall": {"name": offer.name, "args": call.arguments}}),
        None => json!({"text": closing}),
    };
    let answer = json!({
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": tokens, "candidatesTokenCount": 5, "totalTokenCount": tokens + 5},
        "modelVersion": "mock-model"});
    if stream {
        Response::events(&[answer])
    } else {
        Response::json(&answer)
    }
}
