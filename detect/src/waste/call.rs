//! One LLM call as the rules see it: measured and hashed at the door, no text kept.

use std::sync::Arc;

use serde_json::Value;

use super::config::Config;
use super::request::Request;
use super::similarity::{Metric, Pieces};
use super::spelling::spell;

/// Tool calls of one LLM call that are kept; more are dropped.
pub const MAX_TOOL_CALLS: usize = 64;
/// Arguments with more members are not looked at for paging.
const MAX_FIELDS: usize = 64;

/// One call of a model, from any source (ingest API, telemetry, capture), or another step of its session that a rule
/// needs to know: a tool that ran, a prompt that the person typed, a request that failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LlmCall {
    /// Session id as the source names it; sessions are compared by it.
    pub session: String,
    /// When the call was made, in nanoseconds of any clock; may go back.
    pub at: u64,
    /// Provider, such as `anthropic`, `openai`, `gemini`, `cohere`, `deepgram`, `elevenlabs`.
    pub provider: String,
    /// Model name.
    pub model: String,
    /// Method, such as `messages.create`, `embeddings.create`, `rerank`, `transcribe_file`.
    pub method: String,
    /// Name of the route in the caller's own words, for `model_misroute.allowed_routes`; empty where it has none.
    pub route: String,
    /// Tokens.
    pub usage: Usage,
    /// Digest of (model, messages, tools, limit), where the source has one; of (model, query, documents) for a rerank.
    pub request_hash: Option<u64>,
    /// From request to the end of the answer, in milliseconds, where the source tells.
    pub latency_ms: Option<f64>,
    /// Whether the answer went to the person (a final text), rather than into another tool call.
    pub user_facing: bool,
    /// A side call beside the session's main line (a title, a summary), or no model call at all: no turn of the
    /// conversation.
    pub side: bool,
    /// For sources that never tell what the person sees: a pause between calls that is longer than this, in
    /// nanoseconds, means that the person had a turn.
    pub unheard_pause: Option<u64>,
    /// When the request was sent, where the source tells that and `at` is the end of the answer; nanoseconds.
    pub sent: Option<u64>,
    /// Whose telemetry: the `service.name` it came with; empty from other sources.
    pub service: String,
    /// Process that the source says it is.
    pub pid: Option<u32>,
    /// Digest of the id that the model gave a tool call ([`call_key`]), where the source tells it. Agents send the same id to
    /// the MCP server.
    pub call_key: Option<u64>,
    /// The tools called are those of MCP servers, whose traffic is seen elsewhere too.
    pub over_mcp: bool,
    /// Tools the model asked for in its answer.
    pub tool_calls: Vec<ToolCall>,
    /// What the request held.
    pub request: Request,
    /// What a media provider bills by.
    pub media: Media,
    /// Bytes that its answer put into the context, where no tokens are counted.
    pub result_bytes: u64,
}

/// The digest of a tool call's id, as the agent's telemetry and its MCP requests both name it (Claude Code:
/// `tool_use_id` and `claudecode/toolUseId`; Codex: `call_id` and `callId`).
pub fn call_key(id: &str) -> u64 {
    digest(format!("call\0{id}").as_bytes())
}

/// Tokens of a call. Prompt tokens include what was read from a cache, whatever the provider's own counting.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Whole prompt, cached parts included.
    pub prompt_tokens: u64,
    /// Part of the prompt read from a cache.
    pub cached_tokens: u64,
    /// Answer, reasoning included where the provider bills it so.
    pub completion_tokens: u64,
    /// Image tokens among the prompt's, where the provider tells; none otherwise.
    pub image_tokens: Option<u64>,
}

/// Billing by other things than tokens (`usage_extra` of seed 003).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Media {
    /// Seconds, characters or pixels: the billed dimension's value.
    pub dimension: f64,
    /// Channels of a recording.
    pub channels: u64,
    /// Whether each channel is transcribed.
    pub multichannel: bool,
    /// Digest of the voice of a synthesis.
    pub voice: Option<u64>,
    /// Digest of the spoken text.
    pub text: Option<u64>,
}

/// A tool the model (or an MCP client) called.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Tool name.
    pub name: Arc<str>,
    /// What is known of the arguments.
    pub arguments: Arc<Arguments>,
}

impl ToolCall {
    /// Measures a call's arguments; the text is dropped.
    pub fn measure(name: &str, arguments: &Value, config: &Config) -> Self {
        Self {
            name: name.into(),
            arguments: Arc::new(Arguments::measure(arguments, config)),
        }
    }
}

/// Arguments of a call: their digest, their pieces for comparing, their numbers for paging.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    /// Digest of the spelling (as far as it is compared).
    pub digest: u64,
    /// For `tool_loop`: pieces, and the bytes they were taken from.
    pub looped: Compared,
    /// For `retrieval_thrash`.
    pub retrieved: Compared,
    /// The members by digest of their key, in the keys' order; empty where the arguments are no object or a large one.
    pub fields: Vec<(u64, Field)>,
}

/// A member of arguments, for telling paging from repetition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field {
    /// A number.
    Number(f64),
    /// The digest of anything else.
    Other(u64),
}

/// A text ready for comparing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compared {
    /// Its pieces by the configured metric.
    pub pieces: Pieces,
    /// Bytes that they were taken from.
    pub bytes: usize,
}

impl Compared {
    fn new(spelt: &str, max: usize, metric: Metric, n: usize) -> Self {
        // The spelling is ASCII: every byte is a boundary.
        let text = spelt.get(..max).unwrap_or(spelt);
        let pieces = match metric {
            Metric::TfidfCharngram => Pieces::ngrams(text, n),
            Metric::Jaccard => Pieces::words(text),
        };
        Self {
            pieces,
            bytes: text.len(),
        }
    }
}

impl Arguments {
    /// Measures arguments. Work and memory are bounded by `max_arg_bytes` of the two rules that compare them.
    pub fn measure(arguments: &Value, config: &Config) -> Self {
        let (a, b) = (&config.tool_loop, &config.retrieval_thrash);
        let spelt = spell(arguments, a.max_arg_bytes.max(b.max_arg_bytes));
        let looped = Compared::new(&spelt, a.max_arg_bytes, a.similarity_metric, a.charngram_size);
        let alike = (a.max_arg_bytes, a.similarity_metric, a.charngram_size)
            == (b.max_arg_bytes, b.similarity_metric, b.charngram_size);
        let retrieved = if alike {
            looped.clone()
        } else {
            Compared::new(&spelt, b.max_arg_bytes, b.similarity_metric, b.charngram_size)
        };
        Self {
            digest: digest(spelt.as_bytes()),
            looped,
            retrieved,
            fields: fields(arguments, spelt.len()),
        }
    }

    /// Bytes held.
    pub fn cost(&self) -> usize {
        let shared = self.looped.pieces == self.retrieved.pieces;
        let pieces = self.looped.pieces.cost() + if shared { 0 } else { self.retrieved.pieces.cost() };
        size_of::<Self>() + pieces + size_of_val(self.fields.as_slice())
    }
}

fn fields(arguments: &Value, max: usize) -> Vec<(u64, Field)> {
    let Some(members) = arguments
        .as_object()
        .filter(|members| members.len() <= MAX_FIELDS)
    else {
        return Vec::new();
    };
    let mut fields: Vec<(u64, Field)> = members
        .iter()
        .map(|(key, value)| {
            let field = match value {
                Value::Number(number) => Field::Number(number.as_f64().unwrap_or_default()),
                other => Field::Other(digest(spell(other, max).as_bytes())),
            };
            (digest(key.as_bytes()), field)
        })
        .collect();
    fields.sort_by_key(|(key, _)| *key);
    fields
}

/// 64 bits of SHA-256: equal texts have equal digests, and the text is not to be had back.
pub fn digest(bytes: &[u8]) -> u64 {
    use sha2::{Digest as _, Sha256};
    let whole = Sha256::digest(bytes);
    whole
        .iter()
        .take(8)
        .fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_argument_text_is_held() {
        let call = ToolCall::measure("f", &json!({"key": "tango-bravo-9"}), &Config::default());
        assert!(!format!("{call:?}").contains("tango"));
    }

    #[test]
    fn member_order_is_no_difference_and_numbers_are_seen() {
        let config = Config::default();
        let a: Value = serde_json::from_str(r#"{"page": 2, "q": "x"}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{"q": "x", "page": 2}"#).unwrap();
        assert_eq!(Arguments::measure(&a, &config), Arguments::measure(&b, &config));
        assert!(
            Arguments::measure(&a, &config)
                .fields
                .contains(&(digest(b"page"), Field::Number(2.0)))
        );
    }

    #[test]
    fn large_arguments_are_bounded() {
        let config = Config::default();
        let arguments = Arguments::measure(&json!({ "blob": "ab1".repeat(100_000) }), &config);
        assert_eq!(arguments.looped.bytes, config.tool_loop.max_arg_bytes);
        assert!(arguments.cost() < 600_000);
    }
}
