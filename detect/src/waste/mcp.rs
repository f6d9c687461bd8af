//! Waste seen in MCP traffic alone, with no telemetry: five rules over tool calls and tool lists.

use serde_json::Value;

use super::call::{LlmCall, ToolCall, digest};
use super::config::Config;
use super::request::{Request, ToolDefinitions};
use super::rule::Rule;
use super::spelling::spell;

/// Rules that MCP traffic can feed.
pub const MCP_RULES: [Rule; 5] = [
    Rule::ToolLoop,
    Rule::RetrievalThrash,
    Rule::RetryStorm,
    Rule::ToolDefinitionBloat,
    Rule::Zombie,
];

/// One `tools/call` of a run, told when it completed.
#[derive(Clone, Copy, Debug)]
pub struct McpCall<'a> {
    /// Tool name.
    pub tool: &'a str,
    /// Its arguments.
    pub arguments: &'a Value,
    /// When the request was made, in nanoseconds.
    pub at: u64,
    /// A JSON-RPC error, or a result with `isError`.
    pub failed: bool,
    /// The definitions that the agent holds from all servers of the run.
    pub definitions: Option<ToolDefinitions>,
}

impl McpCall<'_> {
    /// The call as the rules see it, for the session `run`. Only a failed call is a candidate for a retry: the same
    /// call after a success is a loop, not a retry. Nothing on this wire goes to the person.
    pub fn measure(&self, run: &str, config: &Config) -> LlmCall {
        let hash = || {
            let spelt = spell(self.arguments, config.tool_loop.max_arg_bytes);
            digest(format!("{}\0{spelt}", self.tool).as_bytes())
        };
        LlmCall {
            session: run.to_owned(),
            at: self.at,
            method: "tools/call".to_owned(),
            request_hash: self.failed.then(hash),
            tool_calls: vec![ToolCall::measure(self.tool, self.arguments, config)],
            request: Request {
                tools: self.definitions,
                ..Request::default()
            },
            ..LlmCall::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waste::Monitor;
    use serde_json::json;

    const SECOND: u64 = 1_000_000_000;

    fn observed(
        calls: &[(u64, &str, Value, bool)],
        definitions: Option<ToolDefinitions>,
    ) -> Vec<&'static str> {
        let mut monitor = Monitor::new(Config::default());
        let mut found = Vec::new();
        for (at, tool, arguments, failed) in calls {
            let call = McpCall {
                tool,
                arguments,
                at: at * SECOND,
                failed: *failed,
                definitions,
            };
            let call = call.measure("run", monitor.config());
            found.extend(
                monitor
                    .observe_rules("run", &call, &MCP_RULES)
                    .into_iter()
                    .map(|f| f.detector),
            );
        }
        found
    }

    #[test]
    fn a_loop_is_told_once() {
        let calls: Vec<_> = (0..20)
            .map(|i| (i, "get_part", json!({"id": "a-1"}), false))
            .collect();
        assert_eq!(observed(&calls, None), ["waste.tool_loop"]);
    }

    #[test]
    fn failures_of_the_same_call_are_a_storm() {
        let calls: Vec<_> = (0..5)
            .map(|i| (i, "check_status", json!({"id": 1}), true))
            .collect();
        assert_eq!(observed(&calls, None), ["waste.retry_storm"]);
        let calls: Vec<_> = (0..5)
            .map(|i| (i, "check_status", json!({"id": 1}), false))
            .collect();
        assert!(observed(&calls, None).is_empty());
    }

    #[test]
    fn definitions_and_silence() {
        let many = Some(ToolDefinitions {
            count: 58,
            bytes: 220_000,
            largest: 9_000,
        });
        let calls: Vec<_> = (0..8_u64)
            .map(|i| (i * 70, "step", json!({"n": i}), false))
            .collect();
        let mut found = observed(&calls, many);
        found.dedup();
        // Told again once 300 s have passed.
        assert_eq!(found, ["waste.tool_definition_bloat", "waste.zombie"]);
    }
}
