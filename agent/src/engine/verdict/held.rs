//! Calls that a relay holds, as the engine remembers them.

use kams_mcp::{Nanos, RequestId};
use kams_relay::peek::Head;

/// How often a client that waits is told that it waits, in nanoseconds. Clients give up after about a minute.
const PROGRESS: Nanos = 10_000_000_000;

/// One call.
#[derive(Debug)]
pub(super) struct HeldCall {
    pub(super) seq: u64,
    pub(super) approval: u64,
    pub(super) id: RequestId,
    pub(super) head: Head,
    /// JSON text of the progress token, where the request carries one.
    token: Option<String>,
    told: u64,
    next: Nanos,
}

impl HeldCall {
    pub(super) const fn new(
        seq: u64,
        approval: u64,
        id: RequestId,
        head: Head,
        token: Option<String>,
        now: Nanos,
    ) -> Self {
        Self {
            seq,
            approval,
            id,
            head,
            token,
            told: 0,
            next: now,
        }
    }

    /// A message to the client that the call is not forgotten, if it is time for one.
    pub(super) fn progress(&mut self, now: Nanos) -> Option<Vec<u8>> {
        let token = self.token.as_ref()?;
        if now < self.next {
            return None;
        }
        self.next = now.saturating_add(PROGRESS);
        self.told += 1;
        Some(
            format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\
                 \"progress\":{},\"message\":\"Kams: waits for approval\"}}}}\n",
                self.told
            )
            .into_bytes(),
        )
    }
}
