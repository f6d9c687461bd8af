//! What a JSON schema says: which properties it has and requires at any depth, and every text inside it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

// Nodes visited through references before a schema is taken as read: recursive definitions multiply.
const MOST_NODES: usize = 20_000;
const DEEPEST: usize = 64;

/// Keywords that map names to schemas.
const NAMED: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];
/// Keywords whose values are data, not schemas.
const DATA: [&str; 6] = ["enum", "const", "default", "examples", "example", "required"];
/// Keywords whose string values are no prose.
const FORMAL: [&str; 8] = [
    "type",
    "$ref",
    "$schema",
    "$id",
    "format",
    "$anchor",
    "$dynamicRef",
    "contentEncoding",
];

/// The schema without what means nothing: `$schema`, empty `required`, `properties` and `$defs`; `required` is
/// a sorted set (SPEC section 2).
pub(super) fn normalised(schema: &Value) -> Value {
    let Value::Object(members) = schema else {
        return schema.clone();
    };
    let mut out = Map::new();
    for (key, value) in members {
        let kept = match (key.as_str(), value) {
            ("$schema", _) => continue,
            ("required", Value::Array(names)) => {
                let set: BTreeSet<&str> = names.iter().filter_map(Value::as_str).collect();
                Value::Array(set.into_iter().map(Value::from).collect())
            }
            (key, Value::Object(named)) if NAMED.contains(&key) => Value::Object(
                named
                    .iter()
                    .map(|(name, schema)| (name.clone(), normalised(schema)))
                    .collect(),
            ),
            (key, value) if DATA.contains(&key) => value.clone(),
            (_, Value::Array(items)) => Value::Array(items.iter().map(normalised).collect()),
            (_, value) => normalised(value),
        };
        let empty = match &kept {
            Value::Array(items) => key == "required" && items.is_empty(),
            Value::Object(named) => (key == "properties" || key == "$defs") && named.is_empty(),
            _ => false,
        };
        if !empty {
            out.insert(key.clone(), kept);
        }
    }
    Value::Object(out)
}

/// Properties and required names, each with its path.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Surface {
    /// Every place where a schema stands.
    pub(super) places: BTreeSet<String>,
    /// (place of the object, name)
    pub(super) properties: BTreeSet<(String, String)>,
    /// (place of the object, name)
    pub(super) required: BTreeSet<(String, String)>,
}

impl Surface {
    /// Reads `schema`, through `properties`, `items`, `prefixItems`, the combinators, `additionalProperties` and
    /// local references; one that leads back to itself is followed once.
    pub(super) fn of(schema: &Value, place: &str) -> Self {
        let mut surface = Self::default();
        let mut walk = Walk {
            root: schema,
            open: Vec::new(),
            nodes: 0,
        };
        walk.schema(schema, &mut place.to_owned(), &mut surface, 0);
        surface
    }
}

struct Walk<'a> {
    root: &'a Value,
    open: Vec<&'a str>,
    nodes: usize,
}

impl<'a> Walk<'a> {
    fn schema(&mut self, schema: &'a Value, path: &mut String, surface: &mut Surface, depth: usize) {
        let Value::Object(members) = schema else { return };
        self.nodes += 1;
        if self.nodes > MOST_NODES || depth > DEEPEST {
            return;
        }
        if let Some(Value::String(target)) = members.get("$ref")
            && !self.open.contains(&target.as_str())
            && let Some(resolved) = target
                .strip_prefix('#')
                .and_then(|pointer| self.root.pointer(pointer))
        {
            self.open.push(target);
            self.schema(resolved, path, surface, depth + 1);
            self.open.pop();
        }
        surface.places.insert(path.clone());
        for (key, value) in members {
            let length = path.len();
            match (key.as_str(), value) {
                ("properties" | "patternProperties", Value::Object(named)) => {
                    for (name, inner) in named {
                        surface.properties.insert((path.clone(), name.clone()));
                        path.push('.');
                        path.push_str(key);
                        path.push('.');
                        path.push_str(name);
                        self.schema(inner, path, surface, depth + 1);
                        path.truncate(length);
                    }
                }
                ("required", Value::Array(names)) => {
                    for name in names.iter().filter_map(Value::as_str) {
                        surface.required.insert((path.clone(), name.to_owned()));
                    }
                }
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(branches)) => {
                    // Branches carry no number: their order is not a difference.
                    path.push('.');
                    path.push_str(key);
                    for branch in branches {
                        self.schema(branch, path, surface, depth + 1);
                    }
                }
                (
                    "items"
                    | "additionalProperties"
                    | "not"
                    | "if"
                    | "then"
                    | "else"
                    | "contains"
                    | "unevaluatedProperties",
                    inner,
                ) => {
                    path.push('.');
                    path.push_str(key);
                    match inner {
                        Value::Array(branches) => {
                            for branch in branches {
                                self.schema(branch, path, surface, depth + 1);
                            }
                        }
                        inner => self.schema(inner, path, surface, depth + 1),
                    }
                }
                _ => {}
            }
            path.truncate(length);
        }
    }
}

/// Every text inside a schema with its path: descriptions, titles, comments, enum values, defaults, examples,
/// patterns, property names, and strings under keywords nobody knows.
pub(super) fn texts(schema: &Value, place: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(schema, place.to_owned(), true, &mut found);
    found
}

fn collect(value: &Value, path: String, is_schema: bool, found: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => found.push((path, text.clone())),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                collect(item, format!("{path}[{i}]"), is_schema, found);
            }
        }
        Value::Object(members) => {
            for (key, value) in members {
                let inner = format!("{path}.{key}");
                if is_schema && (FORMAL.contains(&key.as_str()) || key == "required") {
                    continue;
                }
                match value {
                    Value::Object(named) if is_schema && NAMED.contains(&key.as_str()) => {
                        for (name, schema) in named {
                            // A name of several words can carry a message.
                            if name
                                .split(|c: char| !c.is_alphanumeric())
                                .filter(|w| !w.is_empty())
                                .count()
                                > 3
                            {
                                found.push((format!("{inner}.{name}"), name.replace('_', " ")));
                            }
                            collect(schema, format!("{inner}.{name}"), true, found);
                        }
                    }
                    value => collect(value, inner, is_schema && !DATA.contains(&key.as_str()), found),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_means_nothing_is_dropped() {
        let a = json!({"$schema": "x", "type": "object", "properties": {}, "required": [], "$defs": {}});
        assert_eq!(normalised(&a), json!({"type": "object"}));
        let named = json!({"properties": {"required": {"type": "string"}, "$schema": {"enum": ["b", "a"]}}, "required": ["b", "a", "b"]});
        let kept = json!({"properties": {"required": {"type": "string"}, "$schema": {"enum": ["b", "a"]}}, "required": ["a", "b"]});
        assert_eq!(normalised(&named), kept);
    }

    #[test]
    fn properties_are_found_at_every_depth() {
        let schema = json!({
            "properties": {"a": {"items": {"anyOf": [{"properties": {"b": {}}, "required": ["b"]}, {"type": "null"}]}}},
            "additionalProperties": {"properties": {"c": {}}},
            "prefixItems": [{"$ref": "#/$defs/node"}],
            "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}
        });
        let surface = Surface::of(&schema, "in");
        let all: Vec<String> = surface
            .properties
            .iter()
            .map(|(place, name)| format!("{place} {name}"))
            .collect();
        assert_eq!(
            all,
            [
                "in a",
                "in.additionalProperties c",
                "in.prefixItems next",
                "in.properties.a.items.anyOf b"
            ]
        );
        assert_eq!(surface.required.len(), 1);
    }

    #[test]
    fn references_that_multiply_are_bounded() {
        let mut defs = Map::new();
        for i in 0..40 {
            let next = format!("#/$defs/n{}", i + 1);
            defs.insert(
                format!("n{i}"),
                json!({"properties": {"l": {"$ref": next}, "r": {"$ref": next}}}),
            );
        }
        let schema = json!({"$ref": "#/$defs/n0", "$defs": defs});
        assert!(Surface::of(&schema, "").properties.len() <= MOST_NODES * 2);
    }

    #[test]
    fn texts_come_from_every_keyword() {
        let schema = json!({"type": "object", "properties": {"mode": {
            "type": "string", "title": "T", "description": "D", "enum": ["E"], "default": "F", "examples": ["X"],
            "const": "C", "pattern": "P", "$comment": "N", "x-hint": "U"}}});
        let mut found: Vec<String> = texts(&schema, "in").into_iter().map(|t| t.1).collect();
        found.sort();
        assert_eq!(found, ["C", "D", "E", "F", "N", "P", "T", "U", "X"]);
    }
}
