//! YAML as a tree that remembers where each part stands.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

/// Where a node stands. Lines and columns count from 1.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Place {
    /// Index of the file.
    pub(super) file: usize,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// Something wrong at a place.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: Option<Place>,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// A value with its place; a map entry also has the place of its key.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) value: Value,
}

/// A value.
#[derive(Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Float,
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One entry of a map.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: Place,
    pub(super) node: Node,
}

/// Values may be secrets that landed under a wrong key: only shapes are printed.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}:{}", self.value.shape(), self.at.line, self.at.column)
    }
}

impl Value {
    pub(super) fn shape(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) => "a whole number",
            Self::Float => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl Node {
    pub(super) fn empty_map() -> Self {
        let at = Place {
            file: 0,
            line: 1,
            column: 1,
        };
        Self {
            at,
            value: Value::Map(Vec::new()),
        }
    }

    /// Lays `later` over `self`: maps are joined key by key, anything else is replaced.
    pub(super) fn merge(&mut self, later: Self) {
        match (&mut self.value, later.value) {
            (Value::Map(mine), Value::Map(theirs)) => {
                for entry in theirs {
                    match mine.iter_mut().find(|e| e.key == entry.key) {
                        Some(e) => {
                            e.key_at = entry.key_at;
                            e.node.merge(entry.node);
                        }
                        None => mine.push(entry),
                    }
                }
            }
            // An empty file, or a section whose keys are all commented out, changes nothing.
            (Value::Map(_), Value::Null) => {}
            (_, value) => *self = Self { at: later.at, value },
        }
    }

    /// The entry at a dotted path.
    pub(super) fn get(&self, path: &str) -> Option<&Entry> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        match path.split_once('.') {
            None => entries.iter().find(|e| e.key == path),
            Some((first, rest)) => entries.iter().find(|e| e.key == first)?.node.get(rest),
        }
    }
}

/// Parses one file.
pub(super) fn parse(text: &str, file: usize) -> Result<Node, Fault> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        // `off`, `no` and `y` are words here, not truth values.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_nodes: 20_000,
            max_depth: 32,
            max_aliases: 100,
        },
    };
    match serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options) {
        Ok(raw) => Ok(locate(raw, file)),
        // A file without any content.
        Err(_) if is_blank(text) => Ok(Node {
            at: Place {
                file,
                line: 1,
                column: 1,
            },
            value: Value::Null,
        }),
        Err(error) => Err(Fault {
            at: error.location().map(|at| place(at, file)),
            message: first_line(&error.without_snippet().to_string()),
            help: None,
        }),
    }
}

fn is_blank(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .all(|line| line.is_empty() || line.starts_with('#') || line == "---")
}

fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    kams_export::text::visible(line.trim_start_matches("error: "))
}

fn place(at: Location, file: usize) -> Place {
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).max(1);
    Place {
        file,
        line: number(at.line()),
        column: number(at.column()),
    }
}

/// The tree as the parser gives it, before files get their numbers.
enum Raw {
    Null,
    Bool(bool),
    Integer(i64),
    Float,
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

fn locate(raw: Spanned<Raw>, file: usize) -> Node {
    let at = place(raw.referenced, file);
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Bool(b) => Value::Bool(b),
        Raw::Integer(n) => Value::Integer(n),
        Raw::Float => Value::Float,
        Raw::Text(text) => Value::Text(text),
        Raw::List(items) => Value::List(items.into_iter().map(|i| locate(i, file)).collect()),
        Raw::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, node)| Entry {
                    key_at: place(key.referenced, file),
                    key: key.value,
                    node: locate(node, file),
                })
                .collect(),
        ),
    };
    Node { at, value }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(i64::try_from(value).map_or(Raw::Text(value.to_string()), Raw::Integer))
    }

    fn visit_f64<E>(self, _value: f64) -> Result<Raw, E> {
        Ok(Raw::Float)
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Raw::Map(map))
    }
}
