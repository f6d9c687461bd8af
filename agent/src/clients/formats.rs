//! TOML and YAML as [`Node`]s.
//!
//! The libraries' own messages are not passed on: they may quote the file, and the file may hold secrets.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use toml::de::{DeTable, DeValue};

use super::node::{Key, MAX_DEPTH, Node, Place, Places, SyntaxError, Value};

/// Reads a TOML document.
pub(super) fn toml(text: &str) -> Result<Node, SyntaxError> {
    let places = Places::new(text);
    let table = DeTable::parse(text).map_err(|error| SyntaxError {
        place: error
            .span()
            .map_or_else(Place::default, |span| places.at(span.start)),
        what: "not valid TOML from here",
    })?;
    Ok(Node {
        place: places.at(0),
        value: toml_table(table.get_ref(), &places, 0)?,
    })
}

fn toml_table(table: &DeTable<'_>, places: &Places<'_>, depth: usize) -> Result<Value, SyntaxError> {
    let mut members = Vec::new();
    for (key, value) in table {
        let place = places.at(key.span().start);
        members.push((
            Key {
                place,
                text: key.get_ref().to_string(),
            },
            toml_value(value.get_ref(), places.at(value.span().start), places, depth + 1)?,
        ));
    }
    // The library keeps tables sorted by name; files are read by people from the top.
    members.sort_by_key(|(key, _)| key.place);
    Ok(Value::Map(members))
}

fn toml_value(
    value: &DeValue<'_>,
    place: Place,
    places: &Places<'_>,
    depth: usize,
) -> Result<Node, SyntaxError> {
    if depth > MAX_DEPTH {
        return Err(SyntaxError {
            place,
            what: "nested too deeply",
        });
    }
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Array(items) => Value::List(
            items
                .iter()
                .map(|item| toml_value(item.get_ref(), places.at(item.span().start), places, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => toml_table(table, places, depth)?,
        _ => Value::Other,
    };
    Ok(Node { place, value })
}

/// Reads the first document of a YAML file.
pub(super) fn yaml(text: &str) -> Result<Node, SyntaxError> {
    if text.trim().is_empty() {
        return Ok(Node {
            place: Place::default(),
            value: Value::Map(Vec::new()),
        });
    }
    // The default budget of the reader bounds depth (64), nodes and what aliases may expand to.
    let parsed: Result<Spanned<Yaml>, _> = serde_saphyr::from_str(text);
    parsed.map(yaml_node).map_err(|error| SyntaxError {
        place: error.location().map_or_else(Place::default, place_of),
        what: "not valid YAML here, or beyond the limits on depth and aliases",
    })
}

fn place_of(location: serde_saphyr::Location) -> Place {
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Place {
        line: small(location.line()),
        column: small(location.column()),
    }
}

enum Yaml {
    Other,
    Bool(bool),
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
}

fn yaml_node(yaml: Spanned<Yaml>) -> Node {
    let place = place_of(yaml.referenced);
    let value = match yaml.value {
        Yaml::Other => Value::Other,
        Yaml::Bool(value) => Value::Bool(value),
        Yaml::Text(text) => Value::Text(text),
        Yaml::List(items) => Value::List(items.into_iter().map(yaml_node).collect()),
        Yaml::Map(members) => Value::Map(
            members
                .into_iter()
                .map(|(key, node)| {
                    (
                        Key {
                            place: place_of(key.referenced),
                            text: key.value,
                        },
                        yaml_node(node),
                    )
                })
                .collect(),
        ),
    };
    Node { place, value }
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = Yaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Yaml, E> {
        Ok(Yaml::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Yaml, E> {
        Ok(Yaml::Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Yaml, E> {
        Ok(Yaml::Text(value.to_string()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Yaml, E> {
        Ok(Yaml::Other)
    }

    fn visit_str<E>(self, value: &str) -> Result<Yaml, E> {
        Ok(Yaml::Text(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Other)
    }

    fn visit_none<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Other)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Yaml, D::Error> {
        Yaml::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Yaml, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Yaml::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Yaml, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Yaml::Map(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive() {
        let node = toml("model = \"m\"\n\n[mcp_servers.a]\ncommand = \"npx\"\n")
            .ok()
            .unwrap();
        let servers = node.get("mcp_servers").unwrap();
        let Value::Map(members) = &servers.value else {
            panic!("no table")
        };
        assert_eq!(members[0].0.place, Place { line: 3, column: 14 });
        let node = yaml("extensions:\n  a:\n    cmd: npx\n    timeout: 3\n")
            .ok()
            .unwrap();
        let Value::Map(members) = &node.get("extensions").unwrap().value else {
            panic!("no map")
        };
        assert_eq!(members[0].0.place, Place { line: 2, column: 3 });
        assert_eq!(members[0].1.get("cmd").and_then(Node::text), Some("npx"));
    }

    #[test]
    fn bombs_are_refused() {
        assert!(yaml(&"[".repeat(100_000)).is_err());
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            let last = n - 1;
            let items = vec![format!("*a{last}"); 9].join(", ");
            laughs += &["a", &n.to_string(), ": &a", &n.to_string(), " [", &items, "]\n"].concat();
        }
        assert!(yaml(&laughs).is_err());
        assert!(toml(&format!("a = {}", "[".repeat(100_000))).is_err());
    }

    #[test]
    fn errors_hold_nothing_of_the_file() {
        let error = toml("[mcp_servers.a]\nenv = { TOKEN = hunter2 }\n")
            .err()
            .unwrap();
        assert_eq!(error.place.line, 2);
        assert!(!error.what.contains("hunter2"));
        assert_eq!(yaml("a: [1, 2\nb: }").err().unwrap().place.line, 2);
    }
}
