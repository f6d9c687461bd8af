//! Any text as a policy, as a document, as a test file and as an export: no panic, and a refusal has words.
#![no_main]

use kams_policy::{NoFiles, Policy, run_tests, verify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Policy::load("fuzz.yaml", text, &NoFiles) {
        Ok(policy) => assert!(policy.warnings().iter().all(|w| !w.to_string().is_empty())),
        Err(problems) => assert!(problems.iter().any(|p| !p.message.is_empty())),
    }
    let files = std::collections::BTreeMap::from([("d".to_owned(), text.to_owned())]);
    let policy = "version: 1\nruns: {facts: [{tool: '*', numeric_keys: [n]}], policies: d}\n";
    assert!(Policy::load("p", policy, &files).map_or_else(|p| !p.is_empty(), |_| true));
    let _tests = run_tests(("d", Policy::default_text()), &NoFiles, ("fuzz", text));
    let _export = verify(text, None);
});
