//! Privileged host operations.
