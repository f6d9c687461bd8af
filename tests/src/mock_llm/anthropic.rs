//! The Messages format (Claude Code).

use serde_json::{Value, json};

use super::{Asked, Call, Offer, Response, texts};

pub(super) fn asked(body: &Value) -> Asked {
    let offered = body["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str())
        .map(|name| Offer {
            name: name.to_owned(),
            namespace: None,
        })
        .collect();
    let results = body["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|message| message["content"].as_array())
        .flatten()
        .filter(|block| block["type"] == "tool_result")
        .map(|block| texts(&block["content"]))
        .collect();
    Asked { offered, results }
}

pub(super) fn response(next: Option<(&Call, &Offer)>, turn: usize, closing: &str) -> Response {
    let (block, delta, stop) = match next {
        Some((call, offer)) => (
            json!({"type": "tool_use", "id": format!("toolu_mock_{turn}"), "name": offer.name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": call.arguments.to_string()}),
            "tool_use",
        ),
        None => (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": closing}),
            "end_turn",
        ),
    };
    Response::events(&[
        json!({"type": "message_start", "message": {
            "id": format!("msg_mock_{turn}"), "type": "message", "role": "assistant", "model": "mock-model",
            "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": super::prompt_tokens(turn), "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
            "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ])
}
