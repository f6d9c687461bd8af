//! What a firing is worth in tokens: ground truth where the source counted them, an estimate where only bytes are known.
//!
//! Said in two figures of the finding, `tokens_at_stake` and `tokens_estimated` (1 or 0); in none where the waste is not
//! billed in tokens (audio, voices) or nothing was counted.

use super::call::LlmCall;
use super::config::Config;
use super::rule::{Firing, Rule};
use super::session::{Record, Session};
use super::similarity::as_f64;
use crate::cost::BYTES_PER_TOKEN;

pub(super) fn add(firing: &mut Firing, session: &Session, call: &LlmCall, config: &Config) {
    let knobs = config;
    let whole = call
        .usage
        .prompt_tokens
        .saturating_add(call.usage.completion_tokens);
    let tool = firing.tool.clone();
    let with_tool = |record: &&Record| {
        record
            .tool_calls
            .iter()
            .any(|call| Some(&*call.name) == tool.as_deref())
    };
    let (tokens, estimated) = match firing.rule {
        // The first call was worth its tokens.
        Rule::ToolLoop => spent(
            session
                .window(knobs.tool_loop.window_seconds)
                .filter(with_tool)
                .skip(1),
        ),
        Rule::RetrievalThrash => spent(
            session
                .window(knobs.retrieval_thrash.window_seconds)
                .filter(with_tool)
                .skip(1),
        ),
        Rule::RetryStorm => spent(
            session
                .window(knobs.retry_storm.window_seconds)
                .filter(|record| record.request_hash == Some(firing.subject))
                .skip(1),
        ),
        Rule::RerankThrash => spent(
            session
                .window(knobs.rerank_thrash.window_seconds)
                .filter(|record| record.rerank && record.request_hash == Some(firing.subject))
                .skip(1),
        ),
        Rule::Zombie => {
            let heard = session.records().rposition(|record| record.user_facing);
            // Beside a call that failed stands a record of the failure.
            let since = session.records().skip(heard.map_or(0, |at| at + 1));
            spent(since.filter(|record| !record.side))
        }
        // What later turns carried beyond the first.
        Rule::ContextBloat => {
            let look = match knobs.context_bloat.lookback_turns {
                0 => usize::MAX,
                turns => turns,
            };
            let mut turns: Vec<u64> = session
                .records()
                .rev()
                .filter(|record| !record.side)
                .take(look)
                .map(|record| record.prompt_tokens)
                .collect();
            let first = turns.pop().unwrap_or_default();
            (
                turns
                    .iter()
                    .map(|turn| turn.saturating_sub(first))
                    .fold(0, u64::saturating_add),
                false,
            )
        }
        Rule::EmbeddingWaste | Rule::ModelMisroute => (whole, false),
        Rule::ToolDefinitionBloat => (
            call.request.tools.map_or(0, |tools| tokens(tools.bytes as u64)),
            true,
        ),
        Rule::VisionCostConcentration => (call.usage.image_tokens.unwrap_or_default(), false),
        // The image's share of the prompt is not told.
        Rule::VisionReUpload | Rule::VisionHighDetailMisroute => match call.usage.image_tokens {
            Some(images) => (images, false),
            None => (call.usage.prompt_tokens, true),
        },
        Rule::RepairLoop => (call.usage.completion_tokens, true),
        Rule::AudioMultichannelDoubling | Rule::VoiceSwitchingLoop => (0, true),
    };
    if tokens > 0 {
        firing.numbers.push((
            "tokens_at_stake",
            as_f64(usize::try_from(tokens).unwrap_or(usize::MAX)),
        ));
        firing
            .numbers
            .push(("tokens_estimated", f64::from(u8::from(estimated))));
    }
}

/// Tokens of these calls as counted; where none was, those of their arguments and results by their bytes.
fn spent<'r, I: Iterator<Item = &'r Record>>(records: I) -> (u64, bool) {
    let (mut counted, mut bytes) = (0_u64, 0_u64);
    for record in records {
        counted = counted
            .saturating_add(record.prompt_tokens)
            .saturating_add(record.completion_tokens);
        let arguments: usize = record
            .tool_calls
            .iter()
            .map(|call| call.arguments.looped.bytes)
            .sum();
        bytes = bytes
            .saturating_add(arguments as u64)
            .saturating_add(record.result_bytes);
    }
    match counted {
        0 => (tokens(bytes), true),
        counted => (counted, false),
    }
}

fn tokens(bytes: u64) -> u64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate; float casts saturate"
    )]
    let tokens = (bytes as f64 / BYTES_PER_TOKEN) as u64;
    tokens
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::corpus::waste::call;
    use crate::finding::{Evidence, Finding};
    use crate::waste::Monitor;

    fn figure(finding: &Finding, name: &str) -> Option<f64> {
        let Evidence::Waste { numbers, .. } = &finding.evidence else {
            return None;
        };
        numbers
            .iter()
            .find(|(figure, _)| *figure == name)
            .map(|(_, value)| *value)
    }

    fn staked(calls: &[serde_json::Value]) -> Vec<(&'static str, Option<f64>, Option<f64>)> {
        let mut monitor = Monitor::new(Config::default());
        let mut told = Vec::new();
        for value in calls {
            let call = call(value, monitor.config());
            for finding in monitor.observe("s", &call) {
                told.push((
                    finding.detector,
                    figure(&finding, "tokens_at_stake"),
                    figure(&finding, "tokens_estimated"),
                ));
            }
        }
        told
    }

    #[test]
    fn counted_tokens_are_the_truth_and_the_first_call_is_free() {
        let turn = |t: u32| {
            json!({"t": t, "prompt_tokens": 1_000, "completion_tokens": 20,
                   "tool_calls": [{"name": "fetch", "arguments": {"id": "a-1"}}]})
        };
        assert_eq!(
            staked(&[turn(0), turn(1), turn(2)]),
            [("waste.tool_loop", Some(2_040.0), Some(0.0))]
        );
    }

    #[test]
    fn what_is_not_billed_in_tokens_has_no_stake() {
        let recording = json!({"provider": "deepgram", "method": "transcribe_file", "prompt_tokens": 0, "completion_tokens": 0,
            "usage_extra": {"dimension_value": 60.0, "model_specific_meta": {"channels": 2, "multichannel": true}}});
        assert_eq!(
            staked(&[recording]),
            [("waste.audio_multichannel_doubling", None, None)]
        );
    }
}
