//! JSON text that was checked to be valid, and cheap walks over it.
//!
//! A message is checked once, by serde_json, and then only walked: to find members, to look for repeated keys, to
//! list texts. The walks never fail and have no recursion, so a value nested two hundred deep is read like any other.
//! Text escapes that no character stands for (a lone surrogate) become U+FFFD instead of an error: JavaScript and
//! Python accept such strings, and a message must not become invisible because of one.

mod keys;
mod text;
mod walk;

use std::borrow::Cow;

pub(crate) use keys::scan;
pub use keys::{KeyCheck, MAX_DEPTH, check_keys};
pub use text::{cut, unescape};
pub(crate) use walk::Cursor;
pub use walk::{Elements, Members, Token, Tokens};

/// One valid JSON value as it was written, borrowed from its message or owned.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Json<'a>(Cow<'a, str>);

/// What kind of value a [`Json`] is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JsonKind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl<'a> Json<'a> {
    /// Checks a text and wraps it.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<serde::de::IgnoredAny>(text)?;
        Ok(Self::checked(text))
    }

    /// Wraps a text that is part of one that was checked.
    pub(crate) fn checked(text: &'a str) -> Self {
        Self(Cow::Borrowed(text.trim_ascii()))
    }

    /// The value as it was written.
    pub fn get(&self) -> &str {
        &self.0
    }

    /// The text with its own lifetime, unless this value owns it.
    pub(crate) const fn borrowed(&self) -> Option<&'a str> {
        match self.0 {
            Cow::Borrowed(text) => Some(text),
            Cow::Owned(_) => None,
        }
    }

    /// The same value, borrowed from this one.
    pub fn view(&self) -> Json<'_> {
        Json(Cow::Borrowed(&self.0))
    }

    /// A copy that borrows nothing.
    pub fn into_owned(self) -> Json<'static> {
        Json(Cow::Owned(self.0.into_owned()))
    }

    /// What kind of value it is.
    pub fn kind(&self) -> JsonKind {
        match self.0.as_bytes().first() {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b'"') => JsonKind::String,
            Some(b't' | b'f') => JsonKind::Bool,
            Some(b'-' | b'0'..=b'9') => JsonKind::Number,
            _ => JsonKind::Null,
        }
    }

    /// The decoded text of a string value.
    pub fn as_str(&self) -> Option<Cow<'_, str>> {
        string(&self.0)
    }

    /// The value of `true` and `false`.
    pub fn as_bool(&self) -> Option<bool> {
        self.0.parse().ok()
    }

    /// The value of a number, where a double can hold it.
    pub fn as_f64(&self) -> Option<f64> {
        (self.kind() == JsonKind::Number)
            .then(|| self.0.parse().ok())
            .flatten()
    }

    /// The value of an integer.
    pub fn as_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// The members of an object, in order; none for other kinds.
    pub fn members(&self) -> Members<'_> {
        Members::new(&self.0)
    }

    /// The elements of an array, in order; none for other kinds.
    pub fn elements(&self) -> Elements<'_> {
        Elements::new(&self.0)
    }

    /// All tokens of the value.
    pub fn tokens(&self) -> Tokens<'_> {
        Tokens::new(&self.0)
    }

    /// The member of this name; the last one where it is repeated, as in JavaScript and Python.
    pub fn member(&self, name: &str) -> Option<Json<'_>> {
        let [found] = pick(&self.0, [name]);
        found.map(Json::checked)
    }

    /// Several members in one pass.
    pub fn pick<const N: usize>(&self, names: [&str; N]) -> [Option<Json<'_>>; N] {
        pick(&self.0, names).map(|found| found.map(Json::checked))
    }
}

/// The decoded text of a string value.
pub(crate) fn string(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    Some(unescape(inner))
}

/// Several members of an object in one pass; the last of each name.
pub(crate) fn pick<'a, const N: usize>(text: &'a str, names: [&str; N]) -> [Option<&'a str>; N] {
    let mut found = [None; N];
    for (key, value) in Members::new(text) {
        let key = unescape(key);
        for (name, slot) in names.iter().zip(found.iter_mut()) {
            if key == *name {
                *slot = Some(value);
            }
        }
    }
    found
}
