//! The Responses format (Codex).

use serde_json::{Value, json};

use super::{Asked, Call, Offer, Response, texts};

pub(super) fn asked(body: &Value) -> Asked {
    let mut offered = Vec::new();
    for tool in body["tools"].as_array().into_iter().flatten() {
        let Some(name) = tool["name"].as_str() else {
            continue;
        };
        match tool["tools"].as_array() {
            // A namespace: the tools of one MCP server.
            Some(inner) => offered.extend(inner.iter().filter_map(|t| t["name"].as_str()).map(
                |inner_name| Offer {
                    name: inner_name.to_owned(),
                    namespace: Some(name.to_owned()),
                },
            )),
            None => offered.push(Offer {
                name: name.to_owned(),
                namespace: None,
            }),
        }
    }
    let results = body["input"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|item| item["type"] == "function_call_output")
        .map(|item| texts(&item["output"]))
        .collect();
    Asked { offered, results }
}

pub(super) fn response(next: Option<(&Call, &Offer)>, turn: usize, closing: &str) -> Response {
    let item = match next {
        Some((call, offer)) => {
            let mut item = json!({
                "type": "function_call", "id": format!("fc_{turn}"), "call_id": format!("call_mock_{turn}"),
                "name": offer.name, "arguments": call.arguments.to_string(), "status": "completed"});
            if let Some(namespace) = &offer.namespace {
                item["namespace"] = json!(namespace);
            }
            item
        }
        None => json!({
            "type": "message", "id": format!("msg_{turn}"), "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": closing, "annotations": []}]}),
    };
    let id = format!("resp_mock_{turn}");
    let tokens = super::prompt_tokens(turn);
    Response::events(&[
        json!({"type": "response.created", "response": {"id": id}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": {"id": id, "usage": {
            "input_tokens": tokens, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": tokens + 5}}}),
    ])
}
