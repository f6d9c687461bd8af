//! Waste seen in MCP traffic alone, with no telemetry: five rules over tool calls and tool lists.
//!
//! An agent that loads tools on demand (Claude Code) shows the model fewer definitions than its servers list: what is
//! told here is what it holds, an upper bound of what it sends.

use serde_json::Value;

use super::call::{LlmCall, ToolCall};
use super::config::Config;
use super::request::{Request, ToolDefinitions};
use super::rule::Rule;
use super::zombie;

/// Rules that MCP traffic can feed.
pub const MCP_RULES: [Rule; 5] = [
    Rule::ToolLoop,
    Rule::RetrievalThrash,
    Rule::RetryStorm,
    Rule::ToolDefinitionBloat,
    Rule::Zombie,
];

/// One `tools/call` of a run, told when it is made.
#[derive(Clone, Copy, Debug)]
pub struct McpCall<'a> {
    /// Tool name.
    pub tool: &'a str,
    /// Its arguments.
    pub arguments: &'a Value,
    /// When the request was made, in nanoseconds.
    pub at: u64,
    /// The definitions that the agent holds from all servers of the run.
    pub definitions: Option<ToolDefinitions>,
}

impl McpCall<'_> {
    /// The call as the rules see it, for the session `run`. Nothing on this wire goes to the person, so pauses must tell.
    pub fn measure(&self, run: &str, config: &Config) -> LlmCall {
        LlmCall {
            session: run.to_owned(),
            at: self.at,
            method: "tools/call".to_owned(),
            unheard_pause: Some(zombie::pause(config)),
            tool_calls: vec![ToolCall::measure(self.tool, self.arguments, config)],
            request: Request {
                tools: self.definitions,
                ..Request::default()
            },
            ..LlmCall::default()
        }
    }
}

/// A `tools/call` that ended in a JSON-RPC error or a result with `isError`. Only such a call is a candidate for a retry:
/// the same call after a success is a loop. `call` is the digest of tool and arguments, `bytes` what the failure put into
/// the context.
pub fn failed(run: &str, at: u64, call: u64, bytes: u64) -> LlmCall {
    LlmCall {
        session: run.to_owned(),
        at,
        method: "tools/call".to_owned(),
        request_hash: Some(call),
        result_bytes: bytes,
        side: true,
        ..LlmCall::default()
    }
}

/// The definitions of a run's servers as they stand after one of them listed its tools.
pub fn listed(run: &str, at: u64, definitions: ToolDefinitions) -> LlmCall {
    LlmCall {
        session: run.to_owned(),
        at,
        method: "tools/list".to_owned(),
        side: true,
        request: Request {
            tools: Some(definitions),
            ..Request::default()
        },
        ..LlmCall::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waste::{Monitor, digest};
    use serde_json::json;

    const SECOND: u64 = 1_000_000_000;

    fn observed(
        calls: &[(u64, &str, Value, bool)],
        definitions: Option<ToolDefinitions>,
    ) -> Vec<&'static str> {
        let mut monitor = Monitor::new(Config::default());
        let mut found = Vec::new();
        for (at, tool, arguments, fails) in calls {
            let call = McpCall {
                tool,
                arguments,
                at: at * SECOND,
                definitions,
            };
            let call = call.measure("run", monitor.config());
            let mut told = monitor.observe_rules("run", &call, &MCP_RULES);
            monitor.answered("run", tool, 360);
            if *fails {
                let hash = digest(format!("{tool}{arguments}").as_bytes());
                told.extend(monitor.observe_rules("run", &failed("run", at * SECOND, hash, 360), &MCP_RULES));
            }
            found.extend(told.into_iter().map(|f| f.detector));
        }
        found
    }

    #[test]
    fn a_loop_is_told_once() {
        let calls: Vec<_> = (0..20)
            .map(|i| (i, "get_part", json!({"id": "a-1"}), false))
            .collect();
        assert_eq!(observed(&calls, None), ["waste.tool_loop"]);
        // One that is told already hides no other.
        let second = (20..24).map(|i| (i, "put_part", json!({"id": "b-2"}), false));
        let both: Vec<_> = calls.into_iter().chain(second).collect();
        assert_eq!(observed(&both, None), ["waste.tool_loop"; 2]);
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
