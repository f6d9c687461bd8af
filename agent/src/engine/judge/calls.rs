//! What leaves: arguments of calls, and the calls that wait for their results.

use std::collections::HashMap;

use kams_detect::behaviour::canonical_digest;
use kams_detect::egress;
use kams_detect::waste::call_key;
use kams_mcp::event::{Request, RequestKind, ToolCall};
use kams_mcp::{Meta, RequestId};

use super::{Case, Judge};
use crate::engine::sink::Sink;
use crate::engine::waste::joins::Ids;

/// Calls of one session that may be open at once; beyond it the behaviour of the others is not followed.
const OPEN: usize = 4_096;

/// Calls whose results have not come.
#[derive(Debug, Default)]
pub(super) struct OpenCalls(HashMap<RequestId, OpenCall>);

/// What is kept of a call: a digest, no argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenCall {
    pub(super) arguments: u64,
    pub(super) at: u64,
}

impl OpenCalls {
    pub(super) fn take(&mut self, id: &RequestId) -> Option<OpenCall> {
        self.0.remove(id)
    }
}

/// The ids by which an agent's telemetry names a call and its session.
fn ids(meta: &Meta<'_>) -> Ids {
    let ids = &meta.correlation;
    let call = ids.tool_use_id.as_ref().or(ids.call_id.as_ref());
    Ids {
        call: call.map(|id| call_key(id)),
        session: ids.session_id.clone().or_else(|| ids.thread_id.clone()),
    }
}

impl Judge {
    pub(super) fn call(
        &mut self,
        case: &Case<'_>,
        id: Option<&RequestId>,
        call: &ToolCall<'_>,
        meta: Option<&Meta<'_>>,
        sink: &mut dyn Sink,
    ) {
        let arguments = call.arguments.as_ref().map_or("{}", |json| json.get());
        self.outgoing(case, arguments.as_bytes(), Some(&call.name), sink);
        // The continuation of an `input_required` call is not another call of the agent's.
        let open = OpenCall {
            arguments: canonical_digest(arguments.as_bytes()),
            at: case.mono,
        };
        if let (Some(id), Some(session)) = (id, self.session(case))
            && session.calls.0.len() < OPEN
        {
            session.calls.0.insert(id.clone(), open);
        }
        if call.input_responses.is_none() {
            self.called(
                case,
                &call.name,
                arguments,
                meta.map(ids).unwrap_or_default(),
                sink,
            );
        }
    }

    pub(super) fn request(&mut self, case: &Case<'_>, request: &Request<'_>, sink: &mut dyn Sink) {
        if let RequestKind::GetPrompt {
            name,
            arguments: Some(arguments),
        } = &request.kind
        {
            self.outgoing(case, arguments.get().as_bytes(), name.as_deref(), sink);
        }
    }

    /// Scans what goes from agent to server.
    pub(super) fn outgoing(&mut self, case: &Case<'_>, json: &[u8], tool: Option<&str>, sink: &mut dyn Sink) {
        for finding in egress::scan_arguments(json, tool, &self.salt) {
            self.report(case, &finding, sink);
        }
    }
}
