//! Integrity of what servers say (seed 001, SPEC section 2).

mod lexicon;
mod scorer;
mod sentence;
mod signals;
mod words;

pub use scorer::{Hit, Score, score};
pub use sentence::Channel;
