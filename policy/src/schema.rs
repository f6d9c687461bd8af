//! The JSON schema of the policy file, for editors: `kams policy schema`.
//!
//! It is a file beside this crate, and a test holds it against the keys that the reader accepts, so neither can
//! move alone. The detector numbers are filled in from the table that checks them.

use kams_detect::waste::{KNOBS as KNOBS_OF_WASTE, Rule};
use serde_json::{Map, Value as Json, json};

use crate::file::thresholds::KNOBS;
use crate::file::waste;

const SCHEMA: &str = include_str!("../schema.json");

/// The schema (JSON Schema 2020-12).
pub fn schema() -> Json {
    let mut schema: Json = serde_json::from_str(SCHEMA).unwrap_or(Json::Null);
    let mut detectors: Map<String, Json> = Map::new();
    for (detector, knob, min, max) in KNOBS {
        let entry = detectors
            .entry((*detector).to_owned())
            .or_insert_with(|| json!({"type": "object", "additionalProperties": false, "properties": {}}));
        if let Some(properties) = entry.pointer_mut("/properties").and_then(Json::as_object_mut) {
            properties.insert(
                (*knob).to_owned(),
                json!({"type": "number", "minimum": min, "maximum": max}),
            );
        }
    }
    if let Some(place) = schema.pointer_mut("/properties/thresholds/properties") {
        *place = Json::Object(detectors);
    }
    if let Some(place) = schema.pointer_mut("/properties/waste/properties") {
        *place = Json::Object(waste());
    }
    schema
}

fn waste() -> Map<String, Json> {
    let number = |low: f64, high: f64| json!({"type": "number", "minimum": low, "maximum": high});
    let mut sections: Map<String, Json> = waste::KEYS
        .iter()
        .map(|(name, low, high)| ((*name).to_owned(), number(*low, *high)))
        .collect();
    for rule in Rule::ALL {
        let mut properties = Map::from_iter([(waste::ENABLED.to_owned(), json!({"type": "boolean"}))]);
        for knob in KNOBS_OF_WASTE.iter().filter(|knob| knob.rule == rule.name()) {
            let shape = knob.range.map_or_else(
                || json!({"type": ["boolean", "string", "array"], "items": {"type": "string"}}),
                |(low, high)| number(low, high),
            );
            properties.insert(knob.name.to_owned(), shape);
        }
        sections.insert(
            rule.name().to_owned(),
            json!({"type": "object", "additionalProperties": false, "properties": properties}),
        );
    }
    sections
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::action::Action;
    use crate::file::{self, approvals, rules, runs, servers};

    fn keys(schema: &Json, pointer: &str) -> BTreeSet<String> {
        let properties = schema
            .pointer(&format!("{pointer}/properties"))
            .and_then(Json::as_object)
            .unwrap();
        properties.keys().cloned().collect()
    }

    #[test]
    fn the_schema_has_the_keys_that_the_reader_accepts() {
        let schema = schema();
        for (pointer, accepted) in [
            ("", file::KEYS),
            ("/properties/servers/items", servers::KEYS),
            ("/properties/servers/items/properties/match", servers::MATCH_KEYS),
            ("/properties/rules/items", rules::KEYS),
            ("/$defs/match", rules::MATCH_KEYS),
            ("/$defs/unless", &rules::MATCH_KEYS[1..]),
            ("/properties/exceptions/items", crate::exception::KEYS),
            ("/properties/runs", runs::KEYS),
            ("/properties/runs/properties/checkpoint", runs::CHECKPOINT_KEYS),
            ("/properties/runs/properties/labels", runs::LABEL_KEYS),
            ("/properties/runs/properties/facts/items", runs::FACT_KEYS),
            ("/properties/approvals", approvals::KEYS),
        ] {
            let accepted: BTreeSet<String> = accepted.iter().map(|k| (*k).to_owned()).collect();
            assert_eq!(keys(&schema, pointer), accepted, "{pointer}");
        }
        let actions: Vec<&str> = schema
            .pointer("/properties/rules/items/properties/action/enum")
            .and_then(Json::as_array)
            .unwrap()
            .iter()
            .filter_map(Json::as_str)
            .collect();
        assert_eq!(actions, Action::ALL.map(Action::name));
        assert_eq!(keys(&schema, "/properties/thresholds").len(), 7);
        assert_eq!(keys(&schema, "/properties/waste").len(), 17);
        assert!(keys(&schema, "/properties/waste/properties/tool_loop").contains("polling_tools"));
    }
}
