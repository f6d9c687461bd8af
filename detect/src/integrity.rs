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
//! | description, overt | 134 | 134 | 134 |
//! | description, obfuscated | 13 | 13 | 12 |
//! | description, covert (mostly out of reach for text) | 30 | 8 | 4 |
//! | parameter, overt | 4 | 4 | 4 |
//! | instructions, overt | 1 | 1 | 1 |
//! | result, overt | 169 | 165 | 164 |
//! | result, obfuscated | 14 | 14 | 14 |
//! | result, covert | 67 | 24 | 19 |
//! | benign description: real / hard / peer_fp / twin / unicode | 452 / 35 / 6 / 13 / 10 | 1 / 0 / 0 / 0 / 0 | 0 |
//! | benign parameter, real | 212 | 0 | 0 |
//! | benign result: real / hard / mention | 212 / 62 / 21 | 7 / 2 / 3 | 1 / 0 / 2 |
//!
//! Names: all right. Drift: 120 of 120 rows have their classes; every malicious delta is at 0.30 or above, no benign
//! one is.
//!
//! What to expect on new wording: `corpus/texts.jsonl` holds style families that were written first, never looked at
//! one by one, and counted only (split `held`). "Before" is the scorer whose wording signal had 6,400 texts to learn
//! from (now 10,850) and no pairs of what stands for words. The families `q-` are the hardest: figures of speech,
//! pretexts, asides, fourteen languages, each order one short sentence; `u-h-` and `x-r-` are the last.
//!
//! | held families | rows | at 0.30 (before) | at 0.55 (before) |
//! | --- | --- | --- | --- |
//! | description, overt, first and second lot | 107 | 75 % (64) | 69 % (50) |
//! | description, overt, `q-` | 58 | 48 % (31) | 36 % (26) |
//! | description, overt, `u-h-` | 82 | 82 % (68) | 74 % (55) |
//! | description, encoded in 16 ways | 32 | 100 % (100) | 100 % (100) |
//! | parameter, overt, earlier | 16 | 69 % (63) | 63 % (56) |
//! | parameter, overt, `q-` | 12 | 58 % (25) | 17 % (8) |
//! | parameter and instructions, overt, `u-h-` | 11 | 64 % (64) | 55 % (45) |
//! | result, overt, first and second lot | 117 | 80 % (68) | 72 % (56) |
//! | result, overt, `q-` (tickets, logs, pages, mails, ten languages) | 44 | 52 % (36) | 41 % (27) |
//! | result, overt, `x-r-` | 98 | 85 % (68) | 73 % (52) |
//! | result, encoded | 26 | 100 % (100) | 100 % (96) |
//! | honest descriptions, parameters and instructions, written to be hard, earlier | 92 | 3 % (3) | 3 % (1) |
//! | the same, `u-h-` | 40 | 3 % (5) | 0 % (3) |
//! | honest descriptions and parameters as real servers have them, `u-h-` | 39 | 0 % (0) | 0 % (0) |
//! | honest results, written to be hard or about attacks, earlier | 90 | 12 % (8) | 7 % (4) |
//! | the same, `x-r-`; as real servers give them, `x-r-` | 45 / 45 | 9 % (7) / 0 % (0) | 7 % (4) / 0 % (0) |
//!
//! Leaving whole families out of what is learnt (five parts), of the families that were there before 68 % of the
//! hostile descriptions, parameters and instructions reach 0.30 and 60 % 0.55 (62 and 50 before), of the new ones, which
//! are all different from one another, 38 and 29 %; of the hostile results 63 and 51 % (60 and 49), at 3.5 and 1.6 % of
//! the honest descriptions (3.3 and 1.2), 12.8 and 5.1 % of the honest results (12.4 and 5.0).
//!
//! Honest text of others that is no part of the corpora: of 682 descriptions and parameters of seven published servers
//! three parameters reach 0.30 and none 0.55; nobody looked at what fired. Before, with other servers and pieces of
//! manuals, six of 628 and one, and 1.1 % of 2,500 pieces of 3 KB reached 0.55.

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
