//! `kams events -o json`, as a reader who knows only the documented names would read it.

use serde::Deserialize;

/// One line. Members that a line does not have are none, zero or empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(
    missing_docs,
    reason = "the names are the contract; their meaning is documented with the product"
)]
pub struct Event {
    pub seq: u64,
    pub event: String,
    pub uid: u32,
    pub agent: Option<String>,
    pub agent_pid: Option<u32>,
    pub server: Option<String>,
    pub server_id: Option<u64>,
    pub server_pid: Option<u32>,
    pub revision: Option<String>,
    pub direction: Option<String>,
    pub method: Option<String>,
    pub tool: Option<String>,
    pub request_id: Option<String>,
    pub outcome: Option<String>,
    pub error_code: Option<i64>,
    pub bytes: Option<u64>,
    pub stage: Option<String>,
    pub reason: Option<String>,
    pub gap: bool,
}
