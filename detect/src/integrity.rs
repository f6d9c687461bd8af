//! Integrity of what servers say (seed 001, SPEC section 2): `integrity.definition_drift`,
//! `.description_injection`, `.tool_squatting` and `.result_injection`.
//!
//! Rules decide, no model: the same text always gives the same score, and each score lists the signals behind
//! it with the words they fired on.

mod added;
mod canonical;
mod definition;
mod drift;
mod inspect;
mod lexicon;
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
pub use squatting::{SQUATTING, deceptive_name, shadowing};
