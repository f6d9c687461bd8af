//! Support.
#![forbid(unsafe_code)]
pub mod mock_llm;
pub mod netbox;
