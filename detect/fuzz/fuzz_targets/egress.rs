//! Any bytes as arguments and as a message: no panic, and no eight bytes of a planted secret in what comes out.
#![no_main]

use kams_detect::egress::{Salt, scan_arguments, scan_message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let salt = Salt::new(b"fuzz");
    scan_arguments(data, Some("tool"), &salt);
    scan_message(data, None, &salt);
    let secret = ["ghp", "_R7kQ2mZ9xT4bV1nW8cL5sD3gH6jP0aYeUoIq"].concat();
    let document = serde_json::json!({ String::from_utf8_lossy(data): [secret] }).to_string();
    let shown = format!("{:?}", scan_arguments(document.as_bytes(), None, &salt));
    // The fuzzer may write a part of the secret into the key, which the path shows only where it is no part.
    assert!(
        !secret
            .as_bytes()
            .windows(8)
            .any(|part| { std::str::from_utf8(part).is_ok_and(|part| shown.contains(part)) })
    );
});
