//! The relay between real pipes and sockets, with an engine of the test's own.
#![expect(clippy::tests_outside_test_module, clippy::unwrap_used, reason = "a test")]

mod ends;
mod engine;
mod pool;
mod rig;
mod verdicts;
