//! What is read of a line must agree with serde_json wherever serde_json reads it too.
#![no_main]

use kams_mcp::{Envelope, Json, Message, visible};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fn compare(envelope: &Envelope<'_>) {
    let Ok(Value::Object(object)) = serde_json::from_str(envelope.json.get()) else {
        // Too deep, or a lone surrogate: ours is the wider reader.
        return;
    };
    assert_eq!(
        envelope.method.as_deref(),
        object.get("method").and_then(Value::as_str)
    );
    for (name, part) in [
        ("params", &envelope.params),
        ("result", &envelope.result),
        ("error", &envelope.error),
    ] {
        let part = part
            .as_ref()
            .map(|part| serde_json::from_str::<Value>(part.get()).expect("a part is valid"));
        assert_eq!(part.as_ref(), object.get(name));
    }
    assert_eq!(envelope.id.is_some(), object.contains_key("id"));
    if envelope.oddities.duplicate_key.is_none() && !envelope.oddities.keys_unchecked {
        assert_eq!(envelope.json.members().count(), object.len());
    }
    if let Some(result) = &envelope.result {
        visible::texts(result, &mut |text| {
            assert!(text.path.to_string().starts_with('$'))
        });
    }
    if let Some(error) = &envelope.error {
        visible::error_texts(error, &mut |_| {});
    }
    same(&envelope.json, &Value::Object(object));
}

/// Walks both readings of a value.
fn same(json: &Json<'_>, value: &Value) {
    match value {
        Value::Object(object) => {
            for (name, member) in object {
                same(&json.member(name).expect("a member"), member);
            }
        }
        Value::Array(array) => {
            assert_eq!(json.elements().count(), array.len());
            json.elements()
                .zip(array)
                .for_each(|(json, value)| same(&json, value));
        }
        Value::String(text) => assert_eq!(json.as_str().as_deref(), Some(text.as_str())),
        Value::Bool(value) => assert_eq!(json.as_bool(), Some(*value)),
        Value::Number(_) | Value::Null => assert_eq!(
            serde_json::from_str::<Value>(json.get()).ok().as_ref(),
            Some(value)
        ),
    }
}

fuzz_target!(|line: &[u8]| {
    // A member is looked up in linear time, so comparing is quadratic in this target.
    if line.len() > 4096 {
        return;
    }
    match Message::parse(line) {
        Ok(Message::Single(envelope)) => compare(&envelope),
        Ok(Message::Batch(elements)) => elements.iter().flatten().for_each(compare),
        Err(_) => {}
    }
});
