//! `kams events` and `kams findings`: one line per record, readable as they come.

use std::io;

use kams_detect::Severity;
use kams_export::view::{EventKind, EventView, FindingRecord, Outcome, Record, Transport};
use serde_json::Value;

use crate::cli::Ended;
use crate::cli::out::{Ink, Out};
use crate::cli::table::{Cell, Column, Table, bytes, duration};

/// Shows records and remembers whether one of them was asked to fail the command.
pub(in crate::cli) struct LiveView {
    table: Table,
    live: bool,
    started: bool,
    fail_on: Option<Severity>,
    found: bool,
}

impl LiveView {
    /// `live`: times of day instead of dates, since the lines are of now.
    pub(in crate::cli) fn new(live: bool, fail_on: Option<Severity>) -> Self {
        let columns = vec![
            Column::left("TIME", 32).at_least(if live { 12 } else { 19 }),
            Column::left("USER", 12).at_least(6),
            Column::left("AGENT", 12).at_least(12),
            Column::left("SERVER", 44).at_least(24),
            Column::left("WHAT", 48).at_least(24),
            Column::right("TOOK").at_least(8),
            Column::left("OUTCOME", 24).at_least(7),
            Column::right("BYTES").at_least(8),
            Column::left("", 200),
        ];
        Self {
            table: Table::new(columns),
            live,
            started: false,
            fail_on,
            found: false,
        }
    }

    /// Shows one record. `whole` is what was received, with members that this version does not know.
    pub(in crate::cli) fn record(
        &mut self,
        record: &Record,
        whole: Option<&Value>,
        out: &mut Out,
    ) -> io::Result<()> {
        if let Record::Finding(finding) = record {
            self.found |= self.is_fatal(finding);
        }
        if out.is_json() {
            return match (record, whole) {
                (Record::Hello { .. } | Record::Alive, _) => Ok(()),
                (_, Some(whole)) => out.json_line(whole),
                (record, None) => out.json_line(record),
            };
        }
        let cells = match record {
            Record::Event(event) => self.event(event, out),
            Record::Finding(finding) => self.finding(finding, out),
            _ => return Ok(()),
        };
        if !std::mem::replace(&mut self.started, true) {
            out.line(&self.table.heading(out))?;
        }
        let line = self.table.row(&cells, out);
        out.line(&line)
    }

    /// Whether a finding was bad enough.
    pub(in crate::cli) fn ended(&self) -> Ended {
        if self.found { Ended::Found } else { Ended::Clean }
    }

    fn is_fatal(&self, finding: &FindingRecord) -> bool {
        // A severity of a newer daemon counts: better a failed job than a missed one.
        let severity = Severity::from_name(&finding.severity);
        self.fail_on
            .is_some_and(|limit| severity.is_none_or(|s| s >= limit))
    }

    fn event(&self, e: &EventView, out: &Out) -> Vec<Cell> {
        let time = if self.live {
            out.clock(e.time)
        } else {
            out.date(e.time)
        };
        let (what, ink) = what(e);
        let outcome = match (e.outcome, e.error_code) {
            (Some(outcome), Some(code)) => format!("{} {code}", outcome.name()),
            (Some(outcome), None) => outcome.name().to_owned(),
            (None, _) => e.action.clone().unwrap_or_default(),
        };
        vec![
            Cell::new(time).ink(Ink::Faint),
            Cell::new(&e.user),
            Cell::new(e.agent.as_deref().unwrap_or("-")),
            Cell::new(e.server.as_deref().unwrap_or("-")),
            Cell::new(what).ink(ink),
            Cell::new(e.latency_us.map(duration).unwrap_or_default()),
            Cell::new(outcome).ink(outcome_ink(e.outcome)),
            Cell::new(e.bytes.map(bytes).unwrap_or_default()),
            Cell::new(remarks(e)).ink(if e.gap { Ink::Bad } else { Ink::Faint }),
        ]
    }

    fn finding(&self, f: &FindingRecord, out: &Out) -> Vec<Cell> {
        let time = if self.live {
            out.clock(f.time)
        } else {
            out.date(f.time)
        };
        let ink = match Severity::from_name(&f.severity) {
            Some(Severity::Low) => Ink::Plain,
            Some(Severity::Medium) => Ink::Odd,
            Some(Severity::High | Severity::Critical) | None => Ink::Bad,
        };
        let on = f
            .tool
            .as_ref()
            .map(|tool| format!("on {tool}, "))
            .unwrap_or_default();
        let gap = if f.gap { ", with a gap" } else { "" };
        let would = f
            .would
            .as_ref()
            .map(|would| format!(", would {would}"))
            .unwrap_or_default();
        vec![
            Cell::new(time).ink(Ink::Faint),
            Cell::new(&f.user),
            Cell::new(&f.agent),
            Cell::new(&f.server),
            Cell::new(format!("!! {} {}", f.severity, f.detector)).ink(ink),
            Cell::new(""),
            Cell::new(&f.action),
            Cell::new(""),
            Cell::new(format!(
                "{on}{} confidence {:.2}{would}{gap}",
                f.code, f.confidence
            )),
        ]
    }
}

/// What happened, in a few words.
fn what(e: &EventView) -> (String, Ink) {
    let tool = e.tool.as_deref().or(e.method.as_deref()).unwrap_or("?");
    let count = e.count.unwrap_or(0);
    match e.event {
        EventKind::ToolCall => (format!("-> {tool} ..."), Ink::Faint),
        EventKind::ToolResult => (format!("-> {tool}"), Ink::Strong),
        EventKind::Request | EventKind::Response | EventKind::Notification => {
            let method = e.method.as_deref().unwrap_or("?");
            (format!("{} {method}", e.event.name()), Ink::Faint)
        }
        EventKind::AgentStarted => ("agent started".to_owned(), Ink::Good),
        EventKind::AgentGone => ("agent ended".to_owned(), Ink::Faint),
        EventKind::ServerStarted => ("may be a server".to_owned(), Ink::Faint),
        EventKind::ServerConfirmed => ("server started".to_owned(), Ink::Good),
        EventKind::ServerRelayed => ("is behind a relay".to_owned(), Ink::Faint),
        EventKind::ServerUnrelayed => ("runs without a relay".to_owned(), Ink::Bad),
        EventKind::ServerRejected => ("is no server".to_owned(), Ink::Faint),
        EventKind::ServerGone => ("server ended".to_owned(), Ink::Faint),
        EventKind::ToolsListed => (format!("lists {count} tools"), Ink::Plain),
        EventKind::Malformed => ("malformed line".to_owned(), Ink::Odd),
        EventKind::Gap => ("GAP in the stream".to_owned(), Ink::Bad),
        EventKind::Loss => (format!("LOST {count} records"), Ink::Bad),
        EventKind::Daemon => ("kamsd".to_owned(), Ink::Strong),
        EventKind::NetworkCutOff => ("is cut off the network".to_owned(), Ink::Bad),
        EventKind::NetworkRestored => ("may use the network again".to_owned(), Ink::Good),
        EventKind::NetworkRefused => (format!("tried the network {count} times"), Ink::Bad),
        EventKind::Decision => (format!("policy: {}", e.rule.as_deref().unwrap_or("?")), Ink::Odd),
        _ => ("something newer than this kams".to_owned(), Ink::Odd),
    }
}

/// What does not fit into a column.
fn remarks(e: &EventView) -> String {
    let mut parts = Vec::new();
    if e.gap && e.event != EventKind::Gap {
        parts.push("GAP".to_owned());
    }
    if matches!(
        e.event,
        EventKind::ServerConfirmed | EventKind::ServerStarted | EventKind::AgentStarted
    ) {
        let pid = if e.event == EventKind::AgentStarted {
            e.agent_pid
        } else {
            e.server_pid
        };
        parts.extend(pid.map(|pid| format!("pid {pid}")));
        let transport = |t| match t {
            Transport::Pipe => "pipe",
            Transport::Socket => "socket",
            Transport::Http => "http",
            Transport::Unknown => "?",
        };
        parts.extend(e.transport.map(|t| transport(t).to_owned()));
        parts.extend(e.revision.as_ref().map(|revision| format!("MCP {revision}")));
    }
    if e.event == EventKind::Decision {
        parts.extend(e.tool.as_ref().map(|tool| format!("on {tool}")));
        parts.extend(e.would.as_ref().map(|would| format!("would {would}")));
    }
    parts.extend([&e.stage, &e.reason, &e.detail].into_iter().flatten().cloned());
    parts.join(", ")
}

fn outcome_ink(outcome: Option<Outcome>) -> Ink {
    match outcome {
        Some(Outcome::Ok) => Ink::Good,
        Some(Outcome::ToolError | Outcome::Cancelled | Outcome::NoAnswer | Outcome::Unknown) => Ink::Odd,
        Some(Outcome::Error | Outcome::Denied) => Ink::Bad,
        Some(Outcome::InputRequired) | None => Ink::Plain,
    }
}
