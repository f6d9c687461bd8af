//! By how much a session's input grew from turn to turn: the ground truth for what tool results cost.
//!
//! A turn's prompt holds the one before, the answer to it, and what came in between: the results of tools. So the growth
//! is the prompt less the prompt and the answer before. A prompt that shrank was compacted, and says nothing.

use kams_detect::waste::LlmCall;
use kams_export::view::Time;

/// The last turn of a session.
#[derive(Debug, Default)]
pub(super) struct Turns {
    last: Option<u64>,
    /// When the request was sent whose answer is not told yet (Codex tells the two apart).
    sent: Option<u64>,
}

/// What a turn tells about the results that entered it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Turn {
    /// Growth in tokens; none where the turn says nothing.
    pub(super) grown: Option<u64>,
    /// Results that came before this moment are in it.
    pub(super) before: Time,
}

impl Turns {
    /// Takes in a step of the session; gives the turn where it is one.
    pub(super) fn take(&mut self, call: &LlmCall) -> Option<Turn> {
        if call.side {
            self.sent = call.sent.or(self.sent);
            return None;
        }
        if call.usage.prompt_tokens == 0 {
            return None;
        }
        let sent = call.sent.or(self.sent.take()).unwrap_or(call.at);
        let whole = call
            .usage
            .prompt_tokens
            .saturating_add(call.usage.completion_tokens);
        let grown = self
            .last
            .replace(whole)
            .and_then(|before| call.usage.prompt_tokens.checked_sub(before))
            .filter(|grown| *grown > 0);
        Some(Turn {
            grown,
            before: Time::from_unix_nanos(i64::try_from(sent).unwrap_or(i64::MAX)),
        })
    }
}

#[cfg(test)]
mod tests {
    use kams_detect::waste::Usage;

    use super::*;

    fn turn(at: u64, sent: Option<u64>, prompt_tokens: u64, completion_tokens: u64) -> LlmCall {
        LlmCall {
            at,
            sent,
            usage: Usage {
                prompt_tokens,
                completion_tokens,
                ..Usage::default()
            },
            ..LlmCall::default()
        }
    }

    fn at(nanos: i64) -> Time {
        Time::from_unix_nanos(nanos)
    }

    #[test]
    fn growth_is_what_neither_prompt_nor_answer_explain() {
        let mut turns = Turns::default();
        let mut told = |call: &LlmCall| turns.take(call).map(|turn| (turn.grown, turn.before));
        assert_eq!(told(&turn(10, Some(5), 1_000, 50)), Some((None, at(5))));
        assert_eq!(told(&turn(30, Some(20), 1_350, 20)), Some((Some(300), at(20))));
        assert_eq!(told(&turn(50, None, 900, 10)), Some((None, at(50))), "compacted");
        assert_eq!(told(&turn(60, None, 1_000, 10)), Some((Some(90), at(60))));
        let mark = LlmCall {
            side: true,
            sent: Some(65),
            ..LlmCall::default()
        };
        assert_eq!(told(&mark), None);
        assert_eq!(told(&turn(70, None, 1_200, 10)), Some((Some(190), at(65))));
    }
}
