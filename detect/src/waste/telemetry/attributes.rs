//! Attributes of an OTLP record, by name.

use serde_json::{Map, Value};

/// Attributes by name; the readers have made their values plain.
pub(super) struct Attributes<'a>(Option<&'a Map<String, Value>>);

impl<'a> Attributes<'a> {
    pub(super) fn of(record: Option<&'a Value>) -> Self {
        Self(
            record
                .and_then(|record| record.get("attributes"))
                .and_then(Value::as_object),
        )
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0?.get(name)
    }

    /// A text.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name)?.as_str()
    }

    /// A count: a number, or a text attribute that holds one.
    pub(super) fn count(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64().or_else(|| {
                let number = other.as_f64().filter(|number| (0.0..9e15).contains(number))?;
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
                let whole = number as u64;
                Some(whole)
            }),
        }
    }

    /// The first of these names that is a count; 0 where none is.
    pub(super) fn first(&self, names: &[&str]) -> u64 {
        names.iter().find_map(|name| self.count(name)).unwrap_or_default()
    }

    /// Texts of a list, or the one text.
    pub(super) fn texts(&self, name: &str) -> Vec<&'a str> {
        match self.get(name) {
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(text)) => vec![text],
            _ => Vec::new(),
        }
    }
}
