//! What a model reads of an answer: each text with its place.

use std::borrow::Cow;
use std::fmt;

use crate::json::{Cursor, Json, Token, Tokens, cut, pick, string, unescape};

/// Longest path that is written, in bytes; what is longer ends in an ellipsis.
const MAX_PATH: usize = 512;

/// Bytes of a key as written, escapes and all, that a path looks at: enough for [`MAX_PATH`] of what they stand for.
const MAX_RAW_KEY: usize = MAX_PATH * 6;

/// Deeper places have the path of their ancestor at this depth.
const MAX_SEGMENTS: usize = 256;

/// A text that a model may read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Text<'a, 'p> {
    /// Where it stands, from the result object on, such as `$.content[0].text`.
    pub path: Path<'p>,
    /// What kind of place that is.
    pub origin: Origin,
    /// The text, decoded.
    pub text: Cow<'a, str>,
}

/// A place within a value. Written out only when asked for: most texts are clean and nobody wants their place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Path<'p>(&'p [Segment<'p>]);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Segment<'a> {
    /// A member by its key, escapes and all.
    Key(&'a str),
    /// An element, counted from 0; the largest value before the first one.
    Index(usize),
}

impl Path<'_> {
    /// The path with a star for each key that `hide` wants hidden: keys are content as much as values are.
    pub fn masked(&self, hide: &dyn Fn(&str) -> bool) -> String {
        let mut text = String::from("$");
        for segment in self.0 {
            match segment {
                // Cut first: a key of megabytes must not be read again for each value below it.
                Segment::Key(key) => {
                    let key = unescape(cut(key, MAX_RAW_KEY));
                    if hide(&key) {
                        text.push_str(".*");
                    } else {
                        push_key(&mut text, &key);
                    }
                }
                Segment::Index(index) => text.extend(["[", &index.to_string(), "]"]),
            }
            if text.len() > MAX_PATH {
                text.truncate(cut(&text, MAX_PATH).len());
                text.push('…');
                break;
            }
        }
        text
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked(&|_| false))
    }
}

fn push_key(out: &mut String, key: &str) {
    let plain = !key.is_empty()
        && !key.starts_with(|c: char| c.is_ascii_digit())
        && key
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'));
    if plain {
        out.push('.');
        out.push_str(key);
        return;
    }
    out.push_str("['");
    for c in cut(key, MAX_PATH).chars() {
        if matches!(c, '\'' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push_str("']");
}

/// Kinds of places.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Origin {
    /// A text block.
    Block,
    /// The text of an embedded or read resource.
    Resource,
    /// Name, title, description or address of a resource link.
    Link,
    /// A string within `structuredContent`.
    Structured,
    /// A key within `structuredContent`, or of an unknown block.
    Key,
    /// A string of a block of unknown type.
    OtherBlock,
    /// The message of a JSON-RPC error, or a string of its data.
    Error,
    /// A prompt's own description.
    Description,
}

/// What an answer holds besides text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Weight {
    /// Bytes of text that enter the context: text blocks and resource texts.
    pub text_bytes: u64,
    /// Bytes of `structuredContent` as written.
    pub structured_bytes: u64,
    /// Decoded bytes of images.
    pub image_bytes: u64,
    /// Decoded bytes of audio.
    pub audio_bytes: u64,
    /// Decoded bytes of binary resources.
    pub blob_bytes: u64,
    /// Blocks, contents and messages.
    pub items: u64,
}

/// Calls `sink` with each text of a result: of a tool call, `prompts/get`, `resources/read`, or a sampled message.
/// Which of them it is need not be known: their members have different names. `_meta` is left out.
pub fn texts<'a>(result: &'a Json<'_>, sink: &mut dyn FnMut(Text<'a, '_>)) -> Weight {
    let mut walk = Walk {
        path: Vec::new(),
        sink,
        weight: Weight::default(),
    };
    let mut cursor = Cursor::new(result.get());
    if cursor.enter(b'{') {
        while let Some(key) = cursor.key() {
            walk.member(key, &mut cursor);
        }
    }
    walk.weight
}

/// Calls `sink` with the message of an `error` member and the strings of its data.
pub fn error_texts<'a>(error: &'a Json<'_>, sink: &mut dyn FnMut(Text<'a, '_>)) {
    let mut walk = Walk {
        path: Vec::new(),
        sink,
        weight: Weight::default(),
    };
    let [message, data] = pick(error.get(), ["message", "data"]);
    if let Some(message) = message {
        walk.text("message", message, Origin::Error);
    }
    if let Some(data) = data {
        walk.path.push(Segment::Key("data"));
        walk.all(data, Origin::Error);
        walk.path.pop();
    }
}

/// Calls `sink` with every string of a value, such as a call's arguments or a tool definition. Keys are given with
/// [`Origin::Key`] and the path of their value.
pub fn strings<'a>(value: &'a Json<'_>, origin: Origin, sink: &mut dyn FnMut(Text<'a, '_>)) {
    let mut walk = Walk {
        path: Vec::new(),
        sink,
        weight: Weight::default(),
    };
    walk.all(value.get(), origin);
}

struct Walk<'s, 'a> {
    path: Vec<Segment<'a>>,
    sink: &'s mut dyn FnMut(Text<'a, '_>),
    weight: Weight,
}

impl<'a> Walk<'_, 'a> {
    fn emit(&mut self, origin: Origin, text: Cow<'a, str>) {
        if matches!(
            origin,
            Origin::Block | Origin::Resource | Origin::Link | Origin::OtherBlock
        ) {
            self.weight.text_bytes += text.len() as u64;
        }
        (self.sink)(Text {
            path: Path(&self.path),
            origin,
            text,
        });
    }

    fn text(&mut self, member: &'a str, value: &'a str, origin: Origin) {
        if let Some(text) = string(value) {
            self.path.push(Segment::Key(member));
            self.emit(origin, text);
            self.path.pop();
        }
    }

    /// A member of the result.
    fn member(&mut self, key: &'a str, cursor: &mut Cursor<'a>) {
        self.path.push(Segment::Key(key));
        match unescape(key).as_ref() {
            "content" => self.blocks(cursor),
            "structuredContent" => {
                let value = cursor.value();
                self.weight.structured_bytes += value.len() as u64;
                self.all(value, Origin::Structured);
            }
            "contents" => self.each(cursor, |walk, cursor| walk.resource(cursor.value())),
            "messages" => self.each(cursor, Self::message),
            "description" => {
                if let Some(text) = string(cursor.value()) {
                    self.emit(Origin::Description, text);
                }
            }
            _ => {
                cursor.value();
            }
        }
        self.path.pop();
    }

    /// `content` is an array of blocks, or one block (sampling, prompt messages); some servers send a bare string.
    fn blocks(&mut self, cursor: &mut Cursor<'a>) {
        if cursor.peek() == Some(b'[') {
            self.each(cursor, Self::block);
        } else {
            self.block(cursor);
        }
    }

    fn each(&mut self, cursor: &mut Cursor<'a>, mut item: impl FnMut(&mut Self, &mut Cursor<'a>)) {
        if !cursor.enter(b'[') {
            cursor.value();
            return;
        }
        self.path.push(Segment::Index(usize::MAX));
        while cursor.element() {
            self.step();
            item(self, cursor);
        }
        self.path.pop();
    }

    /// Goes on to the next element, where the path ends in an array.
    fn step(&mut self) {
        if let Some(Segment::Index(index)) = self.path.last_mut() {
            *index = index.wrapping_add(1);
        }
    }

    fn block(&mut self, cursor: &mut Cursor<'a>) {
        let mark = cursor.mark();
        if !cursor.enter(b'{') {
            if let Some(text) = string(cursor.value()) {
                self.emit(Origin::Block, text);
            }
            return;
        }
        self.weight.items += 1;
        let (mut kind, mut text, mut data, mut resource) = (None, None, None, None);
        while let Some(key) = cursor.key() {
            let value = cursor.value();
            match unescape(key).as_ref() {
                "type" => kind = string(value),
                "text" => text = Some(value),
                "data" => data = Some(value),
                "resource" => resource = Some(value),
                _ => {}
            }
        }
        match kind.as_deref() {
            Some("text") => {
                if let Some(text) = text {
                    self.text("text", text, Origin::Block);
                }
            }
            Some("image") => self.weight.image_bytes += decoded(data),
            Some("audio") => self.weight.audio_bytes += decoded(data),
            Some("resource") => {
                if let Some(resource) = resource {
                    self.path.push(Segment::Key("resource"));
                    self.resource(resource);
                    self.path.pop();
                }
            }
            Some("resource_link") => {
                let names = ["name", "title", "description", "uri"];
                for (name, value) in names.iter().zip(pick(cursor.since(mark), names)) {
                    if let Some(value) = value {
                        self.text(name, value, Origin::Link);
                    }
                }
            }
            _ => self.all(cursor.since(mark), Origin::OtherBlock),
        }
    }

    fn resource(&mut self, resource: &'a str) {
        self.weight.items += 1;
        let [text, blob] = pick(resource, ["text", "blob"]);
        if let Some(text) = text {
            self.text("text", text, Origin::Resource);
        }
        self.weight.blob_bytes += decoded(blob);
    }

    fn message(&mut self, cursor: &mut Cursor<'a>) {
        if !cursor.enter(b'{') {
            cursor.value();
            return;
        }
        while let Some(key) = cursor.key() {
            if unescape(key) == "content" {
                self.path.push(Segment::Key("content"));
                self.blocks(cursor);
                self.path.pop();
            } else {
                cursor.value();
            }
        }
    }

    /// All strings and keys of a value.
    fn all(&mut self, value: &'a str, origin: Origin) {
        let base = self.path.len();
        // Containers that are open beyond the longest path.
        let mut beyond = 0_usize;
        for token in Tokens::new(value) {
            let here = beyond == 0 && self.path.len() > base;
            match token {
                Token::OpenObject | Token::OpenArray => {
                    if here {
                        self.step();
                    }
                    if beyond > 0 || self.path.len() >= MAX_SEGMENTS {
                        beyond += 1;
                    } else if token == Token::OpenObject {
                        self.path.push(Segment::Key(""));
                    } else {
                        self.path.push(Segment::Index(usize::MAX));
                    }
                }
                Token::CloseObject | Token::CloseArray => {
                    if beyond > 0 {
                        beyond -= 1;
                    } else if here {
                        self.path.pop();
                    }
                }
                Token::Key(key) => {
                    if here && let Some(last) = self.path.last_mut() {
                        *last = Segment::Key(key);
                    }
                    self.emit(Origin::Key, unescape(key));
                }
                Token::String(text) => {
                    if here {
                        self.step();
                    }
                    self.emit(origin, unescape(text));
                }
                Token::Scalar(_) => {
                    if here {
                        self.step();
                    }
                }
            }
        }
        self.path.truncate(base);
    }
}

/// Bytes behind a base64 string, by its length.
fn decoded(data: Option<&str>) -> u64 {
    let Some(data) = data.and_then(string) else {
        return 0;
    };
    let digits = data.trim_end_matches('=').len() as u64;
    digits / 4 * 3 + (digits % 4).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(text: &str) -> (Vec<(String, Origin, String)>, Weight) {
        let json = Json::parse(text).unwrap();
        let mut found = Vec::new();
        let weight = texts(&json, &mut |t| {
            found.push((t.path.to_string(), t.origin, t.text.into_owned()));
        });
        (found, weight)
    }

    fn row(path: &str, origin: Origin, text: &str) -> (String, Origin, String) {
        (path.to_owned(), origin, text.to_owned())
    }

    #[test]
    fn keys_can_be_hidden_in_paths() {
        let json = Json::parse(r#"{"structuredContent":{"k\u0065y":{"a.b":["x"]}}}"#).unwrap();
        let mut found = Vec::new();
        texts(&json, &mut |t| {
            if t.origin == Origin::Structured {
                found.push((
                    t.path.masked(&|key| key == "key"),
                    t.path.masked(&|key| key == "a.b"),
                ));
            }
        });
        let both = (
            "$.structuredContent.*['a.b'][0]".to_owned(),
            "$.structuredContent.key.*[0]".to_owned(),
        );
        assert_eq!(found, [both]);
    }

    #[test]
    fn all_places_of_a_tool_result_are_listed() {
        let (found, weight) = collect(
            r#"{"content":[
                {"text":"a\nb","type":"text"},
                {"type":"image","data":"AAECAw==","mimeType":"image/png"},
                {"type":"audio","data":"AAEC","mimeType":"audio/wav"},
                {"type":"resource","resource":{"uri":"u","text":"r"}},
                {"type":"resource","resource":{"uri":"u","blob":"AAEC"}},
                {"type":"resource_link","uri":"file:///x","name":"n","description":"d"},
                {"type":"novel","note":"w"}],
              "structuredContent":{"k":["s",1,{"deep key":"t"}],"e":{}},
              "_meta":{"hidden":"no"}}"#,
        );
        assert_eq!(
            found,
            [
                row("$.content[0].text", Origin::Block, "a\nb"),
                row("$.content[3].resource.text", Origin::Resource, "r"),
                row("$.content[5].name", Origin::Link, "n"),
                row("$.content[5].description", Origin::Link, "d"),
                row("$.content[5].uri", Origin::Link, "file:///x"),
                row("$.content[6].type", Origin::Key, "type"),
                row("$.content[6].type", Origin::OtherBlock, "novel"),
                row("$.content[6].note", Origin::Key, "note"),
                row("$.content[6].note", Origin::OtherBlock, "w"),
                row("$.structuredContent.k", Origin::Key, "k"),
                row("$.structuredContent.k[0]", Origin::Structured, "s"),
                row("$.structuredContent.k[2]['deep key']", Origin::Key, "deep key"),
                row("$.structuredContent.k[2]['deep key']", Origin::Structured, "t"),
                row("$.structuredContent.e", Origin::Key, "e"),
            ]
        );
        assert_eq!(
            (weight.image_bytes, weight.audio_bytes, weight.blob_bytes),
            (4, 3, 3)
        );
        assert_eq!(weight.structured_bytes, 37);
    }

    #[test]
    fn reads_prompts_and_samples_are_listed() {
        let (found, _) = collect(r#"{"contents":[{"uri":"u","text":"one"},{"uri":"v","blob":"AA=="}]}"#);
        assert_eq!(found, [row("$.contents[0].text", Origin::Resource, "one")]);
        let (found, _) = collect(
            r#"{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"p"}},{"role":"user","content":[{"type":"text","text":"q"}]}]}"#,
        );
        assert_eq!(
            found,
            [
                row("$.description", Origin::Description, "d"),
                row("$.messages[0].content.text", Origin::Block, "p"),
                row("$.messages[1].content[0].text", Origin::Block, "q"),
            ]
        );
        let (found, _) = collect(r#"{"role":"assistant","content":{"type":"text","text":"s"}}"#);
        assert_eq!(found, [row("$.content.text", Origin::Block, "s")]);
    }

    #[test]
    fn structured_values_of_any_kind_are_walked() {
        assert_eq!(
            collect(r#"{"structuredContent":"s"}"#).0,
            [row("$.structuredContent", Origin::Structured, "s")]
        );
        let nested = collect(r#"{"structuredContent":[[["x"],"y"],"z"]}"#).0;
        assert_eq!(
            nested,
            [
                row("$.structuredContent[0][0][0]", Origin::Structured, "x"),
                row("$.structuredContent[0][1]", Origin::Structured, "y"),
                row("$.structuredContent[1]", Origin::Structured, "z"),
            ]
        );
    }

    #[test]
    fn a_key_of_megabytes_gives_a_short_path_and_keeps_its_start() {
        let key = "\\u006b".repeat(1 << 20);
        let json = format!(r#"{{"structuredContent":{{"{key}":["a","b"]}}}}"#);
        let json = Json::parse(&json).expect("valid JSON");
        let mut found = Vec::new();
        texts(&json, &mut |t| {
            if t.origin == Origin::Structured {
                found.push(t.path.to_string());
            }
        });
        assert_eq!(found.len(), 2);
        assert!(
            found
                .iter()
                .all(|path| path.starts_with("$.structuredContent.kkk") && path.len() <= MAX_PATH + 16)
        );
    }

    #[test]
    fn a_deep_value_hides_no_text_and_grows_no_path() {
        let deep = format!("{}\"found\"{}", r#"{"k":"#.repeat(5000), "}".repeat(5000));
        let (found, _) = collect(&format!(r#"{{"structuredContent":[{deep},"after"]}}"#));
        let last = found.last().unwrap();
        assert_eq!(*last, row("$.structuredContent[1]", Origin::Structured, "after"));
        assert!(found.iter().any(|(_, _, text)| text == "found"));
        assert!(found.iter().all(|(path, _, _)| path.len() <= MAX_PATH + 16));
    }

    #[test]
    fn errors_give_message_and_data() {
        let json = Json::parse(r#"{"code":-1,"message":"m","data":{"a":"b"}}"#).unwrap();
        let mut found = Vec::new();
        error_texts(&json, &mut |t| found.push(format!("{} {}", t.path, t.text)));
        assert_eq!(found, ["$.message m", "$.data.a a", "$.data.a b"]);
    }
}
