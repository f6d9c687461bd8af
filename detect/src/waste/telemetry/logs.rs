//! Log records: Claude Code (`api_request`, `api_error`, `tool_result`, `assistant_response`, `user_prompt`), Codex
//! (`codex.sse_event` of a completed response, `codex.api_request`, `codex.tool_result`, `codex.user_prompt`), Gemini CLI
//! (`gemini_cli.api_response`, `gemini_cli.api_error`, `gemini_cli.tool_call`, `gemini_cli.user_prompt`).

use serde_json::Value;

use super::super::call::{LlmCall, ToolCall, Usage, call_key, digest};
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
    if service.starts_with("claude-code") {
        claude(name, about, config, &mut call)?;
    } else if name.starts_with("codex.") {
        codex(name, about, config, &mut call)?;
    } else {
        gemini(name, about, config, &mut call)?;
    }
    Some(call)
}

fn claude(name: &str, about: &Attributes<'_>, config: &Config, call: &mut LlmCall) -> Option<()> {
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
            sent(call, about);
            call.side = !matches!(
                about.text("query_source"),
                None | Some("sdk" | "repl_main_thread" | "cli")
            );
        }
        "assistant_response" | "user_prompt" => heard(call),
        "api_error" => failure(call, about, "prompt.id"),
        "tool_result" => {
            let inner: Value = serde_json::from_str(about.text("tool_parameters").unwrap_or("{}")).ok()?;
            let mcp = inner.get("mcp_tool_name").and_then(Value::as_str);
            call.over_mcp = mcp.is_some() || about.text("tool_name") == Some("mcp_tool");
            let name = mcp.or_else(|| about.text("tool_name"))?;
            tool(
                call,
                name,
                about.text("tool_input"),
                about.text("tool_use_id"),
                config,
            )?;
        }
        _ => return None,
    }
    Some(())
}

fn codex(name: &str, about: &Attributes<'_>, config: &Config, call: &mut LlmCall) -> Option<()> {
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
        // Told once the answer begins, so that it dates the request of the response that is completed next.
        "codex.api_request" => {
            let status = about.count("http.response.status_code");
            if about.text("error.message").is_some() || status.is_some_and(|status| status >= 400) {
                failure(call, about, "turn.id");
            } else {
                call.side = true;
                sent(call, about);
            }
        }
        "codex.user_prompt" => heard(call),
        "codex.tool_result" => {
            call.over_mcp = about.text("mcp_server").is_some_and(|server| !server.is_empty());
            let (arguments, id) = (about.text("arguments"), about.text("call_id"));
            tool(call, about.text("tool_name")?, arguments, id, config)?;
        }
        _ => return None,
    }
    Some(())
}

fn gemini(name: &str, about: &Attributes<'_>, config: &Config, call: &mut LlmCall) -> Option<()> {
    "gemini".clone_into(&mut call.provider);
    match name {
        "gemini_cli.api_response" => {
            call.usage = usage(
                about.first(&["input_token_count"]),
                about.first(&["cached_content_token_count"]),
                about.first(&["output_token_count"]),
            );
            sent(call, about);
            call.side = !matches!(about.text("role"), None | Some("main"));
        }
        "gemini_cli.user_prompt" => heard(call),
        "gemini_cli.api_error" => failure(call, about, "prompt_id"),
        "gemini_cli.tool_call" => {
            call.over_mcp = about.text("tool_type") == Some("mcp");
            let (name, arguments) = (about.text("function_name")?, about.text("function_args"));
            tool(call, name, arguments, None, config)?;
        }
        _ => return None,
    }
    Some(())
}

/// A tool that ran. Without its arguments (most agents leave them out unless told otherwise) nothing can be said of it:
/// calls that differ would look alike. Its id alone still tells which agent's session this is.
fn tool(
    call: &mut LlmCall,
    name: &str,
    arguments: Option<&str>,
    id: Option<&str>,
    config: &Config,
) -> Option<()> {
    call.call_key = id.map(call_key);
    if arguments.is_none() && id.is_none() {
        return None;
    }
    call.side = true;
    if let Some(arguments) = arguments {
        let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments));
        call.tool_calls.push(ToolCall::measure(name, &arguments, config));
    }
    Some(())
}

/// The person read an answer, or typed a prompt and so has seen what was there. Codex and Gemini CLI tell the latter
/// only.
fn heard(call: &mut LlmCall) {
    call.user_facing = true;
    call.side = true;
}

/// A request that failed. No agent sends a digest of it; tries of one turn stand for it.
fn failure(call: &mut LlmCall, about: &Attributes<'_>, turn: &str) {
    let turn = about.text(turn).unwrap_or_default();
    call.request_hash = Some(digest(
        format!("failed\0{}\0{turn}\0{}", call.session, call.model).as_bytes(),
    ));
    call.side = true;
}

/// When the request was sent: the record is made when the answer is there.
fn sent(call: &mut LlmCall, about: &Attributes<'_>) {
    if let Some(milliseconds) = about.count("duration_ms") {
        call.sent = Some(call.at.saturating_sub(milliseconds.saturating_mul(1_000_000)));
    }
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
