//! What the rules need of a request: counts, digests and keywords, measured in one walk; the text is dropped.

use serde_json::Value;

use super::call::digest;
use super::config::Config;
use super::keywords::{classification_words, correction};
use super::similarity::Pieces;
use super::spelling::{measure, spell};

/// Turns of a conversation that are kept.
pub const MAX_TURNS: usize = 64;
/// Images of one request that are kept.
const MAX_IMAGES: usize = 64;
/// Characters of one answer that are compared.
const MAX_ANSWER_BYTES: usize = 65_536;

/// What is known of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Digest of the input of an embedding.
    pub embedding_input: Option<u64>,
    /// Classification words in its texts.
    pub classification: Vec<&'static str>,
    /// Sent through a gateway, whose model names carry a vendor in front.
    pub gateway: bool,
    /// Digests of the images sent along.
    pub images: Vec<u64>,
    /// Images sent with high detail, or with none said (which is high).
    pub high_detail_images: usize,
    /// Its tool definitions; none where it has none.
    pub tools: Option<ToolDefinitions>,
    /// The last turns of the conversation.
    pub turns: Vec<Turn>,
}

/// Tool definitions of one request, or of the servers attached to an agent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ToolDefinitions {
    /// How many.
    pub count: usize,
    /// Bytes of their JSON.
    pub bytes: usize,
    /// Bytes of the largest.
    pub largest: usize,
}

impl ToolDefinitions {
    /// These and others.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            bytes: self.bytes.saturating_add(other.bytes),
            largest: self.largest.max(other.largest),
        }
    }

    /// Counts definitions.
    pub fn of(tools: &[Value]) -> Self {
        let mut sum = Self {
            count: tools.len(),
            bytes: 0,
            largest: 0,
        };
        for tool in tools {
            let bytes = measure(tool);
            sum.bytes = sum.bytes.saturating_add(bytes);
            sum.largest = sum.largest.max(bytes);
        }
        sum
    }
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// The person's.
    User {
        /// Its length in characters, white space around it left out.
        characters: usize,
        /// Whether it holds a word that corrects.
        corrects: bool,
    },
    /// Anything else (system, tools, an empty text): takes a place in the window, and nothing more.
    Other,
    /// The model's.
    Agent {
        /// Its length in characters, white space around it left out.
        characters: usize,
        /// Its 3-grams.
        pieces: Pieces,
    },
}

impl Request {
    /// Measures a request in the shape that providers' libraries send: `messages`, `contents`, `input`, `tools`,
    /// `toolConfig.tools`, `base_url`. What has another shape counts for nothing.
    pub fn measure(request: &Value, config: &Config) -> Self {
        let mut out = Self {
            embedding_input: request
                .get("input")
                .filter(|input| !input.is_null())
                .map(|input| digest(spell(input, usize::MAX).as_bytes())),
            gateway: request
                .get("base_url")
                .and_then(Value::as_str)
                .is_some_and(is_gateway),
            tools: tools(request),
            ..Self::default()
        };
        let messages = request
            .get("messages")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let max_image = config.vision_re_upload.max_image_bytes;
        let contents_of = || messages.iter().map(|message| message.get("content"));
        // A phrase may begin in one block and end in the next.
        let said: Vec<&str> = contents_of().flat_map(texts).collect();
        out.classification = classification_words(&said.join(" "));
        for block in contents_of().filter_map(|content| content?.as_array()).flatten() {
            out.block(block, max_image);
        }
        for entry in contents(request) {
            let parts = entry.get("parts").and_then(Value::as_array).into_iter().flatten();
            for part in parts.chain(std::iter::once(entry)) {
                out.image(inline(part), max_image);
            }
        }
        out.turns = turns(messages);
        out
    }

    fn block(&mut self, block: &Value, max_image: usize) {
        match block.get("type").and_then(Value::as_str) {
            Some("image") => {
                let data = block.get("source").and_then(|source| source.get("data"));
                self.image(
                    data.and_then(Value::as_str).filter(|data| !data.is_empty()),
                    max_image,
                );
            }
            Some("image_url") => {
                let Some(image) = block.get("image_url").filter(|image| image.is_object()) else {
                    return;
                };
                let high = match image.get("detail") {
                    None | Some(Value::Null) => true,
                    Some(Value::String(detail)) => matches!(detail.as_str(), "high" | "auto" | ""),
                    Some(_) => false,
                };
                self.high_detail_images += usize::from(high);
                let url = image.get("url").and_then(Value::as_str).unwrap_or_default();
                let data = url
                    .strip_prefix("data:")
                    .and_then(|rest| rest.split_once(";base64,"))
                    .map(|(_, data)| data);
                self.image(data, max_image);
            }
            _ => {}
        }
        self.image(inline(block), max_image);
    }

    fn image(&mut self, data: Option<&str>, max: usize) {
        if let Some(data) = data
            && self.images.len() < MAX_IMAGES
        {
            let bytes = data.as_bytes();
            let image = digest(bytes.get(..max).unwrap_or(bytes));
            if !self.images.contains(&image) {
                self.images.push(image);
            }
        }
    }
}

/// Hosts that take model names with a vendor in front.
fn is_gateway(base_url: &str) -> bool {
    const HOSTS: [&str; 10] = [
        "openrouter.ai",
        "api.portkey.ai",
        "api.helicone.ai",
        "oai.helicone.ai",
        "openai.helicone.ai",
        "api.together.xyz",
        "api.groq.com",
        "api.fireworks.ai",
        "api.deepinfra.com",
        "api.anyscale.com",
    ];
    let lower = base_url.to_ascii_lowercase();
    HOSTS.iter().any(|host| lower.contains(host))
}

/// The list under `tools`, else the one where Bedrock's Converse has it.
fn tools(request: &Value) -> Option<ToolDefinitions> {
    let nested = || request.get("toolConfig")?.get("tools")?.as_array();
    let listed = request.get("tools").and_then(Value::as_array).or_else(nested);
    listed.map(|tools| ToolDefinitions::of(tools))
}

/// Base64 of an image as Gemini's requests carry it.
fn inline(part: &Value) -> Option<&str> {
    ["inline_data", "inlineData"]
        .iter()
        .find_map(|name| part.get(*name)?.get("data"))
        .and_then(Value::as_str)
        .filter(|data| !data.is_empty())
}

fn contents(request: &Value) -> impl Iterator<Item = &Value> {
    let contents = request.get("contents");
    let list = contents.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    list.iter()
        .chain(contents.filter(|contents| contents.is_object()))
}

/// A message's texts: its content where that is a string, else the text of its blocks.
fn texts(content: Option<&Value>) -> impl Iterator<Item = &str> {
    let whole = content.and_then(Value::as_str);
    let blocks = content.and_then(Value::as_array).into_iter().flatten();
    whole
        .into_iter()
        .chain(blocks.filter_map(|block| block.get("text").and_then(Value::as_str)))
}

fn turns(messages: &[Value]) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for message in messages.iter().rev() {
        if turns.len() == MAX_TURNS {
            break;
        }
        let text = texts(message.get("content"))
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        let characters = text.trim().chars().count();
        let said = !text.is_empty();
        turns.push(match message.get("role").and_then(Value::as_str) {
            Some("user") if said => Turn::User {
                characters,
                corrects: correction(&text),
            },
            Some("assistant") if said => Turn::Agent {
                characters,
                pieces: Pieces::ngrams(crate::finding::cut(&text, MAX_ANSWER_BYTES), 3),
            },
            _ => Turn::Other,
        });
    }
    turns.reverse();
    turns
}
