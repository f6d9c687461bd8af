//! The OTLP/HTTP receiver: what agents say about their own model calls, on a loopback address.
//!
//! `POST /v1/logs`, `/v1/traces` and `/v1/metrics`, in JSON or protobuf, plain or gzip. OTLP knows no users; the kernel
//! does: the socket at the other end has an owner. Texts are measured on arrival and dropped. Every bound of
//! [`Limits`] is checked before memory is spent, and what a user sends beyond their share is refused with 429.

mod body;
pub mod quota;
mod receiver;
pub mod sender;

pub use receiver::{Limits, Receiver};
