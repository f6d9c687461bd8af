//! Redaction of any bytes: no panic; valid JSON stays valid.
#![no_main]

use kams_detect::egress::ClassSet;
use kams_detect::redact::{redact, redact_message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    redact_message(data, ClassSet::ALL);
    let Some(after) = redact(data, ClassSet::ALL) else {
        return;
    };
    if serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok() {
        assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&after).is_ok());
    }
});
