//! Support.
#![forbid(unsafe_code)]
pub mod forms;
pub mod mock_llm;
pub mod netbox;
