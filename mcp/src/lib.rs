//! Bytes to frames to JSON-RPC envelopes to MCP sessions. No IO, no clock, no unsafe.
#![forbid(unsafe_code)]
