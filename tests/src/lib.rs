//! What the end-to-end tests stand on: real agents and servers from their registries, a mock LLM, drivers for every
//! form of message, witnesses that write down what a server itself read and wrote, and a running Kams.
//!
//! Nothing here uses code of Kams: the comparison would prove nothing.
#![forbid(unsafe_code)]

pub mod agents;
pub mod churn;
pub mod compare;
pub mod desk;
pub mod event;
pub mod forms;
pub mod kams;
pub mod kit;
pub mod load;
pub mod mock_llm;
pub mod netbox;
pub mod planted;
pub mod processes;
pub mod relay_bench;
pub mod service;
pub mod stage;
pub mod wire;
