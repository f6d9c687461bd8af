//! Spans: Copilot CLI and other programs by the OpenTelemetry GenAI conventions, opencode (`ai.streamText.doStream`), and
//! OpenInference (embeddings, chats with images, rerank).

use serde_json::{Value, json};

use super::super::call::{LlmCall, ToolCall, digest};
use super::super::config::Config;
use super::super::request::{Request, ToolDefinitions};
use super::super::spelling::spell;
use super::super::zombie::pause;
use super::attributes::Attributes;
use super::logs::{time, usage};

/// The call of a span, where it is one.
pub(super) fn call(
    service: &str,
    record: &Value,
    about: &Attributes<'_>,
    config: &Config,
) -> Option<LlmCall> {
    // Their logs tell of the same calls.
    if service.starts_with("claude-code") || service.starts_with("codex") || service.starts_with("gemini") {
        return None;
    }
    let session = ["session.id", "gen_ai.conversation.id"]
        .iter()
        .find_map(|name| about.text(name));
    let session = session
        .or_else(|| record.get("traceId")?.as_str())
        .unwrap_or_default()
        .to_owned();
    let mut call = LlmCall {
        session,
        at: time(record),
        // Whether an answer went to the person is told by few, and what the person types by none.
        unheard_pause: Some(pause(config)),
        ..LlmCall::default()
    };
    if let Some(kind) = about.text("openinference.span.kind") {
        return openinference(call, kind, about, config);
    }
    let name = record.get("name").and_then(Value::as_str).unwrap_or_default();
    let operation = about
        .text("gen_ai.operation.name")
        .or_else(|| about.text("ai.operationId"))
        // OpenLLMetry before it took up the conventions.
        .or_else(|| match about.text("llm.request.type")? {
            "completion" => Some("text_completion"),
            "embedding" => Some("embeddings"),
            other => Some(other),
        })
        .unwrap_or(name);
    let provider = about
        .text("gen_ai.provider.name")
        .or_else(|| about.text("gen_ai.system"));
    provider.unwrap_or_default().clone_into(&mut call.provider);
    match operation {
        "chat"
        | "generate_content"
        | "text_completion"
        | "ai.streamText.doStream"
        | "ai.generateText.doGenerate" => {
            about
                .text("gen_ai.request.model")
                .or_else(|| about.text("gen_ai.response.model"))
                .unwrap_or_default()
                .clone_into(&mut call.model);
            "chat".clone_into(&mut call.method);
            call.usage = usage(
                about.first(&[
                    "gen_ai.usage.input_tokens",
                    "ai.usage.inputTokens",
                    "gen_ai.usage.prompt_tokens",
                ]),
                about.first(&[
                    "gen_ai.usage.cache_read.input_tokens",
                    "ai.usage.cachedInputTokens",
                ]),
                about.first(&[
                    "gen_ai.usage.output_tokens",
                    "ai.usage.outputTokens",
                    "gen_ai.usage.completion_tokens",
                ]),
            );
            if let Some(kind) = about.text("error.type") {
                // A try that failed is a span of its own; tries of one turn stand for a digest of the request.
                let turn = record
                    .get("parentSpanId")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let key = format!("failed\0{}\0{turn}\0{}\0{kind}", call.session, call.model);
                call.request_hash = Some(digest(key.as_bytes()));
                call.side = true;
                return Some(call);
            }
            let ended = |reason: &str| matches!(reason, "stop" | "end_turn" | "STOP");
            call.user_facing = about
                .texts("gen_ai.response.finish_reasons")
                .into_iter()
                .any(ended);
            call.request = conversation(about, config);
            call.request.tools = definitions(about);
            // opencode asks for a title first, without tools.
            call.side = operation.starts_with("ai.") && call.request.tools.is_none();
        }
        "embeddings" => {
            about
                .text("gen_ai.request.model")
                .unwrap_or_default()
                .clone_into(&mut call.model);
            "embeddings.create".clone_into(&mut call.method);
            call.usage.prompt_tokens = about.first(&["gen_ai.usage.input_tokens"]);
            call.request.embedding_input = about
                .text("gen_ai.input.messages")
                .map(|text| digest(text.as_bytes()));
        }
        "execute_tool" | "ai.toolCall" => {
            let tool = about
                .text("gen_ai.tool.name")
                .or_else(|| about.text("ai.toolCall.name"))?;
            let arguments = about
                .text("gen_ai.tool.call.arguments")
                .or_else(|| about.text("ai.toolCall.args"))?;
            let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments));
            call.side = true;
            call.tool_calls.push(ToolCall::measure(tool, &arguments, config));
        }
        _ => return None,
    }
    Some(call)
}

/// What was said, where a program sends it along: by the conventions (`gen_ai.input.messages`: roles with parts) or as the
/// Vercel AI SDK does (`ai.prompt.messages`).
fn conversation(about: &Attributes<'_>, config: &Config) -> Request {
    let read = |name: &str| serde_json::from_str::<Vec<Value>>(about.text(name)?).ok();
    let messages = read("gen_ai.input.messages")
        .map(|messages| messages.iter().map(by_parts).collect())
        .or_else(|| read("ai.prompt.messages"));
    messages.map_or_else(Request::default, |messages| {
        Request::measure(&json!({ "messages": messages }), config)
    })
}

/// A message with `parts` in the shape that providers' libraries send.
fn by_parts(message: &Value) -> Value {
    let parts = message
        .get("parts")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let texts: Vec<Value> = parts
        .filter(|part| part.get("type").and_then(Value::as_str) == Some("text"))
        .filter_map(|part| Some(json!({"type": "text", "text": part.get("content")?.as_str()?})))
        .collect();
    json!({"role": message.get("role"), "content": texts})
}

fn definitions(about: &Attributes<'_>) -> Option<ToolDefinitions> {
    if let Some(text) = about.text("gen_ai.tool.definitions") {
        return serde_json::from_str::<Vec<Value>>(text)
            .ok()
            .map(|tools| ToolDefinitions::of(&tools));
    }
    // A list of JSON texts.
    let tools: Vec<Value> = about
        .texts("ai.prompt.tools")
        .into_iter()
        .filter_map(|text| serde_json::from_str(text).ok())
        .collect();
    (!tools.is_empty()).then(|| ToolDefinitions::of(&tools))
}

fn openinference(mut call: LlmCall, kind: &str, about: &Attributes<'_>, config: &Config) -> Option<LlmCall> {
    let input: Value = about
        .text("input.value")
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or(Value::Null);
    about
        .text("llm.system")
        .unwrap_or_default()
        .clone_into(&mut call.provider);
    call.usage = usage(
        about.first(&["llm.token_count.prompt"]),
        about.first(&["llm.token_count.prompt_details.cache_read"]),
        about.first(&["llm.token_count.completion"]),
    );
    call.request = Request::measure(&input, config);
    let (method, model) = match kind {
        "EMBEDDING" => ("embeddings.create", "embedding.model_name"),
        "RERANKER" => {
            "cohere".clone_into(&mut call.provider);
            call.request_hash = Some(digest(spell(&input, usize::MAX).as_bytes()));
            ("rerank", "reranker.model_name")
        }
        "LLM" => ("chat", "llm.model_name"),
        _ => return None,
    };
    method.clone_into(&mut call.method);
    about.text(model).unwrap_or_default().clone_into(&mut call.model);
    call.user_facing = about.text("llm.finish_reason") == Some("stop");
    Some(call)
}
