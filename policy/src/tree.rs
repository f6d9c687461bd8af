//! Stage one: YAML (or JSON, its subset) as typed, each node with its place.
//!
//! A tree rather than derived structs, because a derived struct stops at its first unknown key, and a person
//! who fixes a policy wants the whole list.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use crate::problem::{Level, Problem, Source};

/// Largest policy or document text, in bytes. Ten thousand rules are about 2 MB.
pub(crate) const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Deepest nesting of a text. The parser takes about 40 KB of stack a level in a debug build, and threads have
/// 2 MB.
pub(crate) const MAX_DEPTH: usize = 36;
/// Most nodes of a text, aliases expanded.
const MAX_NODES: usize = 600_000;
/// Most aliases; what they repeat counts against the nodes as well.
const MAX_ALIASES: usize = 1_000;

/// Where a node stands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Place {
    /// 1-based; 0 for no place.
    pub(crate) line: u32,
    /// 1-based, in characters.
    pub(crate) column: u32,
    /// Characters to mark.
    pub(crate) width: u32,
    /// Byte offset and length, where the parser knows them.
    pub(crate) bytes: Option<(u32, u32)>,
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let span = location.span();
        Self {
            line: number(location.line()),
            column: number(location.column()),
            width: number(span.len()).max(1),
            bytes: span
                .byte_offset()
                .zip(span.byte_len())
                .map(|(offset, len)| (number(offset), number(len))),
        }
    }
}

/// A mapping key.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) place: Place,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) place: Place,
}

/// What a node is.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In order of appearance, repeated keys included.
    Map(Vec<(Key, Node)>),
}

impl Node {
    /// Word for messages.
    pub(crate) fn what(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a truth value",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The value under `key`, the first one where it is repeated.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// As JSON; numbers that JSON cannot write become null (they are refused before this is called).
    pub(crate) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Int(i) => Json::from(*i),
            Value::Float(f) => serde_json::Number::from_f64(*f).map_or(Json::Null, Json::Number),
            Value::Text(s) => Json::String(s.clone()),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => entries
                .iter()
                .map(|(k, v)| (k.text.clone(), v.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}

/// Parses one document. Bounded before and while parsing: length, nodes, depth, aliases.
pub(crate) fn parse(name: &str, text: &str) -> Result<Node, Box<Problem>> {
    let source = Source { name, text };
    if text.len() > MAX_BYTES {
        let message = format!(
            "the file has {} bytes, more than the limit of {MAX_BYTES}",
            text.len()
        );
        // No excerpt from a file of that size.
        let source = Source { name, text: "" };
        return Err(Box::new(source.problem(
            Level::Error,
            Place::default(),
            message,
            None,
        )));
    }
    let mut budget = serde_saphyr::Budget::default();
    budget.max_depth = MAX_DEPTH;
    budget.max_nodes = MAX_NODES;
    budget.max_events = MAX_NODES * 3;
    budget.max_aliases = MAX_ALIASES;
    budget.max_anchors = MAX_ALIASES;
    let options = serde_saphyr::options! {
        budget: Some(budget),
        // `no` is a server name, not false.
        strict_booleans: true,
        emit_comments: false,
        // Repeated keys are reported by the checks, with all other problems.
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::PassThrough,
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::PassThrough,
    };
    serde_saphyr::from_str_with_options::<Node>(text, options).map_err(|error| {
        let place = error.location().map(Place::from).unwrap_or_default();
        let message = error.without_snippet().to_string();
        let tail = format!(" at line {}, column {}", place.line, place.column);
        let message = message.strip_suffix(&tail).unwrap_or(&message);
        // Parser texts may quote the input; one line of bounded length is enough.
        let message: String = message.lines().next().unwrap_or("").chars().take(300).collect();
        Box::new(source.problem(Level::Error, place, message, None))
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            place: spanned.referenced.into(),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Build)
    }
}

/// Builds a [`Value`] from whatever comes.
struct Build;

impl<'de> Visitor<'de> for Build {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(Value::Int(n))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "beyond 63 bits a number is a float, as in JSON"
        )]
        Ok(i64::try_from(n).map_or(Value::Float(n as f64), Value::Int))
    }

    fn visit_f64<E>(self, n: f64) -> Result<Value, E> {
        Ok(Value::Float(n))
    }

    fn visit_str<E>(self, s: &str) -> Result<Value, E> {
        Ok(Value::Text(s.to_owned()))
    }

    fn visit_string<E>(self, s: String) -> Result<Value, E> {
        Ok(Value::Text(s))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let place = key.referenced.into();
            map.push((
                Key {
                    text: key.value,
                    place,
                },
                entries.next_value()?,
            ));
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_text() {
        let root = parse("p", "a: 1\nb:\n  - é: {c: no}\n").unwrap();
        let Value::List(items) = &root.get("b").unwrap().value else {
            panic!("no list");
        };
        let c = items[0].get("é").unwrap().get("c").unwrap();
        assert!(matches!(&c.value, Value::Text(s) if s == "no"));
        assert_eq!((c.place.line, c.place.column), (3, 12));
    }

    #[test]
    fn json_is_read_too() {
        let root = parse("p", "{\n\t\"a\": \"\\u00e9\\/\\uD83D\\uDE00\"}").unwrap();
        assert!(matches!(&root.get("a").unwrap().value, Value::Text(s) if s == "é/😀"));
    }

    #[test]
    fn bombs_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let one = format!("*a{}", i - 1);
            bomb.push_str(
                &[
                    "a",
                    &i.to_string(),
                    ": &a",
                    &i.to_string(),
                    " [",
                    &[one.as_str(); 9].join(", "),
                    "]\n",
                ]
                .concat(),
            );
        }
        assert!(parse("p", &bomb).is_err());
        assert!(parse("p", &"[".repeat(100_000)).is_err());
        assert!(parse("p", &"- ".repeat(100_000)).is_err());
        assert!(parse("p", &"x".repeat(100 * 1024 * 1024)).is_err());
        assert!(parse("p", &format!("a: [{}]", "x,".repeat(700_000))).is_err());
    }

    #[test]
    fn syntax_errors_have_a_place() {
        let problem = parse("p", "version: 1\nrules: [a\n").unwrap_err();
        assert!(problem.line >= 2, "{problem}");
        let problem = parse("p", "a: b: c").unwrap_err();
        assert_eq!((problem.line, problem.column), (1, 5), "{problem}");
    }
}
