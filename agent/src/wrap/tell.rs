//! What a wrapped server's engine tells: findings on standard error, and all records in a file where one is named.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use kams_detect::Finding;
use kams_detect::cost::Point;
use kams_export::metrics::Operation;
use kams_export::text::visible;
use kams_export::view::{EventView, FindingRecord, Record};

use crate::engine::sink::{Sink, ToolState};

/// The file for records, which only its owner reads.
pub(super) fn record_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

/// Tells.
#[derive(Debug)]
pub(super) struct Told {
    file: Option<File>,
    seq: u64,
}

impl Told {
    pub(super) const fn new(file: Option<File>) -> Self {
        Self { file, seq: 0 }
    }

    fn record(&mut self, mut record: Record) {
        let Some(file) = &mut self.file else { return };
        self.seq += 1;
        record.set_seq(self.seq);
        let line = serde_json::to_string(&record).unwrap_or_default() + "\n";
        if let Err(error) = file.write_all(line.as_bytes()) {
            say(&format!("records are no longer written: {error}"));
            self.file = None;
        }
    }
}

/// One line for the agent's log of its server. Where nobody reads it, that is fine.
pub(super) fn say(text: &str) {
    let line = format!("kams: {}\n", visible(text));
    if io::stderr().write_all(line.as_bytes()).is_err() {
        tracing::trace!("standard error is closed");
    }
}

impl Sink for Told {
    fn event(&mut self, event: EventView) {
        self.record(Record::Event(event));
    }

    fn finding(&mut self, finding: &Finding, record: FindingRecord) {
        let tool = record.tool.as_deref().map(|tool| format!(" on {tool}"));
        let would = record.would.as_deref().map(|would| format!(", would {would}"));
        say(&format!(
            "{} {}{}: {}{}",
            finding.severity,
            finding.detector,
            tool.unwrap_or_default(),
            record.action,
            would.unwrap_or_default()
        ));
        self.record(Record::Finding(record));
    }

    fn cost(&mut self, _: u64, _: &Point) {}

    fn definitions(&mut self, _: u64, _: &str, _: bool, _: Vec<String>) {}

    fn tool(&mut self, _: u64, _: &ToolState<'_>) {}

    fn answered(&mut self, _: &Operation<'_>) {}

    fn frame(&mut self, _: &'static str) {}
}
