//! Wiring of kamsd and kams: configuration, discovery, engine, admin API, command line.

pub mod admin;
pub mod clients;
pub mod cli;
pub mod config;
pub mod discover;
pub mod engine;
pub mod policy_file;
pub mod salt;
