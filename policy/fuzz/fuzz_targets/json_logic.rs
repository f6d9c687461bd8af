//! A rule and data, each a line of JSON: no panic, bounded time and memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (rule, data) = text.split_once('\n').unwrap_or((text, "null"));
    let (Ok(rule), Ok(data)) = (serde_json::from_str(rule), serde_json::from_str(data)) else {
        return;
    };
    let _value = kams_policy::apply(&rule, &data);
    let row = serde_json::json!({"id": "f", "kind": "run_facts", "value": data});
    let _facts = kams_policy::corpus_row(&row);
});
