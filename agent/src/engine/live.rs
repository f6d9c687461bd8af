//! The sink of the running daemon: registry, feed, metrics.

use std::sync::Arc;

use kams_detect::cost::Point;
use kams_detect::finding::cut;
use kams_detect::{Evidence, Finding};
use kams_export::metrics::{Metrics, Operation};
use kams_export::view::{EventView, FindingRecord, Record, ServerState, Time};

use super::counter::Counter;
use super::registry::Registry;
use super::sink::{Sink, ToolState};
use crate::admin::Feed;

/// Characters of a title or description that are shown.
const SHOWN: usize = 300;

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

impl Live {
    /// Sets the gauges of servers and agents to what the tables hold.
    pub fn count_servers(&self) {
        let tables = self.registry.lock();
        for state in ServerState::ALL {
            self.metrics
                .set_servers(state, tables.servers().filter(|s| s.state == state).count());
        }
        self.metrics
            .set_agents(tables.agents().filter(|a| a.live).count());
    }
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
        if let Evidence::Waste { rule, .. } = &finding.evidence {
            self.metrics.waste(rule);
        }
        self.feed.publish(Record::Finding(record));
    }

    fn cost(&mut self, server_id: u64, point: &Point) {
        self.metrics
            .cost_tokens(&point.server, point.tokens, point.estimated);
        if let Some(server) = self.registry.lock().server_mut(server_id) {
            let sum = if point.estimated {
                &mut server.result_tokens
            } else {
                &mut server.true_result_tokens
            };
            *sum.get_or_insert(0) += point.tokens;
        }
    }

    fn definitions(&mut self, server_id: u64, server: &str, first: bool, raw: Vec<String>) {
        self.counter.count(server_id, server, first, raw);
    }

    fn tool(&mut self, server_id: u64, tool: &ToolState<'_>) {
        let text = |text: &str| (!text.is_empty()).then(|| cut(text, SHOWN).to_owned());
        let mut tables = self.registry.lock();
        if let Some(view) = tables.tool_mut(server_id, tool.name, Time::now()) {
            view.title = text(tool.title);
            view.description = text(tool.description);
            view.baseline = tool.baseline.map(str::to_owned);
            view.baseline_changed = tool.changed;
        }
    }

    fn answered(&mut self, operation: &Operation<'_>) {
        self.metrics.operation(operation);
    }

    fn frame(&mut self, outcome: &'static str) {
        self.metrics.frame(outcome);
    }

    fn decided(&mut self, decision: &'static str, rule: &str) {
        self.metrics.decision(decision, rule);
    }

    fn failed(&mut self, mode: &'static str, count: u64) {
        self.metrics.relay_failmode(mode, count);
    }

    fn verdict(&mut self, seconds: f64) {
        self.metrics.relay_verdict(seconds);
    }

    fn gate(&mut self, restrictions: &[(&'static str, usize)], (n, hash): (u64, &str)) {
        for (action, count) in restrictions {
            self.metrics.set_restrictions(action, *count);
        }
        self.metrics.set_decision_head(n, hash);
    }
}
