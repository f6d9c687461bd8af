//! Integrity of what servers say (seed 001, SPEC section 2): `integrity.definition_drift`,
//! `.description_injection`, `.tool_squatting` and `.result_injection`.
//!
//! Rules decide, no model: the same text always gives the same score, and each score lists the signals behind
//! it with the words they fired on.
//!
//! # How the scorer was tuned, and what it reaches (2026-11-30)
//!
//! Signals, word classes and weights are made by hand. All open corpus rows were looked at while tuning, so the
//! table below is fit, not prediction; there is no half that stayed unseen. (`tests/strata.rs` holds floors.)
//!
//! | kind, stratum | rows | at 0.30 | at 0.55 |
//! | --- | --- | --- | --- |
//! | description, overt | 134 | 134 | 124 |
//! | description, obfuscated | 13 | 13 | 12 |
//! | description, covert (out of reach for text) | 30 | 1 | 0 |
//! | parameter, overt | 4 | 4 | 4 |
//! | instructions, overt | 1 | 1 | 1 |
//! | result, overt | 169 | 166 | 161 |
//! | result, obfuscated | 14 | 14 | 14 |
//! | result, covert | 67 | 19 | 8 |
//! | benign description: real / hard / peer_fp / twin / unicode | 452 / 35 / 6 / 13 / 10 | 3 / 0 / 0 / 0 / 0 | 0 |
//! | benign parameter, real | 212 | 0 | 0 |
//! | benign result: real / hard / mention | 212 / 62 / 21 | 16 / 5 / 7 | 0 / 1 / 1 |
//!
//! Names: all right. Drift: 120 of 120 rows have their classes; every malicious delta is at least 0.60, every
//! benign one below 0.19.
//!
//! What to expect on new wording: 91 attacks in the project's own words, in English and eleven more languages, were scored in two
//! batches. Share on first sight, before anything was changed for them:
//!
//! | batch | descriptions at 0.30, 0.55 | results at 0.30, 0.55 |
//! | --- | --- | --- |
//! | first | 22 and 20 of 31 | 18 and 12 of 25 |
//! | second, after the first was learnt from | 15 and 13 of 20 | 12 and 9 of 15 |
//!
//! Forty honest texts written to be hard gave, on first sight, 4 of 22 descriptions at 0.30 (2 at 0.55) and 2 of
//! 18 results at 0.55. They are harder than real servers; both kinds were learnt from afterwards.
//! Four attacks in 56 disguises, as description and as result: 442 of 448 (390 before the misses were mended).

mod added;
mod canonical;
mod definition;
mod drift;
mod inspect;
mod lexicon;
pub mod linear;
mod schema;
mod scorer;
mod sentence;
mod signals;
mod squatting;
mod words;

pub use definition::{Definition, DefinitionError, Subject};
pub use drift::{Baseline, Change, DRIFT, DRIFT_CODE, compare, diff};
pub use inspect::{
    DESCRIPTION_INJECTION, RESULT_INJECTION, Thresholds, first_sighting, result_text, text_finding,
};
pub use scorer::{Hit, Score, score};
pub use sentence::Channel;
pub use squatting::{Names, SQUATTING, deceptive_name, shadowing};
