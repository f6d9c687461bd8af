//! Log records: Claude Code (`api_request`, `tool_result`), Codex (`codex.sse_event` of a completed response,
//! `codex.tool_result`), Gemini CLI (`gemini_cli.api_response`, `gemini_cli.tool_call`).

use serde_json::Value;

use super::super::call::{LlmCall, ToolCall, Usage};
use super::super::config::Config;
use super::attributes::Attributes;

/// The call of a log record, where it tells of one.
pub(super) fn call(
    service: &str,
    record: &Value,
    about: &Attributes<'_>,
    config: &Config,
) -> Option<LlmCall> {
    let name = about
        .text("event.name")
        .or_else(|| record.get("eventName")?.as_str())?;
    let mut call = LlmCall {
        session: ["session.id", "conversation.id"]
            .iter()
            .find_map(|name| about.text(name))?
            .to_owned(),
        at: time(record),
        model: about.text("model").unwrap_or_default().to_owned(),
        method: "chat".to_owned(),
        ..LlmCall::default()
    };
    let tool = |call: &mut LlmCall, name: &str, arguments: Option<&str>| {
        let arguments = arguments
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or(Value::Null);
        call.side = true;
        call.tool_calls.push(ToolCall::measure(name, &arguments, config));
    };
    if service.starts_with("claude-code") {
        "anthropic".clone_into(&mut call.provider);
        match name {
            "api_request" => {
                let cached = about.first(&["cache_read_tokens"]);
                let fresh = about
                    .first(&["input_tokens"])
                    .saturating_add(about.first(&["cache_creation_tokens"]));
                call.usage = usage(
                    fresh.saturating_add(cached),
                    cached,
                    about.first(&["output_tokens"]),
                );
                call.side = !matches!(
                    about.text("query_source"),
                    None | Some("sdk" | "repl_main_thread" | "cli")
                );
            }
            "assistant_response" => {
                call.user_facing = true;
                call.side = true;
            }
            "tool_result" => {
                let inner: Value =
                    serde_json::from_str(about.text("tool_parameters").unwrap_or("{}")).ok()?;
                let name = inner
                    .get("mcp_tool_name")
                    .and_then(Value::as_str)
                    .or_else(|| about.text("tool_name"))?;
                tool(&mut call, name, about.text("tool_input"));
            }
            _ => return None,
        }
    } else if name.starts_with("codex.") {
        "openai".clone_into(&mut call.provider);
        match name {
            // Two events tell of a completed response; the one with tokens is read.
            "codex.sse_event" => {
                let input = about.count("input_token_count")?;
                call.usage = usage(
                    input,
                    about.first(&["cached_token_count"]),
                    about.first(&["output_token_count"]),
                );
            }
            "codex.tool_result" => tool(&mut call, about.text("tool_name")?, about.text("arguments")),
            _ => return None,
        }
    } else {
        "gemini".clone_into(&mut call.provider);
        match name {
            "gemini_cli.api_response" => {
                call.usage = usage(
                    about.first(&["input_token_count"]),
                    about.first(&["cached_content_token_count"]),
                    about.first(&["output_token_count"]),
                );
                call.side = !matches!(about.text("role"), None | Some("main"));
            }
            "gemini_cli.tool_call" => tool(
                &mut call,
                about.text("function_name")?,
                about.text("function_args"),
            ),
            _ => return None,
        }
    }
    Some(call)
}

/// When the record was made, in nanoseconds.
pub(super) fn time(record: &Value) -> u64 {
    ["timeUnixNano", "observedTimeUnixNano", "startTimeUnixNano"]
        .iter()
        .filter_map(|name| record.get(*name))
        .filter_map(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()))
        // Zero means unknown (Codex sends it beside the observed time).
        .find(|at| *at > 0)
        .unwrap_or_default()
}

pub(super) fn usage(prompt: u64, cached: u64, completion: u64) -> Usage {
    Usage {
        prompt_tokens: prompt,
        cached_tokens: cached,
        completion_tokens: completion,
        image_tokens: None,
    }
}
