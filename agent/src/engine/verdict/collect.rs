//! A sink that passes everything on and remembers what policy made of the message at hand.

use kams_detect::cost::Point;
use kams_detect::{Evidence, Finding};
use kams_export::metrics::Operation;
use kams_export::view::{EventView, FindingRecord};
use kams_policy::{CallVerdict, Decision};

use crate::engine::sink::{Sink, ToolState};

/// What policy made of a finding.
#[derive(Debug)]
pub(super) struct Ruled {
    pub(super) tool: Option<String>,
    /// Sensitive classes, where the finding is about what leaves.
    pub(super) classes: Vec<&'static str>,
    pub(super) decision: Decision,
}

/// Decisions about one event of a session.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    pub(super) ruled: Vec<Ruled>,
    pub(super) call: Option<CallVerdict>,
    pub(super) answer: Option<CallVerdict>,
    /// About the start of the server, where the message opens its session.
    pub(super) start: Option<Decision>,
}

pub(super) struct Collector<'s> {
    sink: &'s mut dyn Sink,
    pub(super) decisions: Decisions,
}

impl<'s> Collector<'s> {
    pub(super) fn new(sink: &'s mut dyn Sink) -> Self {
        Self {
            sink,
            decisions: Decisions::default(),
        }
    }
}

impl Sink for Collector<'_> {
    fn event(&mut self, event: EventView) {
        self.sink.event(event);
    }

    fn finding(&mut self, finding: &Finding, record: FindingRecord) {
        self.sink.finding(finding, record);
    }

    fn cost(&mut self, server_id: u64, point: &Point) {
        self.sink.cost(server_id, point);
    }

    fn definitions(&mut self, server_id: u64, server: &str, first: bool, raw: Vec<String>) {
        self.sink.definitions(server_id, server, first, raw);
    }

    fn tool(&mut self, server_id: u64, tool: &ToolState<'_>) {
        self.sink.tool(server_id, tool);
    }

    fn answered(&mut self, operation: &Operation<'_>) {
        self.sink.answered(operation);
    }

    fn frame(&mut self, outcome: &'static str) {
        self.sink.frame(outcome);
    }

    fn decided(&mut self, decision: &'static str, rule: &str) {
        self.sink.decided(decision, rule);
    }

    fn ruled(&mut self, finding: &Finding, decision: &Decision) {
        if decision.passes() && decision.outcome == kams_policy::Outcome::Allow {
            return;
        }
        let classes = match &finding.evidence {
            Evidence::Egress(places) => places.iter().map(|place| place.class).collect(),
            _ => Vec::new(),
        };
        self.decisions.ruled.push(Ruled {
            tool: finding.tool.clone(),
            classes,
            decision: decision.clone(),
        });
    }

    fn called(&mut self, verdict: &CallVerdict, answer: bool) {
        let place = if answer {
            &mut self.decisions.answer
        } else {
            &mut self.decisions.call
        };
        *place = Some(verdict.clone());
    }

    fn started(&mut self, decision: &Decision) {
        self.decisions.start = Some(decision.clone());
    }

    fn refused_again(&mut self, tool: Option<&str>, decision: &Decision) {
        self.decisions.ruled.push(Ruled {
            tool: tool.map(str::to_owned),
            classes: Vec::new(),
            decision: decision.clone(),
        });
    }

    fn failed(&mut self, mode: &'static str, count: u64) {
        self.sink.failed(mode, count);
    }

    fn gate(&mut self, restrictions: &[(&'static str, usize)], head: (u64, &str)) {
        self.sink.gate(restrictions, head);
    }
}
