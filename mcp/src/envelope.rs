//! One line read as JSON-RPC.

use std::borrow::Cow;

use crate::id::{BadId, RequestId};
use crate::json::{Elements, Json, KeyCheck, MAX_DEPTH, scan, string, unescape};

/// More messages than this in one batch are not read.
pub const MAX_BATCH: usize = 4096;

/// One JSON-RPC object, borrowed from its line.
///
/// Nothing is refused that some peer might accept: what is odd stands in [`Envelope::oddities`].
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// The object as it was written.
    pub json: Json<'a>,
    /// The id: none where the member is absent; an error where it is no id.
    pub id: Option<Result<RequestId, BadId>>,
    /// The method, decoded.
    pub method: Option<Cow<'a, str>>,
    /// `params` as written.
    pub params: Option<Json<'a>>,
    /// `result` as written; `null` is a result.
    pub result: Option<Json<'a>>,
    /// `error` as written.
    pub error: Option<Json<'a>>,
    /// What is odd about it.
    pub oddities: Oddities,
}

/// Deviations that a parser may take one way and another parser another way.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Oddities {
    /// `jsonrpc` is absent or not "2.0".
    pub version: bool,
    /// The first key that is repeated within one object, anywhere in the message.
    pub duplicate_key: Option<String>,
    /// A top-level key that differs from one of JSON-RPC's only in case: Go's decoder takes it for the same.
    pub case_variant: bool,
    /// Nested deeper than 127: serde_json and other parsers refuse it, so its inside counts as unreadable.
    pub too_deep: bool,
    /// Parts were too large or too deep for the check of repeated keys.
    pub keys_unchecked: bool,
    /// Both `result` and `error`, or a method together with one of them.
    pub mixed: bool,
    /// A request whose id is `null`, which MCP forbids; a peer may take it for a notification.
    pub null_id: bool,
    /// An id that is no number, string or null.
    pub bad_id: Option<BadId>,
    /// The line is no strict JSON; this is what a forgiving reader finds in it.
    pub not_strict: bool,
}

impl Oddities {
    /// Whether anything is odd.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

fn is_case_variant(key: &str) -> bool {
    ["jsonrpc", "id", "method", "params", "result", "error"]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(key))
}

/// What an envelope is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// A method and an id.
    Request,
    /// A result or an error, no method.
    Response,
    /// A method, no id.
    Notification,
    /// An object that is none of these.
    Malformed,
}

/// A line's content.
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// One object.
    Single(Envelope<'a>),
    /// An array: the elements in order. An element that is no object is none.
    Batch(Vec<Option<Envelope<'a>>>),
}

/// Why a line is no message.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unreadable {
    /// Not UTF-8.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// Not JSON.
    #[error("the line is not JSON")]
    NotJson,
    /// A JSON value that is neither an object nor an array.
    #[error("the line is JSON but no object")]
    NotAnObject,
    /// An empty array.
    #[error("the batch is empty")]
    EmptyBatch,
    /// More than [`MAX_BATCH`] messages.
    #[error("the batch has more than {MAX_BATCH} messages")]
    LongBatch,
}

impl<'a> Message<'a> {
    /// Reads one line (without its newline).
    pub fn parse(line: &'a [u8]) -> Result<Self, Unreadable> {
        let text = std::str::from_utf8(line).map_err(|_not_utf8| Unreadable::NotUtf8)?;
        Json::parse(text).map_err(|_not_json| Unreadable::NotJson)?;
        let text = text.trim_ascii();
        match text.as_bytes().first() {
            Some(b'{') => Ok(Self::Single(Envelope::read(text))),
            Some(b'[') => Self::batch(text),
            _ => Err(Unreadable::NotAnObject),
        }
    }

    fn batch(text: &'a str) -> Result<Self, Unreadable> {
        let mut elements = Vec::new();
        let mut rest = Elements::new(text);
        while let Some(element) = rest.next_text() {
            if elements.len() >= MAX_BATCH {
                return Err(Unreadable::LongBatch);
            }
            elements.push(element.starts_with('{').then(|| Envelope::read(element)));
        }
        if elements.is_empty() {
            Err(Unreadable::EmptyBatch)
        } else {
            Ok(Self::Batch(elements))
        }
    }
}

impl<'a> Envelope<'a> {
    /// Reads one object of a text that was checked.
    fn read(text: &'a str) -> Self {
        let mut envelope = Self {
            json: Json::checked(text),
            id: None,
            method: None,
            params: None,
            result: None,
            error: None,
            oddities: Oddities::default(),
        };
        let mut version = false;
        let KeyCheck {
            depth,
            duplicate,
            unchecked,
        } = scan(text, |key, value| match unescape(key).as_ref() {
            "jsonrpc" => version = value == "\"2.0\"" || string(value).as_deref() == Some("2.0"),
            "id" => envelope.id = Some(RequestId::from_json(&Json::checked(value))),
            "method" => envelope.method = string(value),
            "params" => envelope.params = Some(Json::checked(value)),
            "result" => envelope.result = Some(Json::checked(value)),
            "error" => envelope.error = Some(Json::checked(value)),
            other => envelope.oddities.case_variant |= is_case_variant(other),
        });
        envelope.oddities.duplicate_key = duplicate;
        envelope.oddities.too_deep = depth > MAX_DEPTH;
        envelope.oddities.keys_unchecked = unchecked;
        envelope.note(version);
        envelope
    }

    fn note(&mut self, version: bool) {
        let answers = self.result.is_some() || self.error.is_some();
        self.oddities.version = !version;
        self.oddities.mixed =
            (self.result.is_some() && self.error.is_some()) || (self.method.is_some() && answers);
        self.oddities.null_id =
            self.method.is_some() && !answers && matches!(self.id, Some(Ok(RequestId::Null)));
        self.oddities.bad_id = match self.id {
            Some(Err(bad)) => Some(bad),
            _ => None,
        };
    }

    /// What it is. A method together with a result or an error is a request or a notification here; a session also
    /// takes it for an answer where a request with its id is open.
    pub const fn class(&self) -> Class {
        match (&self.method, &self.id) {
            (Some(_), Some(_)) => Class::Request,
            (Some(_), None) => Class::Notification,
            (None, _) if self.result.is_some() || self.error.is_some() => Class::Response,
            (None, _) => Class::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(line: &str) -> Envelope<'_> {
        match Message::parse(line.as_bytes()) {
            Ok(Message::Single(envelope)) => envelope,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn classes_do_not_depend_on_key_order() {
        for (line, class) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, Class::Request),
            (r#"{"method":"ping","id":"x","jsonrpc":"2.0"}"#, Class::Request),
            (
                r#"{"method":"n","params":{},"jsonrpc":"2.0"}"#,
                Class::Notification,
            ),
            (r#"{"result":null,"jsonrpc":"2.0","id":1}"#, Class::Response),
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}"#,
                Class::Response,
            ),
            (r#"{"jsonrpc":"2.0","id":1}"#, Class::Malformed),
        ] {
            let envelope = single(line);
            assert_eq!(envelope.class(), class, "{line}");
            assert!(!envelope.oddities.any(), "{line} {:?}", envelope.oddities);
        }
    }

    #[test]
    fn parts_keep_their_bytes() {
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":1.50,"s":"\u00e9","big":12345678901234567890}}"#;
        assert_eq!(
            single(line).params.unwrap().get(),
            r#"{"n":1.50,"s":"\u00e9","big":12345678901234567890}"#
        );
    }

    #[test]
    fn what_parsers_may_disagree_on_is_noted() {
        let odd = |line| single(line).oddities;
        assert_eq!(
            odd(r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#)
                .duplicate_key
                .as_deref(),
            Some("method")
        );
        assert_eq!(
            single(r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#)
                .method
                .as_deref(),
            Some("b")
        );
        let nested = r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"arguments":{"p":1,"p":2}}}"#;
        assert_eq!(odd(nested).duplicate_key.as_deref(), Some("p"));
        assert!(odd(r#"{"jsonrpc":"2.0","id":1,"Method":"x","method":"a"}"#).case_variant);
        assert!(odd(r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#).mixed);
        assert!(odd(r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#).null_id);
        assert!(odd(r#"{"id":1,"method":"a"}"#).version);
        assert!(odd(r#"{"jsonrpc":2.0,"id":1,"method":"a"}"#).version);
        assert_eq!(
            odd(r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#).bad_id,
            Some(BadId::Type)
        );
    }

    #[test]
    fn a_deep_message_is_read_and_marked() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let line = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":{deep}}}}}"#);
        let envelope = single(&line);
        assert_eq!(envelope.class(), Class::Response);
        assert_eq!(envelope.id, Some(Ok(RequestId::Int(7))));
        assert!(envelope.oddities.too_deep);
        let bomb = "[".repeat(1_000_000);
        assert_eq!(Message::parse(bomb.as_bytes()).unwrap_err(), Unreadable::NotJson);
    }

    #[test]
    fn lines_that_are_no_message() {
        let reason = |line: &[u8]| Message::parse(line).unwrap_err();
        assert_eq!(reason(b"this is not json"), Unreadable::NotJson);
        assert_eq!(reason(b"{\"a\":1} trailing"), Unreadable::NotJson);
        assert_eq!(reason(b"\"x\xff\""), Unreadable::NotUtf8);
        assert_eq!(reason(b"42"), Unreadable::NotAnObject);
        assert_eq!(reason(b"[]"), Unreadable::EmptyBatch);
        let long = format!("[{}1]", "1,".repeat(MAX_BATCH));
        assert_eq!(reason(long.as_bytes()), Unreadable::LongBatch);
    }

    #[test]
    fn a_batch_keeps_its_order() {
        let line = br#"[{"jsonrpc":"2.0","method":"a"}, 5 ,{"jsonrpc":"2.0","id":1,"method":"b"}]"#;
        let Ok(Message::Batch(elements)) = Message::parse(line) else {
            panic!("no batch")
        };
        let methods: Vec<_> = elements
            .iter()
            .map(|e| e.as_ref().and_then(|e| e.method.as_deref()))
            .collect();
        assert_eq!(methods, [Some("a"), None, Some("b")]);
    }
}
