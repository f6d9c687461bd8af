//! Calls and their ends, as the gate is told of them.

mod idempotency;

use std::sync::Arc;

use kams_detect::redact::shown;
use kams_mcp::event::{EventKind, Outcome, ToolCall};
use kams_mcp::{Direction, Event, Method, RequestId};
use kams_policy::{Baseline, Completion};
use kams_store::BaselineState;

use super::{Case, Judge, Owner, now};
use crate::engine::gate::Outgoing;
use crate::engine::sink::Sink;

impl Judge {
    /// Asks policy about the server's start, once for each name that it turns out to have. One that is refused is asked
    /// about again whenever a session is opened with it: the refusal may have been lifted.
    pub(super) fn started(&mut self, case: &Case<'_>, event: &Event<'_>, sink: &mut dyn Sink) {
        let server = &case.party.server;
        let Some(session) = self.session(case) else { return };
        let opens = matches!(&event.kind, EventKind::Request(request)
            if matches!(request.method.name(), "initialize" | "server/discover"));
        let again = opens && session.start_refused;
        if again || session.started_as.as_ref() != Some(server) {
            session.started_as = Some(Arc::clone(server));
            let decision = self.gate.started(case.party, now(case), sink);
            if let Some(session) = self.session(case) {
                session.start_refused = !decision.passes();
            }
            sink.started(&decision);
        }
    }

    /// An agent proposes a call.
    pub(super) fn propose(
        &mut self,
        case: &Case<'_>,
        event: &Event<'_>,
        id: Option<&RequestId>,
        call: &ToolCall<'_>,
        sink: &mut dyn Sink,
    ) {
        // Records are made of it: they hold no secret, also where an agent calls one a tool.
        let tool = shown(&call.name);
        let arguments = call.arguments.as_ref().map_or("{}", |json| json.get());
        // It tells facts apart, and only declared tools make facts.
        let facts = &self.gate.policy().runs().facts;
        let key = facts
            .iter()
            .any(|fact| fact.tool.matches(&tool))
            .then(|| idempotency::key(meta(event), arguments))
            .flatten();
        let outgoing = Outgoing {
            id,
            id_text: case.request_id.as_deref().unwrap_or_default(),
            tool: &tool,
            arguments,
            baseline: self.baseline_of(case, &call.name),
            idempotency_key: key.as_deref(),
        };
        for (finding, decision) in self.gate.propose(case.party, &outgoing, now(case), sink) {
            self.report_with(case, &finding, Some(decision), sink);
        }
    }

    /// What ends a call: its result, an error, a cancellation, a question back to the client.
    pub(super) fn follow(&mut self, case: &Case<'_>, event: &Event<'_>, sink: &mut dyn Sink) {
        let (id, how) = if let Some(result) = event.tool_result() {
            let how = match result.outcome {
                Outcome::ToolError | Outcome::RpcError(_) => Completion::Failed,
                _ => Completion::Succeeded,
            };
            (result.call.map(|call| call.id.clone()), how)
        } else {
            match &event.kind {
                EventKind::Response(response)
                    if event.direction == Direction::ToClient
                        && response.asked.method == Method::ToolsCall =>
                {
                    let how = match response.outcome {
                        // With a question back the call goes on under another id, and is proposed again.
                        Outcome::RpcError(_) | Outcome::InputRequired => Completion::Failed,
                        // A handle of a task: its result comes later.
                        _ => return,
                    };
                    (Some(response.asked.id.clone()), how)
                }
                // It may have happened all the same.
                EventKind::Cancelled(cancelled) if event.direction == Direction::ToServer => {
                    (cancelled.id.clone(), Completion::Unknown)
                }
                _ => return,
            }
        };
        let Some(id) = id else { return };
        for (finding, decision) in self.gate.ended(case.party, &id, how, now(case), sink) {
            self.report_with(case, &finding, Some(decision), sink);
        }
    }

    fn baseline_of(&self, case: &Case<'_>, tool: &str) -> Option<Baseline> {
        let owner = Owner {
            uid: case.party.uid,
            server: Arc::clone(&case.party.server),
        };
        let kept = self.baselines.get(&owner)?.items.get(&format!("tool:{tool}"))?;
        Some(match kept.row.state {
            BaselineState::Pinned => Baseline::Pinned,
            BaselineState::Provisional => Baseline::Provisional,
        })
    }
}

/// `params._meta` of a request.
fn meta<'e>(event: &'e Event<'_>) -> &'e str {
    match &event.kind {
        EventKind::Request(request) => request.meta.as_ref().map_or("", |meta| meta.json.get()),
        _ => "",
    }
}

#[cfg(test)]
mod tests;
