//! Integrity of what servers say (seed 001, SPEC section 2): `integrity.definition_drift`,
//! `.description_injection`, `.tool_squatting` and `.result_injection`.
//!
//! Rules decide: the same text always gives the same score, and each score lists the signals behind it with the
//! words they fired on. One of the signals is a small linear model ([`linear`]).
//!
//! # How the scorer was tuned, and what it reaches (2026-11-30)
//!
//! Signals, word classes and weights are made by hand but for the wording signal, which is fitted on the project's
//! own texts. All open corpus rows were looked at while tuning, so this table is fit, not prediction
//! (`tests/strata.rs` holds floors; `examples/strata.rs` prints it):
//!
//! | kind, stratum | rows | at 0.30 | at 0.55 |
//! | --- | --- | --- | --- |
//! | description, overt | 134 | 133 | 132 |
//! | description, obfuscated | 13 | 13 | 12 |
//! | description, covert (mostly out of reach for text) | 30 | 5 | 1 |
//! | parameter, overt | 4 | 4 | 4 |
//! | instructions, overt | 1 | 1 | 1 |
//! | result, overt | 169 | 165 | 161 |
//! | result, obfuscated | 14 | 14 | 14 |
//! | result, covert | 67 | 18 | 14 |
//! | benign description: real / hard / peer_fp / twin / unicode | 452 / 35 / 6 / 13 / 10 | 3 / 0 / 0 / 0 / 0 | 0 |
//! | benign parameter, real | 212 | 0 | 0 |
//! | benign result: real / hard / mention | 212 / 62 / 21 | 7 / 3 / 3 | 0 / 0 / 2 |
//!
//! Names: all right. Drift: 120 of 120 rows have their classes; every malicious delta is at 0.30 or above, no benign
//! one is.
//!
//! What to expect on new wording: `corpus/texts.jsonl` holds style families that were written first, never looked at
//! one by one, and counted only (split `held`). "Rules" is the scorer without the wording signal, "before" the one whose
//! wording signal had 1,300 texts to learn from (now 4,700) and did not weigh the other signals.
//!
//! | held families | rows | at 0.30 (rules, before) | at 0.55 (rules, before) |
//! | --- | --- | --- | --- |
//! | description, overt: polite, passive, data flow, protocol, authority, lures, six languages | 71 | 70 % (32, 58) | 54 % (17, 38) |
//! | description, overt: figures of speech, hints, odd markup | 36 | 42 % | 31 % |
//! | description, encoded in 16 ways | 32 | 100 % (97, 100) | 100 % (81, 100) |
//! | parameter, overt | 16 | 56 % | 31 % |
//! | result, overt: ten families of single sentences | 91 | 49 % (44, 58) | 34 % (19, 36) |
//! | result, overt: five families after published attacks, inside data | 26 | 92 % | 65 % |
//! | result, encoded | 26 | 100 % | 100 % |
//! | honest descriptions, parameters and instructions, written to be hard | 80 | 2 % | 1 % |
//! | honest results, written to be hard or about attacks | 78 | 13 % | 5 % |
//!
//! Eleven families of 57 descriptions after published attacks were counted once, before texts like them were added to
//! what is learnt: 75 % at 0.30 and 61 % at 0.55. Leaving whole families out of what is learnt (1,380 descriptions, 770
//! results, five parts), 70 % of the hostile descriptions reach 0.30 and 57 % 0.55, of the hostile results 62 and 40 %.
//!
//! Honest text of others that is no part of the corpora: of 1,044 descriptions and parameters of 17 published servers
//! two reach 0.30 (12 before) and none 0.55 (one before); those that did were looked at, and honest texts like them
//! added. Of 2,000 pieces of 3 KB of read-me files, changelogs, manuals and documentation 0.9 % reach 0.55 (3.0 before).

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
pub use scorer::{Hit, Score, score, score_with};
pub use sentence::Channel;
pub use squatting::{Names, SQUATTING, deceptive_name, shadowing};
