//! Attributes of an OTLP record, by name.

use std::collections::HashMap;

use serde_json::Value;

/// Attributes of one record that are read.
const MAX_ATTRIBUTES: usize = 1_024;

/// Attributes by name; values in OTLP's typed form.
pub(super) struct Attributes<'a>(HashMap<&'a str, &'a Value>);

impl<'a> Attributes<'a> {
    pub(super) fn of(record: Option<&'a Value>) -> Self {
        let list = record
            .and_then(|record| record.get("attributes"))
            .and_then(Value::as_array);
        let pair = |entry: &'a Value| Some((entry.get("key")?.as_str()?, entry.get("value")?));
        Self(
            list.into_iter()
                .flatten()
                .take(MAX_ATTRIBUTES)
                .filter_map(pair)
                .collect(),
        )
    }

    /// A text.
    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.get("stringValue")?.as_str()
    }

    /// A count: numbers come as JSON numbers, as decimal texts, and as text attributes.
    pub(super) fn count(&self, name: &str) -> Option<u64> {
        let value = self.0.get(name)?;
        let inner = ["intValue", "doubleValue", "stringValue"]
            .iter()
            .find_map(|kind| value.get(*kind))?;
        match inner {
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
        let Some(value) = self.0.get(name) else {
            return Vec::new();
        };
        let list = value
            .get("arrayValue")
            .and_then(|list| list.get("values"))
            .and_then(Value::as_array);
        match list {
            Some(list) => list
                .iter()
                .filter_map(|item| item.get("stringValue")?.as_str())
                .collect(),
            None => self.text(name).into_iter().collect(),
        }
    }
}
