//! Ground truth of token costs: `POST /v1/usage`.
//!
//! Body: `{"agent_pid": 4711, "input_tokens": 5321, "server": "npm:x"}`. `input_tokens` is by how much the input of the
//! agent's turn grew, as its model provider counted it; `server` (identity or instance number) is left out unless all
//! of it came from there. Answer: `{schema, points: [{server, server_id, tokens}]}`, empty where no result entered the
//! agent's context since the last report. Anyone may report for their own agents, and root and the group for all.

use kams_detect::redact::json_error;
use kams_export::view::SCHEMA;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Command, DaemonBackend, stopped};
use crate::admin::{BackendError, Scope};
use crate::engine::judge::usage::Usage;

/// More tokens than any context holds.
const MOST: u64 = 10_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Report {
    agent_pid: u32,
    input_tokens: u64,
    server: Option<String>,
}

impl DaemonBackend {
    pub(super) fn report_usage(&self, scope: Scope, body: Value) -> Result<Value, BackendError> {
        let invalid = |message: String| BackendError::Invalid {
            message,
            remedy: "send {\"agent_pid\": 4711, \"input_tokens\": 5321}".to_owned(),
        };
        let report: Report = serde_json::from_value(body).map_err(|error| invalid(json_error(&error)))?;
        if report.input_tokens > MOST {
            return Err(invalid(format!("`input_tokens` is above {MOST}")));
        }
        let uid = {
            let tables = self.live.registry.lock();
            let mut own = tables.agents().filter(|agent| scope.admits(agent.uid));
            own.find(|agent| agent.live && agent.pid == report.agent_pid)
                .map(|agent| agent.uid)
        };
        // Another user's agent is as unknown as one that is not there.
        let uid = uid.ok_or_else(|| BackendError::NotFound {
            what: format!("agent: process {}", report.agent_pid),
        })?;
        let usage = Usage {
            uid,
            agent_pid: report.agent_pid,
            input_tokens: report.input_tokens,
            server: report.server,
            before: None,
        };
        let (done, answer) = oneshot::channel();
        // A full queue means that the engine is busy with what matters more.
        self.commands
            .try_send(Command::Usage { usage, done })
            .map_err(|_full| BackendError::Unavailable {
                message: "too many reports at once".to_owned(),
                remedy: "report once a turn".to_owned(),
            })?;
        let points = answer.blocking_recv().map_err(|_stopped| stopped())?;
        let points: Vec<Value> = points
            .into_iter()
            .map(|(id, point)| json!({"server": point.server, "server_id": id, "tokens": point.tokens}))
            .collect();
        Ok(json!({ "schema": SCHEMA, "points": points }))
    }
}
