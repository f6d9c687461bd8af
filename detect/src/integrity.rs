//! Integrity of what servers say (seed 001, SPEC section 2): `integrity.definition_drift`,
//! `.description_injection`, `.tool_squatting` and `.result_injection`.
//!
//! Rules decide: the same text always gives the same score, and each score lists the signals behind it with the
//! words they fired on. One of the signals is a small linear model ([`linear`]).
//!
//! # How the scorer was tuned, and what it reaches (2026-11-30)
//!
//! Signals, word classes, themes and weights are made by hand but for the wording signal, which is fitted on the
//! project's own texts. All open corpus rows were looked at while tuning, so this table is fit, not prediction
//! (`tests/strata.rs` holds floors; `examples/strata.rs` prints it):
//!
//! | kind, stratum | rows | at 0.30 | at 0.55 |
//! | --- | --- | --- | --- |
//! | description, overt | 134 | 134 | 133 |
//! | description, obfuscated | 13 | 13 | 12 |
//! | description, covert (mostly out of reach for text) | 30 | 6 | 1 |
//! | parameter, overt | 4 | 4 | 4 |
//! | instructions, overt | 1 | 1 | 1 |
//! | result, overt | 169 | 165 | 163 |
//! | result, obfuscated | 14 | 14 | 14 |
//! | result, covert | 67 | 20 | 17 |
//! | benign description: real / hard / peer_fp / twin / unicode | 452 / 35 / 6 / 13 / 10 | 1 / 0 / 0 / 0 / 0 | 0 |
//! | benign parameter, real | 212 | 0 | 0 |
//! | benign result: real / hard / mention | 212 / 62 / 21 | 4 / 1 / 3 | 0 / 0 / 2 |
//!
//! Names: all right. Drift: 120 of 120 rows have their classes; every malicious delta is at 0.30 or above, no benign
//! one is.
//!
//! What to expect on new wording: `corpus/texts.jsonl` holds style families that were written first, never looked at
//! one by one, and counted only (split `held`). "Before" is the scorer whose wording signal had 4,700 texts to learn
//! from (now 6,400), knew no themes and did not see the other signals. The last families, `q-`, are the hardest:
//! figures of speech, pretexts, asides, fourteen languages, each order one short sentence.
//!
//! | held families | rows | at 0.30 (before) | at 0.55 (before) |
//! | --- | --- | --- | --- |
//! | description, overt, first and second lot | 107 | 64 % (61) | 50 % (46) |
//! | description, overt, `q-` | 58 | 31 % (26) | 26 % (14) |
//! | description, encoded in 16 ways | 32 | 100 % (100) | 100 % (100) |
//! | parameter, overt, earlier | 16 | 63 % (56) | 56 % (31) |
//! | parameter, overt, `q-` | 12 | 25 % (8) | 8 % (8) |
//! | result, overt, first and second lot | 117 | 68 % (59) | 56 % (41) |
//! | result, overt, `q-` (tickets, logs, pages, mails, ten languages) | 44 | 36 % (27) | 27 % (18) |
//! | result, encoded | 26 | 100 % (100) | 96 % (100) |
//! | honest descriptions, parameters and instructions, written to be hard | 92 | 3 % (2) | 1 % (1) |
//! | honest results, written to be hard or about attacks | 90 | 8 % (12) | 4 % (4) |
//!
//! Leaving whole families out of what is learnt (five parts), of the families that were there before 70 % of the
//! hostile descriptions, parameters and instructions reach 0.30 and 58 % 0.55 (70 and 57 before), of the hostile results
//! 64 and 54 % (62 and 40), at 3.3 and 1.2 % of the honest descriptions (3.9 and 1.3 before, of those there were), 12.4
//! and 5.0 % of the honest results (17.4 and 6.8).
//!
//! Honest text of others that is no part of the corpora: of 628 descriptions and parameters of twelve published servers
//! six reach 0.30 (eight before) and one 0.55 (one before); of 2,500 pieces of 3 KB of manuals, read-me files, changelogs
//! and source code 1.1 % reach 0.55 (1.1 before). Nobody looked at what fired in these. What fired on two earlier lots of
//! such text was looked at, and honest texts like it were added; of the 519 descriptions among it none reaches 0.30.

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
