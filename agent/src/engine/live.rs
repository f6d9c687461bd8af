//! The sink of the running daemon: registry, feed, metrics.

use std::sync::Arc;

use kams_export::metrics::{Metrics, Operation};
use kams_export::view::{EventView, FindingRecord, Record};

use super::registry::Registry;
use super::sink::Sink;
use crate::admin::Feed;

/// Publishes what the engine tells.
#[derive(Clone)]
pub struct Live {
    /// Tables of the admin API.
    pub registry: Arc<Registry>,
    /// The record stream.
    pub feed: Arc<Feed>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl Sink for Live {
    fn event(&mut self, event: EventView) {
        self.registry.lock().apply(&event);
        self.metrics.event(event.event);
        self.feed.publish(Record::Event(event));
    }

    fn finding(&mut self, finding: FindingRecord) {
        if let Some(id) = finding.server_id
            && let Some(server) = self.registry.lock().server_mut(id)
        {
            server.findings += 1;
        }
        self.feed.publish(Record::Finding(finding));
    }

    fn answered(&mut self, operation: &Operation<'_>) {
        self.metrics.operation(operation);
    }

    fn frame(&mut self, outcome: &'static str) {
        self.metrics.frame(outcome);
    }
}
