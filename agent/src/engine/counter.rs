//! Counts what tool definitions cost in the context, on a thread of its own: a tokenizer takes too long for the
//! path of a verdict.

pub mod tokenizer;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use kams_detect::cost::Definitions;
use kams_export::metrics::Metrics;

use super::registry::Registry;
use tokenizer::Tokenizer;

/// Lists that may wait; more are left uncounted until the server lists again.
const QUEUE: usize = 256;
/// Servers whose running list is remembered.
const SERVERS: usize = 4_096;
/// After this long without a list the tokenizer's memory is given back. Agents start their servers together.
const REST_AFTER: Duration = Duration::from_secs(5);

struct Listed {
    server_id: u64,
    server: String,
    first: bool,
    raw: Vec<String>,
}

/// The way to the counting thread.
#[derive(Clone, Debug)]
pub struct Counter(SyncSender<Listed>);

impl std::fmt::Debug for Listed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listed")
            .field("server_id", &self.server_id)
            .finish_non_exhaustive()
    }
}

impl Counter {
    /// Starts the thread; it ends with the last handle.
    pub fn start(
        registry: Arc<Registry>,
        metrics: Arc<Metrics>,
        tokenizer: Tokenizer,
    ) -> std::io::Result<Self> {
        let (lists, queue) = sync_channel(QUEUE);
        thread::Builder::new()
            .name("definitions".to_owned())
            .spawn(move || run(&queue, &registry, &metrics, tokenizer))?;
        Ok(Self(lists))
    }

    /// Hands over a page of a list. Never waits.
    pub fn count(&self, server_id: u64, server: &str, first: bool, raw: Vec<String>) {
        let listed = Listed {
            server_id,
            server: server.to_owned(),
            first,
            raw,
        };
        if self.0.try_send(listed).is_err() {
            tracing::debug!(server, "too many lists at once: one is not counted");
        }
    }
}

fn run(queue: &Receiver<Listed>, registry: &Registry, metrics: &Metrics, mut tokenizer: Tokenizer) {
    let mut definitions = Definitions::default();
    let mut totals: HashMap<u64, u64> = HashMap::new();
    loop {
        let Listed {
            server_id,
            server,
            first,
            raw,
        } = match queue.recv_timeout(REST_AFTER) {
            Ok(listed) => listed,
            Err(RecvTimeoutError::Timeout) => {
                tokenizer.rest();
                match queue.recv() {
                    Ok(listed) => listed,
                    Err(_) => return,
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // One failure is enough for a list: each costs the child's time, and a line in the log.
        let mut failed = false;
        let mut count = |text: &str| {
            if failed {
                return None;
            }
            match tokenizer.count(text) {
                Ok(tokens) => Some(tokens),
                Err(error) => {
                    tracing::warn!(%error, server, "no tokenizer: the cost of this server's definitions is a rough estimate");
                    failed = true;
                    None
                }
            }
        };
        let page: u64 = raw
            .iter()
            .map(|text| definitions.tokens_by(text, &mut count))
            .sum();
        if totals.len() >= SERVERS && !totals.contains_key(&server_id) {
            totals.clear();
        }
        let total = totals.entry(server_id).or_default();
        *total = if first { page } else { *total + page };
        metrics.set_definition_tokens(&server, *total);
        if let Some(view) = registry.lock().server_mut(server_id) {
            view.definition_tokens = Some(*total);
        }
    }
}
