//! What comes back: does a text give orders to the model, what does it cost, is the interaction healthy.

use std::fmt;
use std::sync::Arc;

use kams_detect::behaviour::{self, Call};
use kams_detect::cost;
use kams_detect::integrity;
use kams_detect::redact::betrays;
use kams_mcp::event::{Asked, Outcome, Response, ResponseKind, ToolResult};
use kams_mcp::visible::{self, Text};
use kams_mcp::{Event, Json, Method};

use super::{Case, Judge, Owner, scope};
use crate::engine::sink::Sink;

/// Findings of one detector on one message; what is beyond says nothing new.
const MOST: usize = 8;

/// How a call was answered.
struct Answer {
    /// Digest of what the model sees.
    digest: u64,
    failed: bool,
    /// From the call to here, in nanoseconds.
    duration: u64,
    /// Bytes that enter the model's context.
    bytes: u64,
}

impl Judge {
    pub(super) fn answer(
        &mut self,
        case: &Case<'_>,
        event: &Event<'_>,
        response: &Response<'_>,
        sink: &mut dyn Sink,
    ) {
        if let Some(result) = event.tool_result() {
            self.tool_result(case, &result, sink);
            return;
        }
        let about = &response.asked;
        match (&response.kind, &response.result) {
            (ResponseKind::Prompt | ResponseKind::Resource, Some(result)) => {
                // A query may be signed; what stands before it says which resource it is.
                let subject = about.subject.as_deref().and_then(|s| s.split(['?', '#']).next());
                self.texts(case, result, subject, sink);
            }
            _ if about.method == Method::ToolsCall => {
                if let (Outcome::RpcError(_), Some(error)) = (response.outcome, &response.error) {
                    // Agents show the message of an error to the model (and some its data).
                    let mut text = error.message.to_string();
                    if let Some(data) = &error.data {
                        text.push('\n');
                        text.push_str(data.get());
                    }
                    self.text(case, &text, "$.error.message", about.subject.as_deref(), sink);
                    let answer = Answer {
                        digest: behaviour::digest(text.as_bytes()),
                        failed: true,
                        duration: response.latency,
                        bytes: text.len() as u64,
                    };
                    self.behaved(case, about, &answer, sink);
                } else if response.outcome == Outcome::InputRequired
                    && let Some(session) = self.session(case)
                {
                    // Not completed: the call goes on under another id.
                    session.calls.take(&about.id);
                }
            }
            _ => {}
        }
    }

    pub(super) fn late_result(&mut self, case: &Case<'_>, event: &Event<'_>, sink: &mut dyn Sink) {
        if let Some(result) = event.tool_result() {
            self.tool_result(case, &result, sink);
        }
    }

    fn tool_result(&mut self, case: &Case<'_>, result: &ToolResult<'_>, sink: &mut dyn Sink) {
        let tool = result.call.and_then(|call| call.subject.as_deref());
        let seen = self.texts(case, &result.result, tool, sink);
        let bytes = cost::context_bytes(result.result.get()).text;
        let owner = Owner {
            uid: case.party.uid,
            server: Arc::clone(&case.party.server),
        };
        let point = self.cost_of(&owner, case, bytes);
        sink.cost(case.party.server_id, &point);
        if let Some(finding) = cost::spike(tool.unwrap_or_default(), &point, bytes) {
            self.report(case, &finding, sink);
        }
        if let Some(call) = result.call {
            let answer = Answer {
                digest: seen,
                failed: result.outcome == Outcome::ToolError,
                duration: result.latency.unwrap_or_default(),
                bytes,
            };
            self.behaved(case, call, &answer, sink);
        }
    }

    /// Scores each text that the model will read; gives a digest of all of them.
    fn texts(&mut self, case: &Case<'_>, result: &Json<'_>, tool: Option<&str>, sink: &mut dyn Sink) -> u64 {
        let mut findings = Vec::new();
        let mut digest = 0_u64;
        let thresholds = self.thresholds;
        let weight = visible::texts(result, &mut |text: Text<'_, '_>| {
            digest = digest.rotate_left(7) ^ behaviour::digest(text.text.as_bytes());
            if findings.len() < MOST
                && let Some(finding) = integrity::result_text(&text.text, tool, &Shown(text.path), thresholds)
            {
                findings.push(finding);
            }
        });
        for finding in &findings {
            self.report(case, finding, sink);
        }
        // Two pictures are not the same answer because they come with the same words.
        digest ^ weight.image_bytes ^ weight.audio_bytes.rotate_left(16) ^ weight.blob_bytes.rotate_left(32)
    }

    fn text(&mut self, case: &Case<'_>, text: &str, path: &str, tool: Option<&str>, sink: &mut dyn Sink) {
        if let Some(finding) = integrity::result_text(text, tool, &path, self.thresholds) {
            self.report(case, &finding, sink);
        }
    }

    fn behaved(&mut self, case: &Case<'_>, asked: &Asked, answer: &Answer, sink: &mut dyn Sink) {
        let Some(session) = self.session(case) else { return };
        let Some(open) = session.calls.take(&asked.id) else {
            return;
        };
        let scope = scope(session);
        let call = Call {
            at: open.at,
            tool: asked.subject.as_deref().unwrap_or_default(),
            arguments: open.arguments,
            result: answer.digest,
            failed: answer.failed,
            duration: answer.duration,
        };
        for finding in self.monitor.observe(scope, &call) {
            self.report(case, &finding, sink);
        }
        self.answered(case, &call, answer.bytes, sink);
    }
}

/// A place as it may be shown; written out only where there is a finding.
struct Shown<'p>(visible::Path<'p>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.masked(&betrays))
    }
}
