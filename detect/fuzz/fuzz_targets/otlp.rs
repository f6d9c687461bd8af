//! The readers of agents' telemetry on any input: no panic, and what is read is bounded. The first byte chooses signal
//! and form.
#![no_main]

use kams_detect::waste::Config;
use kams_detect::waste::telemetry::{
    MAX_EXPORTED, MAX_EXPORTED_ARGUMENTS, Signal, calls, from_json, from_protobuf, read_json,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((choice, body)) = data.split_first() else {
        return;
    };
    let signal = match choice & 3 {
        0 => Signal::Logs,
        1 => Signal::Traces,
        _ => Signal::Metrics,
    };
    let read = if choice & 4 == 0 {
        from_protobuf(signal, body)
    } else {
        from_json(signal, body)
    };
    if let Ok(export) = read {
        let config = Config::default();
        let found = calls(&export, &config);
        assert!(found.len() <= MAX_EXPORTED);
        let kept: usize = found
            .iter()
            .flat_map(|call| &call.tool_calls)
            .map(|tool| tool.arguments.looped.bytes)
            .sum();
        assert!(kept <= MAX_EXPORTED_ARGUMENTS);
        // Read once more it says the same: nothing depends on what was read before.
        assert_eq!(calls(&export, &config), found);
    }
    let _ = read_json(body);
});
