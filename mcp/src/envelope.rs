//! One line read as JSON-RPC.

use std::borrow::Cow;

use crate::id::{BadId, RequestId};
use crate::json::{Elements, Json, KeyCheck, MAX_DEPTH, Members, check_keys, string, unescape};

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
    /// An id that is no number, string or null, or is too long to be tracked.
    pub bad_id: Option<BadId>,
}

impl Oddities {
    /// Whether anything is odd.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
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
        let KeyCheck {
            depth,
            duplicate,
            unchecked,
        } = check_keys(text);
        let mut envelope = Self {
            json: Json::checked(text),
            id: None,
            method: None,
            params: None,
            result: None,
            error: None,
            oddities: Oddities {
                duplicate_key: duplicate,
                too_deep: depth > MAX_DEPTH,
                keys_unchecked: unchecked,
                ..Oddities::default()
            },
        };
        let mut version = false;
        for (key, value) in Members::new(text) {
            match unescape(key).as_ref() {
                "jsonrpc" => version = value == "\"2.0\"" || string(value).as_deref() == Some("2.0"),
                "id" => envelope.id = Some(RequestId::from_json(&Json::checked(value))),
                "method" => envelope.method = string(value),
                "params" => envelope.params = Some(Json::checked(value)),
                "result" => envelope.result = Some(Json::checked(value)),
                "error" => envelope.error = Some(Json::checked(value)),
                other => {
                    envelope.oddities.case_variant |=
                        ["jsonrpc", "id", "method", "params", "result", "error"]
                            .iter()
                            .any(|name| name.eq_ignore_ascii_case(other));
                }
            }
        }
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

    /// What it is. A method together with a result or an error is a request or a notification.
    pub const fn class(&self) -> Class {
        match (&self.method, &self.id) {
            (Some(_), Some(_)) => Class::Request,
            (Some(_), None) => Class::Notification,
            (None, _) if self.result.is_some() || self.error.is_some() => Class::Response,
            (None, _) => Class::Malformed,
        }
    }
}
