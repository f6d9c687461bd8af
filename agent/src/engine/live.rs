//! The sink of the running daemon: registry, feed, metrics.

use std::sync::Arc;

use kams_detect::cost::Point;
use kams_detect::{Evidence, Finding};
use kams_export::metrics::{Metrics, Operation};
use kams_export::view::{EventView, FindingRecord, Record};

use super::counter::Counter;
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
    /// Counts what definitions cost, in its own time.
    pub counter: Counter,
}

impl Sink for Live {
    fn event(&mut self, event: EventView) {
        self.registry.lock().apply(&event);
        self.metrics.event(event.event);
        self.feed.publish(Record::Event(event));
    }

    fn finding(&mut self, finding: &Finding, record: FindingRecord) {
        if let Some(id) = record.server_id
            && let Some(server) = self.registry.lock().server_mut(id)
        {
            server.findings += 1;
        }
        if let Evidence::Drift { change, pinned, .. } = &finding.evidence {
            self.metrics.drift(&record.server, change);
            if *pinned {
                self.metrics
                    .pinned_drift(&record.server, change, finding.severity.name());
            }
        } else {
            self.metrics
                .finding(finding.detector, finding.severity.name(), &record.action);
        }
        self.feed.publish(Record::Finding(record));
    }

    fn cost(&mut self, server_id: u64, point: &Point) {
        self.metrics
            .cost_tokens(&point.server, point.tokens, point.estimated);
        if let Some(server) = self.registry.lock().server_mut(server_id) {
            *server.result_tokens.get_or_insert(0) += point.tokens;
        }
    }

    fn definitions(&mut self, server_id: u64, server: &str, first: bool, raw: Vec<String>) {
        self.counter.count(server_id, server, first, raw);
    }

    fn answered(&mut self, operation: &Operation<'_>) {
        self.metrics.operation(operation);
    }

    fn frame(&mut self, outcome: &'static str) {
        self.metrics.frame(outcome);
    }
}
