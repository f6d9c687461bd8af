//! `kams detect --corpus`: rows of the shared corpora in, result rows out.

pub mod behaviour;
pub mod egress;
