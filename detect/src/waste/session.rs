//! The last calls of one session, as far as rules look back.

use std::collections::VecDeque;
use std::sync::Arc;

use super::call::{Arguments, LlmCall, ToolCall};

/// Calls that are kept of a session.
pub const MAX_RECORDS: usize = 200;
/// Bytes of arguments' pieces that are kept of a session; the oldest calls go first.
pub const MAX_ARGUMENT_BYTES: usize = 16 << 20;

/// What is kept of a call once the rules have seen it.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it was made, in nanoseconds.
    pub at: u64,
    /// Whole prompt.
    pub prompt_tokens: u64,
    /// Answer.
    pub completion_tokens: u64,
    /// Bytes that the tools' results put into the context, as far as they came; for calls seen over MCP.
    pub result_bytes: u64,
    /// Its answer went to the person.
    pub user_facing: bool,
    /// No turn of the conversation.
    pub side: bool,
    /// Digest of the request.
    pub request_hash: Option<u64>,
    /// Digest of an embedding's input.
    pub embedding: Option<u64>,
    /// A Cohere rerank.
    pub rerank: bool,
    /// Digests of text and voice of a synthesis at ElevenLabs.
    pub speech: Option<(u64, u64)>,
    /// Tools called.
    pub tool_calls: Vec<ToolCall>,
    /// Digests of images sent.
    pub images: Vec<u64>,
}

/// The last calls of a session, oldest first.
#[derive(Debug, Default)]
pub struct Session {
    records: VecDeque<Record>,
    argument_bytes: usize,
    /// Since when calls have followed each other without a pause, where pauses are all that is known of the person.
    pub(super) busy_since: Option<u64>,
}

impl Session {
    /// Takes in a call.
    pub fn push(&mut self, call: &LlmCall) {
        if let Some(pause) = call.unheard_pause.filter(|_| !call.side) {
            let last = self.records.iter().rev().find(|record| !record.side);
            let goes_on = last.is_some_and(|last| call.at.saturating_sub(last.at) <= pause);
            self.busy_since = self.busy_since.filter(|_| goes_on).or(Some(call.at));
        }
        let mut record = Record {
            at: call.at,
            prompt_tokens: call.usage.prompt_tokens,
            completion_tokens: call.usage.completion_tokens,
            result_bytes: call.result_bytes,
            user_facing: call.user_facing,
            side: call.side,
            request_hash: call.request_hash,
            embedding: super::embedding_waste::input(call),
            rerank: super::rerank_thrash::is_rerank(call),
            speech: super::voice_switching_loop::speech(call),
            tool_calls: call
                .tool_calls
                .iter()
                .take(super::call::MAX_TOOL_CALLS)
                .cloned()
                .collect(),
            images: call.request.images.clone(),
        };
        for tool_call in &mut record.tool_calls {
            match self.known(&tool_call.arguments) {
                Some(known) => tool_call.arguments = known,
                None => self.argument_bytes += tool_call.arguments.cost(),
            }
        }
        self.records.push_back(record);
        while self.records.len() > MAX_RECORDS
            || (self.argument_bytes > MAX_ARGUMENT_BYTES && self.records.len() > 1)
        {
            self.drop_oldest();
        }
    }

    /// The first call of `tool` that has no result yet put `bytes` into the context.
    pub fn answered(&mut self, tool: &str, bytes: u64) {
        let open = |record: &&mut Record| {
            record.result_bytes == 0 && record.tool_calls.iter().any(|call| &*call.name == tool)
        };
        if let Some(record) = self.records.iter_mut().find(open) {
            // A result without text is a result all the same.
            record.result_bytes = bytes.max(1);
        }
    }

    /// The same arguments from an earlier call: a loop holds them once.
    fn known(&self, arguments: &Arguments) -> Option<Arc<Arguments>> {
        let mut earlier = self.records.iter().rev().flat_map(|record| &record.tool_calls);
        earlier
            .find(|call| *call.arguments == *arguments)
            .map(|call| Arc::clone(&call.arguments))
    }

    fn drop_oldest(&mut self) {
        for call in self
            .records
            .pop_front()
            .into_iter()
            .flat_map(|record| record.tool_calls)
        {
            if let Some(arguments) = Arc::into_inner(call.arguments) {
                self.argument_bytes = self.argument_bytes.saturating_sub(arguments.cost());
            }
        }
    }

    /// All calls kept, oldest first.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Record> + ExactSizeIterator {
        self.records.iter()
    }

    /// The calls at most `seconds` before the last one, the edge included, oldest first. Calls stamped later than the
    /// last one count: sources deliver late and out of order.
    pub fn window(&self, seconds: f64) -> impl DoubleEndedIterator<Item = &Record> {
        let now = self.records.back().map_or(0, |last| last.at);
        self.records
            .iter()
            .filter(move |record| elapsed(now, record.at) <= seconds)
    }

    /// Bytes held, as an estimate from above.
    pub fn cost(&self) -> usize {
        let lists = |record: &Record| {
            record.tool_calls.len() * (size_of::<ToolCall>() + 64) + size_of_val(record.images.as_slice())
        };
        size_of::<Self>()
            + self.argument_bytes
            + self
                .records
                .iter()
                .map(|record| size_of::<Record>() + lists(record))
                .sum::<usize>()
    }
}

/// Seconds from `earlier` to `later`; negative where they stand the other way round.
pub(super) fn elapsed(later: u64, earlier: u64) -> f64 {
    const SECOND: f64 = 1e9;
    #[expect(
        clippy::cast_precision_loss,
        reason = "below 2^53 ns (104 days) exact; windows are minutes"
    )]
    let nanos = later.abs_diff(earlier) as f64;
    if later >= earlier {
        nanos / SECOND
    } else {
        -nanos / SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waste::Config;
    use serde_json::json;

    #[test]
    fn memory_is_bounded_and_given_back() {
        let config = Config::default();
        let mut session = Session::default();
        for index in 0..1_000_u64 {
            // Different text of 100 KB in every call: the worst case.
            let mut text = String::new();
            for i in 0..6_000_u64 {
                let mixed = (i * 2_654_435_761 + index * 97_003).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                text.push_str(&mixed.to_string());
            }
            let tool_calls = vec![ToolCall::measure("f", &json!({ "q": text }), &config)];
            session.push(&LlmCall {
                at: index,
                tool_calls,
                ..LlmCall::default()
            });
            assert!(
                session.cost() <= MAX_ARGUMENT_BYTES + (1 << 20),
                "{}",
                session.cost()
            );
            if index > 60 {
                break;
            }
        }
        for index in 0..MAX_RECORDS as u64 {
            session.push(&LlmCall {
                at: index,
                ..LlmCall::default()
            });
        }
        assert_eq!(session.argument_bytes, 0);
    }

    #[test]
    fn the_window_holds_its_edge_and_what_came_late() {
        let mut session = Session::default();
        for at in [0_u64, 1, 5_000_000_000, 65_000_000_000, 60_000_000_001] {
            session.push(&LlmCall {
                at,
                ..LlmCall::default()
            });
        }
        let ats: Vec<u64> = session.window(60.0).map(|record| record.at).collect();
        assert_eq!(ats, [1, 5_000_000_000, 65_000_000_000, 60_000_000_001]);
    }
}
