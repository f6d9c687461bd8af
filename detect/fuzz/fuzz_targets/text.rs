//! The whole text pipeline on any input: no panic, spans inside the text, scores within 0..1, excerpts within
//! their limit. The input is text, a name, a tool object, and (cut in two) a change.
#![no_main]

use kams_detect::Evidence;
use kams_detect::integrity::{
    Channel, Definition, Names, Thresholds, deceptive_name, diff, first_sighting, score, shadowing,
};
use kams_detect::text::{blobs, reveal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let shown = reveal(&text);
    for at in [0, shown.text.len() / 2, shown.text.len()] {
        assert!(shown.map.original_range(at..shown.text.len(), text.len()).end <= text.len());
    }
    for blob in blobs(&text) {
        assert!(text.get(blob.span).is_some());
    }
    for channel in [
        Channel::Description,
        Channel::Parameter,
        Channel::Instructions,
        Channel::Result,
    ] {
        let found = score(&text, channel);
        assert!((0.0..=1.0).contains(&found.value));
        for hit in &found.hits {
            assert!(hit.span.start <= hit.span.end && hit.span.end <= text.len());
        }
    }
    let half = (0..=text.len() / 2)
        .rev()
        .find(|i| text.is_char_boundary(*i))
        .unwrap_or(0);
    let (before, after) = text.split_at(half);
    let _ = deceptive_name(before);
    let _ = shadowing(before, [&Names::from_iter([after])]);
    let change = diff(
        Some(&Definition::instructions(before)),
        Some(&Definition::instructions(after)),
        true,
        Thresholds::default(),
    );
    for finding in change {
        if let Evidence::Drift {
            description_after: Some(quote),
            ..
        } = finding.evidence
        {
            assert!(quote.chars().count() <= 300);
        }
    }
    if let Ok(tool) = Definition::tool_from_slice(data) {
        let _ = first_sighting(&tool, Thresholds::default());
        assert!(diff(Some(&tool), Some(&tool), false, Thresholds::default()).is_empty());
    }
});
