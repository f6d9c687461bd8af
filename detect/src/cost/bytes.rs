//! How many bytes of a result enter the model's context.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::behaviour::canonical_digest;

/// Bytes of one result, by where they go.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ContextBytes {
    /// UTF-8 bytes of text: text blocks, embedded text resources, structured content that no text repeats.
    pub text: u64,
    /// Encoded bytes of images, audio and other blobs. Not text, and not guessed as text.
    pub media: u64,
}

/// The members of a result that a model is shown: tools (`content`, `structuredContent`), resources (`contents`), prompts
/// (`messages`).
#[derive(Deserialize)]
struct Shown<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    contents: Option<&'a RawValue>,
    #[serde(borrow, default)]
    messages: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "structuredContent")]
    structured: Option<&'a RawValue>,
}

/// A content block, a resource or a prompt message.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    blob: Option<&'a RawValue>,
    #[serde(borrow, default)]
    resource: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

/// Levels of `resource` and `content` inside a block.
const MAX_NESTING: u8 = 3;

/// Bytes of a JSON-RPC `result` (raw JSON) that enter the context. What cannot be read counts nothing.
pub fn context_bytes(result: &str) -> ContextBytes {
    let mut bytes = ContextBytes::default();
    let Ok(shown) = serde_json::from_str::<Shown<'_>>(result) else {
        return bytes;
    };
    let structured = shown
        .structured
        .map(RawValue::get)
        .filter(|raw| raw.starts_with(['{', '[']));
    let digest = structured.map(|raw| canonical_digest(raw.as_bytes()));
    let mut repeated = false;
    for part in [shown.content, shown.contents, shown.messages]
        .into_iter()
        .flatten()
    {
        count(part.get(), 0, &mut bytes, &mut |text| {
            repeated |= digest.is_some_and(|d| {
                text.trim_start().starts_with(['{', '[']) && canonical_digest(text.as_bytes()) == d
            });
        });
    }
    if let Some(raw) = structured
        && !repeated
    {
        bytes.text += len(raw);
    }
    bytes
}

/// Adds up one block or a list of them.
fn count(raw: &str, level: u8, bytes: &mut ContextBytes, seen: &mut dyn FnMut(&str)) {
    if level > MAX_NESTING {
        return;
    }
    if raw.starts_with('[') {
        for item in serde_json::from_str::<Vec<&RawValue>>(raw).unwrap_or_default() {
            count(item.get(), level + 1, bytes, seen);
        }
        return;
    }
    // A prompt message may be plain text in old servers.
    if raw.starts_with('"') {
        if let Ok(text) = serde_json::from_str::<Cow<'_, str>>(raw) {
            bytes.text += len(&text);
        }
        return;
    }
    let Ok(block) = serde_json::from_str::<Block<'_>>(raw) else {
        return;
    };
    if let Some(text) = &block.text {
        bytes.text += len(text);
        seen(text);
    }
    for blob in [block.data, block.blob].into_iter().flatten() {
        bytes.media += len(blob.get()).saturating_sub(2);
    }
    for inner in [block.resource, block.content].into_iter().flatten() {
        count(inner.get(), level + 1, bytes, seen);
    }
}

fn len(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_counts_and_media_apart() {
        let result = r#"{"content":[{"type":"text","text":"h\u00e9"},{"type":"image","data":"AAAA","mimeType":"image/png"},
            {"type":"resource","resource":{"uri":"a:b","text":"xyz"}}],"isError":false}"#;
        assert_eq!(context_bytes(result), ContextBytes { text: 6, media: 4 });
    }

    #[test]
    fn structured_content_counts_where_no_text_repeats_it() {
        let both = r#"{"content":[{"type":"text","text":"{\"b\":2.0, \"a\":1}"}],"structuredContent":{"a":1,"b":2}}"#;
        assert_eq!(context_bytes(both).text, 16);
        let only = r#"{"content":[],"structuredContent":{"a":1,"b":2}}"#;
        assert_eq!(context_bytes(only).text, 13);
        let other = r#"{"content":[{"type":"text","text":"two rows"}],"structuredContent":{"a":1,"b":2}}"#;
        assert_eq!(context_bytes(other).text, 21);
    }

    #[test]
    fn resources_and_prompts() {
        assert_eq!(
            context_bytes(r#"{"contents":[{"uri":"a:b","text":"abc"},{"uri":"c:d","blob":"AAAA"}]}"#),
            ContextBytes { text: 3, media: 4 }
        );
        assert_eq!(
            context_bytes(r#"{"messages":[{"role":"user","content":{"type":"text","text":"abcd"}}]}"#).text,
            4
        );
        assert_eq!(context_bytes("not json"), ContextBytes::default());
        assert_eq!(context_bytes(r#"{"content":7}"#), ContextBytes::default());
    }
}
