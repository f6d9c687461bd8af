//! Keys of a JSON file, changed without touching how the others are written.

use indexmap::IndexMap;
use serde_json::Value;
use serde_json::value::RawValue;

/// Members in their order, each as it is written.
type Members = IndexMap<String, Box<RawValue>>;

pub(super) fn get(text: &str, path: &[&str]) -> Result<Option<Value>, String> {
    let (first, rest) = path.split_first().ok_or("no key")?;
    let members = members(text)?;
    let Some(raw) = members.get(*first) else {
        return Ok(None);
    };
    if rest.is_empty() {
        return serde_json::from_str(raw.get())
            .map(Some)
            .map_err(|error| broken(&error));
    }
    get(raw.get(), rest)
}

pub(super) fn set(text: &str, path: &[&str], value: Option<&Value>) -> Result<String, String> {
    Ok(set_in(text, path, value, 0)? + "\n")
}

fn set_in(text: &str, path: &[&str], value: Option<&Value>, depth: usize) -> Result<String, String> {
    let (first, rest) = path.split_first().ok_or("no key")?;
    let mut members = members(text)?;
    let new = if rest.is_empty() {
        value.map(ToString::to_string)
    } else {
        match members.get(*first) {
            Some(inner) => Some(set_in(inner.get(), rest, value, depth + 1)?),
            None if value.is_none() => None,
            None => Some(set_in("", rest, value, depth + 1)?),
        }
    };
    match new {
        Some(new) => {
            let raw = RawValue::from_string(new).map_err(|error| broken(&error))?;
            members.insert((*first).to_owned(), raw);
        }
        None => {
            members.shift_remove(*first);
        }
    }
    Ok(print(&members, depth))
}

/// The members of an object; none in an empty text. A name that stands twice is refused: one of the two would go.
fn members(text: &str) -> Result<Members, String> {
    if text.trim().is_empty() {
        return Ok(Members::new());
    }
    let members: Members = serde_json::from_str(text).map_err(|error| broken(&error))?;
    let all: Twice = serde_json::from_str(text).map_err(|error| broken(&error))?;
    if all.0 != members.len() {
        return Err("a key stands in it twice".to_owned());
    }
    Ok(members)
}

/// Counts members, repeated ones too.
struct Twice(usize);

impl<'de> serde::Deserialize<'de> for Twice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl<'de> serde::de::Visitor<'de> for Count {
            type Value = Twice;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Twice, A::Error> {
                let mut count = 0;
                while map
                    .next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?
                    .is_some()
                {
                    count += 1;
                }
                Ok(Twice(count))
            }
        }
        deserializer.deserialize_map(Count)
    }
}

fn print(members: &Members, depth: usize) -> String {
    if members.is_empty() {
        return "{}".to_owned();
    }
    let (inner, outer) = ("  ".repeat(depth + 1), "  ".repeat(depth));
    let lines: Vec<String> = members
        .iter()
        .map(|(key, raw)| format!("{inner}{}: {}", Value::from(key.as_str()), raw.get()))
        .collect();
    format!("{{\n{}\n{outer}}}", lines.join(",\n"))
}

fn broken(error: &serde_json::Error) -> String {
    kams_detect::redact::json_error(error)
}
