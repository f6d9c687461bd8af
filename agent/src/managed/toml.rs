//! Keys of a TOML file, changed without touching comments or how the others are written.

use serde_json::{Map, Value};
use toml_edit::{DocumentMut, InlineTable, Item, Table};

pub(super) fn get(text: &str, path: &[&str]) -> Result<Option<Value>, String> {
    let document = read(text)?;
    let mut item = document.as_item();
    for key in path {
        match item.get(key) {
            Some(inner) => item = inner,
            None => return Ok(None),
        }
    }
    Ok(from_item(item))
}

pub(super) fn set(text: &str, path: &[&str], value: Option<&Value>) -> Result<String, String> {
    let mut document = read(text)?;
    let (last, parents) = path.split_last().ok_or("no key")?;
    let mut table = document.as_table_mut() as &mut dyn toml_edit::TableLike;
    for key in parents {
        if value.is_none() && !table.contains_key(key) {
            return Ok(text.to_owned());
        }
        table = table
            .entry(key)
            .or_insert_with(|| Item::Table(Table::new()))
            .as_table_like_mut()
            .ok_or_else(|| format!("`{key}` is no table"))?;
    }
    match value {
        Some(value) => {
            table.insert(last, Item::Value(to_value(value)?));
        }
        None => {
            table.remove(last);
        }
    }
    Ok(document.to_string())
}

fn read(text: &str) -> Result<DocumentMut, String> {
    // The message of the library quotes the line, which may hold a secret.
    text.parse::<DocumentMut>().map_err(|error| {
        let line = error.span().map(|span| {
            text.get(..span.start)
                .map_or(1, |before| before.matches('\n').count() + 1)
        });
        line.map_or_else(
            || "no TOML".to_owned(),
            |line| format!("no TOML from line {line} on"),
        )
    })
}

fn from_item(item: &Item) -> Option<Value> {
    match item {
        Item::None => None,
        Item::Value(value) => from_value(value),
        Item::Table(table) => {
            Some(Value::Object(from_pairs(table.iter().filter_map(
                |(key, item)| Some((key.to_owned(), from_item(item)?)),
            ))))
        }
        Item::ArrayOfTables(_) => Some(Value::Null),
    }
}

fn from_pairs(pairs: impl Iterator<Item = (String, Value)>) -> Map<String, Value> {
    pairs.collect()
}

fn from_value(value: &toml_edit::Value) -> Option<Value> {
    Some(match value {
        toml_edit::Value::String(text) => text.value().as_str().into(),
        toml_edit::Value::Integer(number) => (*number.value()).into(),
        toml_edit::Value::Float(number) => (*number.value()).into(),
        toml_edit::Value::Boolean(flag) => (*flag.value()).into(),
        toml_edit::Value::Datetime(time) => time.value().to_string().into(),
        toml_edit::Value::Array(items) => items.iter().map(from_value).collect::<Option<Vec<_>>>()?.into(),
        toml_edit::Value::InlineTable(table) => Value::Object(from_pairs(
            table
                .iter()
                .filter_map(|(key, value)| Some((key.to_owned(), from_value(value)?))),
        )),
    })
}

fn to_value(value: &Value) -> Result<toml_edit::Value, String> {
    Ok(match value {
        Value::String(text) => text.as_str().into(),
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64().unwrap_or_default().into(),
        },
        Value::Array(items) => {
            let items: Vec<toml_edit::Value> = items.iter().map(to_value).collect::<Result<_, _>>()?;
            toml_edit::Value::Array(items.into_iter().collect())
        }
        Value::Object(members) => {
            let mut table = InlineTable::new();
            for (key, value) in members {
                table.insert(key, to_value(value)?);
            }
            toml_edit::Value::InlineTable(table)
        }
        Value::Null => return Err("TOML has no null".to_owned()),
    })
}
