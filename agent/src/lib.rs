//! Wiring of kamsd and kams: configuration, discovery, engine, admin API, command line.
#![forbid(unsafe_code)]

pub mod admin;
pub mod alone;
pub mod cli;
pub mod clients;
pub mod config;
pub mod discover;
pub mod engine;
pub mod fatal;
pub mod managed;
pub mod policy_file;
pub mod salt;
pub mod telemetry;
pub mod watchdog;
pub mod wrap;
