//! A configuration value with the place it stands at, whatever the file format.

/// Deepest nesting read; a file beyond it is refused (a few bytes per level make a bomb).
pub(super) const MAX_DEPTH: usize = 64;

/// A place in a file, both from 1; 0 where the format's reader does not say.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Place {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// A value and where it starts.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// What configuration files are made of. Numbers are not told apart: no field that is read holds one.
#[derive(Clone)]
pub(super) enum Value {
    Other,
    Bool(bool),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A member's name and where it stands.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) text: String,
}

/// Why a text could not be read. `what` is ours and holds nothing of the file, which may hold secrets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct SyntaxError {
    pub(super) place: Place,
    pub(super) what: &'static str,
}

impl Node {
    /// The member of this name; of duplicates the last, as the clients' own parsers take it.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(members) => members
                .iter()
                .rev()
                .find(|(key, _)| key.text == name)
                .map(|(_, node)| node),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }
}

/// Line and column (in characters) of byte offsets, found by walking a text once.
pub(super) struct Places<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Places<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self { text, starts }
    }

    pub(super) fn at(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self
            .starts
            .get(line.saturating_sub(1))
            .copied()
            .unwrap_or_default();
        let column = self
            .text
            .get(start..offset)
            .map_or(0, |before| before.chars().count());
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Place {
            line: small(line),
            column: small(column + 1),
        }
    }
}
