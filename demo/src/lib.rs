//! The two halves of `cargo xtask run --demo`: a note-keeping MCP server that is honest at first, and a
//! scripted agent that uses it. No model and no network is involved; both speak revision 2025-06-18 over pipes.
#![forbid(unsafe_code)]

pub mod notes;
