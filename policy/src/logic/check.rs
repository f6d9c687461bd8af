//! The load-time walk over a rule: operators, arguments, paths, each problem with its place.

use std::collections::BTreeSet;

use super::standard::{ITERATORS, OPERATORS, growth};
use crate::problem::nearest;
use crate::reader::{Reader, show};
use crate::tree::{Node, Value};

/// Largest rule of a policy, in nodes; loops run over at most a thousand values each.
const MAX_NODES: usize = 2_000;

/// Says whether a path can be read, and what to write instead.
pub(crate) trait Paths {
    fn check(&self, path: &str) -> Result<(), (String, Option<String>)>;
}

/// Walks one expression and returns the context paths it reads, sorted.
pub(crate) fn check(reader: &mut Reader<'_>, node: &Node, paths: &dyn Paths) -> BTreeSet<String> {
    let mut walk = Walk {
        reader,
        paths,
        nodes: 0,
        reads: BTreeSet::new(),
    };
    walk.node(node, 0);
    if walk.nodes > MAX_NODES {
        walk.reader
            .error(node.place, format!("the rule has more than {MAX_NODES} nodes"));
    }
    walk.reads
}

struct Walk<'w, 't> {
    reader: &'w mut Reader<'t>,
    paths: &'w dyn Paths,
    nodes: usize,
    reads: BTreeSet<String>,
}

impl Walk<'_, '_> {
    /// `loops` is how many iterators enclose the node: inside one, `var` reads the element.
    fn node(&mut self, node: &Node, loops: usize) {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return;
        }
        match &node.value {
            Value::List(items) => {
                for item in items {
                    self.node(item, loops);
                }
            }
            Value::Float(f) if !f.is_finite() => self.reader.error(node.place, "JSON has no such number"),
            Value::Map(entries) => match entries.as_slice() {
                [(key, args)] => self.operator(&key.text, key.place, node, args, loops),
                many => {
                    let message = format!("an expression has one operator; this has {}", many.len());
                    let hint = "join conditions with `and` or `or`";
                    self.reader.error_hint(node.place, message, hint);
                }
            },
            _ => {}
        }
    }

    fn operator(&mut self, name: &str, place: crate::tree::Place, node: &Node, args: &Node, loops: usize) {
        let known = OPERATORS
            .iter()
            .find(|(known, ..)| *known == name && name != "log");
        let Some((_, min, max)) = known else {
            let names = OPERATORS.iter().map(|(known, ..)| *known).filter(|n| *n != "log");
            let hint = match nearest(name, names.clone()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("operators: {}", names.collect::<Vec<_>>().join(" ")),
            };
            self.reader
                .error_hint(place, format!("unknown operator `{}`", show(name)), hint);
            return;
        };
        let one = std::slice::from_ref(args);
        let list = if let Value::List(items) = &args.value {
            items.as_slice()
        } else {
            one
        };
        if list.len() < *min || list.len() > *max {
            let want = match (min, max) {
                (min, &usize::MAX) => format!("at least {min}"),
                (min, max) if min == max => min.to_string(),
                (min, max) => format!("{min} to {max}"),
            };
            self.reader.error(
                place,
                format!("`{name}` takes {want} arguments, not {}", list.len()),
            );
        }
        if name == "var" {
            self.var(list, node, loops);
            return;
        }
        if name == "missing" && loops == 0 {
            for item in list {
                self.missing(item);
            }
            return;
        }
        if name == "missing_some" && loops == 0 {
            if let Some(item) = list.get(1) {
                self.missing(item);
            }
            return;
        }
        if name == "reduce"
            && let Some(reason) = growth(&args.to_json())
        {
            self.reader.error(place, reason);
        }
        let iterator = ITERATORS.contains(&name);
        if iterator && loops > 0 {
            self.reader.error(place, format!("`{name}` inside another loop"));
            return;
        }
        for (i, item) in list.iter().enumerate() {
            self.node(item, loops + usize::from(iterator && i == 1));
        }
    }

    fn var(&mut self, list: &[Node], node: &Node, loops: usize) {
        let first = list.first();
        let path = match first.map(|n| &n.value) {
            None | Some(Value::Null) => String::new(),
            Some(Value::Text(path)) => path.clone(),
            Some(Value::Int(index)) => index.to_string(),
            Some(_) => {
                let place = first.map_or(node.place, |n| n.place);
                let hint = "write the path as a text, so that it can be checked";
                self.reader
                    .error_hint(place, "the path of `var` is computed", hint);
                return;
            }
        };
        let place = first.map_or(node.place, |n| n.place);
        if loops == 0 {
            self.path(&path, place);
        } else if path == "context" || path.starts_with("context.") {
            let hint = "compare with a literal, or write the condition without a loop";
            self.reader.error_hint(
                place,
                "inside a loop `var` reads the element, not the context",
                hint,
            );
        }
        if let Some(default) = list.get(1) {
            self.node(default, loops);
        }
    }

    fn missing(&mut self, item: &Node) {
        match &item.value {
            Value::Text(path) => self.path(path, item.place),
            Value::List(items) => {
                for item in items {
                    self.missing(item);
                }
            }
            _ => self.reader.error(
                item.place,
                "`missing` must list paths as texts, so that they can be checked",
            ),
        }
    }

    fn path(&mut self, path: &str, place: crate::tree::Place) {
        match self.paths.check(path) {
            Ok(()) => {
                self.reads.insert(path.to_owned());
            }
            Err((message, Some(hint))) => self.reader.error_hint(place, message, hint),
            Err((message, None)) => self.reader.error(place, message),
        }
    }
}
