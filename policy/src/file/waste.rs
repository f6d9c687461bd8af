//! `waste`: which waste rules are on, and how strict they are (SPEC section 9).

use kams_detect::redact::json_error;
use kams_detect::waste::{Config, KNOBS, Rule};
use serde_json::{Map, Value as Json};

use crate::reader::{Reader, show};
use crate::tree::{Node, Value};

/// Keys beside the rules' names: name, smallest and largest value.
pub(crate) const KEYS: [(&str, f64, f64); 2] =
    [("min_confidence", 0.0, 1.0), ("repeat_seconds", 1.0, 86_400.0)];
/// Switches a rule off.
pub(crate) const ENABLED: &str = "enabled";

/// The settings of the section; those with a fault are reported and left at their defaults.
pub(crate) fn read(reader: &mut Reader<'_>, node: &Node) -> Config {
    let mut flat = Map::new();
    let mut disabled = Vec::new();
    let names: Vec<&str> = KEYS
        .iter()
        .map(|(name, ..)| *name)
        .chain(Rule::ALL.map(Rule::name))
        .collect();
    let Some(fields) = reader.fields(node, "waste", &names) else {
        return Config::default();
    };
    for (name, low, high) in KEYS {
        let number = fields
            .get(name)
            .and_then(|node| reader.number(node, &format!("waste.{name}"), low, high));
        if let Some(number) = number {
            flat.insert(name.to_owned(), number.into());
        }
    }
    for rule in Rule::ALL {
        let Some(node) = fields.get(rule.name()) else {
            continue;
        };
        let what = format!("waste.{rule}");
        let known = KNOBS.iter().filter(|knob| knob.rule == rule.name());
        let names: Vec<&str> = known.map(|knob| knob.name).chain([ENABLED]).collect();
        let Some(knobs) = reader.fields(node, &what, &names) else {
            continue;
        };
        for (key, node) in knobs.iter() {
            if key.text == ENABLED {
                if reader.truth(node, &format!("{what}.{ENABLED}")) == Some(false) {
                    disabled.push(rule);
                }
            } else if let Some(value) = knob(reader, rule, &key.text, node) {
                flat.insert(format!("{rule}.{}", key.text), value);
            }
        }
    }
    let config = Config::from_flat(&flat).unwrap_or_default();
    Config { disabled, ..config }
}

/// A checked value; none where there is no such knob, or the value is none for it.
fn knob(reader: &mut Reader<'_>, rule: Rule, name: &str, node: &Node) -> Option<Json> {
    let knob = KNOBS
        .iter()
        .find(|knob| knob.rule == rule.name() && knob.name == name)?;
    let what = format!("waste.{rule}.{name}");
    if let Some((low, high)) = knob.range {
        reader.number(node, &what, low, high)?;
    }
    let value = json(node)?;
    let path = format!("{rule}.{name}");
    match Config::from_flat(&Map::from_iter([(path, value.clone())])) {
        Ok(_) => Some(value),
        Err(error) => {
            reader.error(node.place, format!("{what}: {}", show(&json_error(&error))));
            None
        }
    }
}

/// Numbers, words and lists of words; other things are no knob's value.
fn json(node: &Node) -> Option<Json> {
    match &node.value {
        Value::Bool(flag) => Some((*flag).into()),
        Value::Int(number) => Some((*number).into()),
        Value::Float(number) => Some((*number).into()),
        Value::Text(text) => Some(text.as_str().into()),
        Value::List(items) => items
            .iter()
            .map(json)
            .collect::<Option<Vec<_>>>()
            .map(Json::Array),
        Value::Null | Value::Map(_) => Some(Json::Null),
    }
}
