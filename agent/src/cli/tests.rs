//! Command lines against a kamsd of the test's own.

mod fixture;

mod offline;
mod online;
mod streams;
