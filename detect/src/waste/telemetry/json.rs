//! JSON read with a budget of [`MAX_VALUES`] values. Of OTLP only the members that somebody here reads are kept.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{MAX_DEPTH, MAX_VALUES, Malformed};

/// Members that are read of OTLP, of whatever message.
pub(super) const OF_OTLP: [&str; 24] = [
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
    "key",
    "value",
    "stringValue",
    "intValue",
    "doubleValue",
    "arrayValue",
    "values",
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

/// Reads `body`; with `only`, members of other names are left out.
pub(super) fn read(body: &[u8], only: Option<&[&str]>) -> Result<Value, Malformed> {
    let mut left = MAX_VALUES;
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
            left: self.left,
            depth: self.depth.saturating_sub(1),
            only: self.only,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Pruned<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.left.checked_sub(1).filter(|_| self.depth > 0);
        *self.left = left.ok_or_else(|| D::Error::custom(BUDGET))?;
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
        while let Some(key) = members.next_key::<std::borrow::Cow<'de, str>>()? {
            if self.only.is_none_or(|only| only.contains(&&*key)) {
                map.insert(key.into_owned(), members.next_value_seed(self.inner())?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object(map))
    }
}
