//! Counts what tool definitions cost in the context, on a thread of its own: a tokenizer takes too long for the
//! path of a verdict.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use kams_detect::cost::Definitions;
use kams_export::metrics::Metrics;

use super::registry::Registry;

/// Lists that may wait; more are left uncounted until the server lists again.
const QUEUE: usize = 256;
/// Servers whose running list is remembered.
const SERVERS: usize = 4_096;

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
    pub fn start(registry: Arc<Registry>, metrics: Arc<Metrics>) -> std::io::Result<Self> {
        let (lists, queue) = sync_channel(QUEUE);
        thread::Builder::new()
            .name("definitions".to_owned())
            .spawn(move || run(&queue, &registry, &metrics))?;
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

fn run(queue: &Receiver<Listed>, registry: &Registry, metrics: &Metrics) {
    let mut definitions = Definitions::default();
    let mut totals: HashMap<u64, u64> = HashMap::new();
    while let Ok(Listed {
        server_id,
        server,
        first,
        raw,
    }) = queue.recv()
    {
        let page: u64 = raw.iter().map(|text| definitions.tokens(text)).sum();
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
