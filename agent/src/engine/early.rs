//! Payload that came before the exec it belongs to.
//!
//! The kernel side watches a new server's streams before its exec lets the agent go on, and reports the exec
//! afterwards. An agent on another CPU may write its first line in between, so that the line comes first.

use std::collections::VecDeque;

use kams_host::{Chunk, StreamKey};

/// Bounds: an agent that fills a pipe and a socket buffer at once stays below them.
const CHUNKS: usize = 4_096;
const BYTES: usize = 16 << 20;
/// An exec is never reported later than this, nanoseconds.
const PATIENCE: u64 = 2_000_000_000;

/// Chunks whose stream is not known yet.
#[derive(Debug, Default)]
pub(super) struct Early {
    chunks: VecDeque<Chunk>,
    bytes: usize,
}

impl Early {
    /// Keeps a chunk; the oldest go where there is no room.
    pub(super) fn keep(&mut self, chunk: Chunk) {
        self.bytes += chunk.data.len();
        self.chunks.push_back(chunk);
        while self.chunks.len() > CHUNKS || self.bytes > BYTES {
            self.drop_first();
        }
    }

    /// Hands out what belongs to a server that started at `since`, in order.
    pub(super) fn take(&mut self, keys: &[StreamKey; 2], since: u64) -> Vec<Chunk> {
        let (own, others): (VecDeque<Chunk>, VecDeque<Chunk>) = std::mem::take(&mut self.chunks)
            .into_iter()
            .partition(|chunk| keys.contains(&chunk.key) && chunk.time_ns >= since);
        self.chunks = others;
        self.bytes = self.chunks.iter().map(|chunk| chunk.data.len()).sum();
        own.into()
    }

    /// Forgets what nobody will ask for.
    pub(super) fn forget_before(&mut self, now: u64) {
        while self
            .chunks
            .front()
            .is_some_and(|chunk| now.saturating_sub(chunk.time_ns) > PATIENCE)
        {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(chunk) = self.chunks.pop_front() {
            self.bytes -= chunk.data.len();
        }
    }
}
