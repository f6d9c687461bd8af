//! What a server says about one of its tools, prompts or resources.

use serde_json::{Map, Value, json};

use super::canonical;
use super::schema::{self, Surface};
use super::sentence::Channel;

/// What is defined.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Subject {
    /// A tool of `tools/list`.
    Tool,
    /// A prompt of `prompts/list`.
    Prompt,
    /// A resource or template of `resources/list`.
    Resource,
    /// The server's `instructions`.
    Instructions,
}

/// One definition with its digests (SPEC section 2).
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// What is defined.
    pub subject: Subject,
    /// Name as the server gives it; for resources the URI; empty for instructions.
    pub name: String,
    /// Title, description and annotations.
    about: Value,
    /// `inputSchema` and `outputSchema`, normalised.
    schema: Value,
    /// SHA-256 over the canonical JSON of title, description and annotations; 64 hex digits.
    pub description_digest: String,
    /// SHA-256 over the canonical JSON of the normalised schemas; 64 hex digits.
    pub schema_digest: String,
}

/// A tool object could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// Not JSON.
    #[error("the definition is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// An object with a string `name` was expected.
    #[error("the definition has no name")]
    Nameless,
}

impl Definition {
    /// A tool as `tools/list` sends it. Unknown members do not count.
    pub fn tool(value: &Value) -> Result<Self, DefinitionError> {
        let members = value.as_object().ok_or(DefinitionError::Nameless)?;
        let name = members
            .get("name")
            .and_then(Value::as_str)
            .ok_or(DefinitionError::Nameless)?;
        let schemas = pick(members, &["inputSchema", "outputSchema"]);
        Ok(Self::new(
            Subject::Tool,
            name,
            pick(members, &["title", "description", "annotations"]),
            &schemas,
        ))
    }

    /// A tool from the bytes of its JSON object.
    pub fn tool_from_slice(bytes: &[u8]) -> Result<Self, DefinitionError> {
        Self::tool(&serde_json::from_slice(bytes)?)
    }

    /// A prompt as `prompts/list` sends it; its arguments count as a schema.
    pub fn prompt(value: &Value) -> Result<Self, DefinitionError> {
        let members = value.as_object().ok_or(DefinitionError::Nameless)?;
        let name = members
            .get("name")
            .and_then(Value::as_str)
            .ok_or(DefinitionError::Nameless)?;
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for argument in members
            .get("arguments")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let Some(argument) = argument.as_object() else {
                continue;
            };
            let Some(name) = argument.get("name").and_then(Value::as_str) else {
                continue;
            };
            properties.insert(
                name.to_owned(),
                Value::Object(pick(argument, &["title", "description"])),
            );
            if argument.get("required") == Some(&Value::Bool(true)) {
                required.push(Value::from(name));
            }
        }
        let mut schemas = Map::new();
        schemas.insert(
            "inputSchema".to_owned(),
            json!({"properties": properties, "required": required}),
        );
        Ok(Self::new(
            Subject::Prompt,
            name,
            pick(members, &["title", "description"]),
            &schemas,
        ))
    }

    /// A resource or resource template, named by its URI.
    pub fn resource(value: &Value) -> Result<Self, DefinitionError> {
        let members = value.as_object().ok_or(DefinitionError::Nameless)?;
        let uri = members
            .get("uri")
            .or_else(|| members.get("uriTemplate"))
            .or_else(|| members.get("name"));
        let uri = uri.and_then(Value::as_str).ok_or(DefinitionError::Nameless)?;
        let about = pick(members, &["name", "title", "description", "annotations"]);
        Ok(Self::new(Subject::Resource, uri, about, &Map::new()))
    }

    /// The `instructions` of an initialize or discover answer.
    pub fn instructions(text: &str) -> Self {
        let mut about = Map::new();
        about.insert("description".to_owned(), Value::from(text));
        Self::new(Subject::Instructions, "", about, &Map::new())
    }

    fn new(subject: Subject, name: &str, about: Map<String, Value>, schemas: &Map<String, Value>) -> Self {
        let about = Value::Object(about);
        let schema = Value::Object(
            schemas
                .iter()
                .map(|(key, schema)| (key.clone(), schema::normalised(schema)))
                .filter(|(_, schema)| schema.as_object().is_none_or(|members| !members.is_empty()))
                .collect(),
        );
        Self {
            subject,
            name: name.to_owned(),
            description_digest: canonical::digest(&about),
            schema_digest: canonical::digest(&schema),
            about,
            schema,
        }
    }

    /// The description, where there is one.
    pub fn description(&self) -> &str {
        self.about
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The definition as stored: what the digests are taken over. [`Definition::from_stored`] reads it back.
    pub fn stored(&self) -> Value {
        json!({"name": self.name, "about": self.about, "schema": self.schema})
    }

    /// Reads what [`Definition::stored`] wrote.
    pub fn from_stored(subject: Subject, value: &Value) -> Result<Self, DefinitionError> {
        let part = |name: &str| {
            value
                .get(name)
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default()
        };
        let name = value
            .get("name")
            .and_then(Value::as_str)
            .ok_or(DefinitionError::Nameless)?;
        Ok(Self::new(subject, name, part("about"), &part("schema")))
    }

    pub(super) fn channel(&self) -> Channel {
        if self.subject == Subject::Instructions {
            Channel::Instructions
        } else {
            Channel::Description
        }
    }

    /// Texts outside the schema, each with its place.
    pub(super) fn about_texts(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (key, value) in self.about.as_object().into_iter().flatten() {
            found.extend(schema::texts(value, key));
        }
        found
    }

    /// Texts inside the schemas, each with its place.
    pub(super) fn schema_texts(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (key, value) in self.schema.as_object().into_iter().flatten() {
            found.extend(schema::texts(value, key));
        }
        found
    }

    pub(super) fn surface(&self) -> Surface {
        let mut whole = Surface::default();
        // A schema that was not there said nothing: what it says first is new at its root.
        whole
            .places
            .extend(["inputSchema".to_owned(), "outputSchema".to_owned()]);
        for (key, value) in self.schema.as_object().into_iter().flatten() {
            let one = Surface::of(value, key);
            whole.places.extend(one.places);
            whole.properties.extend(one.properties);
            whole.required.extend(one.required);
        }
        whole
    }
}

fn pick(members: &Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    names
        .iter()
        .filter_map(|name| {
            members
                .get(*name)
                .filter(|v| !v.is_null())
                .map(|v| ((*name).to_owned(), v.clone()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(value: &Value) -> Definition {
        Definition::tool(value).unwrap()
    }

    #[test]
    fn spelling_of_the_json_does_not_move_a_digest() {
        let a = tool(
            &json!({"name": "t", "description": "d", "inputSchema": {"$schema": "s", "type": "object", "required": ["b", "a"], "properties": {"a": {"maximum": 1.0}, "b": {}}}}),
        );
        let b = Definition::tool_from_slice(
            br#"{"inputSchema":{"properties":{"b":{},"a":{"maximum":1}},"required":["a","b"],"type":"object","$defs":{}},"description":"d","name":"t","_meta":{"x":1}}"#,
        )
        .unwrap();
        assert_eq!(
            (&a.description_digest, &a.schema_digest),
            (&b.description_digest, &b.schema_digest)
        );
        let moved = tool(&json!({"name": "t", "description": "d", "annotations": {"title": "x"}}));
        assert_ne!(a.description_digest, moved.description_digest);
    }

    #[test]
    fn stored_form_reads_back() {
        let a =
            tool(&json!({"name": "t", "title": "T", "inputSchema": {"properties": {"p": {"enum": ["x"]}}}}));
        assert_eq!(Definition::from_stored(Subject::Tool, &a.stored()).unwrap(), a);
    }

    #[test]
    fn what_has_no_name_is_refused() {
        assert!(matches!(
            Definition::tool(&json!({"description": "d"})),
            Err(DefinitionError::Nameless)
        ));
        assert!(matches!(
            Definition::tool_from_slice(b"{"),
            Err(DefinitionError::Json(_))
        ));
    }

    #[test]
    fn prompts_and_resources_have_descriptions_too() {
        let prompt = Definition::prompt(
            &json!({"name": "p", "arguments": [{"name": "a", "description": "x", "required": true}]}),
        )
        .unwrap();
        assert_eq!(
            prompt.schema_texts(),
            [("inputSchema.properties.a.description".to_owned(), "x".to_owned())]
        );
        let resource = Definition::resource(&json!({"uri": "file:///a", "description": "x"})).unwrap();
        assert_eq!(resource.description(), "x");
    }
}
