//! JSON read with a budget of values. Of OTLP only the members that somebody here reads are kept, and attributes become
//! one object from names to plain values: pairs of typed values, kept as they are written, take ten times the memory.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{MAX_ATTRIBUTES, MAX_DEPTH, Malformed, OBJECT};

/// Members that are read of OTLP, of whatever message.
pub(super) const OF_OTLP: [&str; 17] = [
    "resourceLogs",
    "resourceSpans",
    "resourceMetrics",
    "resource",
    "scopeLogs",
    "scopeSpans",
    "scopeMetrics",
    "logRecords",
    "spans",
    "attributes",
    "timeUnixNano",
    "observedTimeUnixNano",
    "startTimeUnixNano",
    "eventName",
    "name",
    "traceId",
    "parentSpanId",
];

/// Marks an error as ours.
const BUDGET: &str = "over budget";

/// Reads `body` within `budget` values; with `only`, members of other names are left out and `attributes` are OTLP's.
pub(super) fn read(body: &[u8], budget: usize, only: Option<&[&str]>) -> Result<Value, Malformed> {
    let mut left = budget;
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let seed = Pruned {
        left: &mut left,
        depth: MAX_DEPTH,
        only,
    };
    let value = seed.deserialize(&mut deserializer).map_err(|error| {
        if error.to_string().contains(BUDGET) {
            Malformed::TooMuch
        } else {
            Malformed::Json
        }
    })?;
    deserializer.end().map_err(|_why| Malformed::Json)?;
    Ok(value)
}

struct Pruned<'l> {
    left: &'l mut usize,
    depth: usize,
    only: Option<&'l [&'l str]>,
}

impl Pruned<'_> {
    fn inner(&mut self) -> Pruned<'_> {
        Pruned {
            left: &mut *self.left,
            depth: self.depth.saturating_sub(1),
            only: self.only,
        }
    }
}

/// Takes from the budget, where the nesting may still go deeper.
fn spend<E: serde::de::Error>(left: &mut usize, values: usize, depth: usize) -> Result<(), E> {
    *left = left
        .checked_sub(values)
        .filter(|_| depth > 0)
        .ok_or_else(|| E::custom(BUDGET))?;
    Ok(())
}

impl<'de> DeserializeSeed<'de> for Pruned<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        spend(self.left, 1, self.depth)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Pruned<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.inner())? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<Cow<'de, str>>()? {
            if self.only.is_none_or(|only| only.contains(&&*key)) {
                if map.is_empty() {
                    spend(self.left, OBJECT, self.depth)?;
                }
                let value = if self.only.is_some() && key == "attributes" {
                    members.next_value_seed(Attributes {
                        left: &mut *self.left,
                        depth: self.depth.saturating_sub(1),
                    })?
                } else {
                    members.next_value_seed(self.inner())?
                };
                map.insert(key.into_owned(), value);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object(map))
    }
}

/// A list of `{"key", "value"}`.
struct Attributes<'l> {
    left: &'l mut usize,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Attributes<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        spend(self.left, OBJECT, self.depth)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Attributes<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of attributes")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(pair) = items.next_element_seed(Pair {
            left: &mut *self.left,
            depth: self.depth,
        })? {
            if let Some((name, value)) = pair
                && map.len() < MAX_ATTRIBUTES
            {
                map.insert(name, value);
            }
        }
        Ok(Value::Object(map))
    }
}

/// One `{"key", "value"}`; nothing where one of them is missing.
struct Pair<'l> {
    left: &'l mut usize,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Pair<'_> {
    type Value = Option<(String, Value)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        spend(self.left, 1, self.depth)?;
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Pair<'_> {
    type Value = Option<(String, Value)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an attribute")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut name, mut value) = (None, None);
        while let Some(key) = members.next_key::<Cow<'de, str>>()? {
            match &*key {
                "key" => name = members.next_value::<Option<String>>()?,
                "value" => {
                    value = members.next_value_seed(Plain {
                        left: &mut *self.left,
                        depth: self.depth.saturating_sub(1),
                    })?;
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(name.zip(value))
    }
}

/// A typed value (`{"stringValue": ...}`) as a plain one; nothing for the kinds that nobody here reads.
struct Plain<'l> {
    left: &'l mut usize,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Plain<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        spend(self.left, 1, self.depth)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Plain<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a typed value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut value = None;
        while let Some(key) = members.next_key::<Cow<'de, str>>()? {
            let depth = self.depth.saturating_sub(1);
            match &*key {
                "stringValue" => value = members.next_value::<Option<String>>()?.map(Value::String),
                // Numbers come as numbers and as decimal texts.
                "intValue" | "doubleValue" => {
                    let left = &mut *self.left;
                    let number = members.next_value_seed(Pruned {
                        left,
                        depth,
                        only: Some(&[]),
                    })?;
                    value = match number {
                        Value::Number(_) => Some(number),
                        Value::String(text) => text.parse::<serde_json::Number>().ok().map(Value::Number),
                        _ => None,
                    };
                }
                "arrayValue" => {
                    let left = &mut *self.left;
                    value = Some(members.next_value_seed(List { left, depth })?);
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(value)
    }
}

/// `{"values": [...]}` as a list of plain values.
struct List<'l> {
    left: &'l mut usize,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        spend(self.left, 1, self.depth)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of typed values")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Plain {
            left: &mut *self.left,
            depth: self.depth.saturating_sub(1),
        })? {
            list.extend(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut value = Value::Null;
        while let Some(key) = members.next_key::<Cow<'de, str>>()? {
            if key == "values" {
                let left = &mut *self.left;
                value = members.next_value_seed(List {
                    left,
                    depth: self.depth,
                })?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(value)
    }
}
