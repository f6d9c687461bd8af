//! An engine with a few hostile names in it, and a way to run command lines.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use kams_export::metrics::{LabelLimits, Metrics};
use kams_export::view::{
    AgentView, CheckResult, CheckView, CoverageView, Direction, DoctorView, EventKind, EventView,
    FindingRecord, LossView, Outcome, PayloadView, ProbeView, Record, ServerState, ServerView, StatusView,
    Time, ToolView, Transport,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admin::{
    AdminServer, Backend, BackendError, Feed, FeedLimits, FindingQuery, Limits, Scope, ServerQuery,
    ToolQuery, Viewer,
};
use crate::cli::{CliError, Ended, Offline, Out, Terminal, run};

/// 2026-11-30 04:00:00 UTC, plus milliseconds.
pub(super) fn at(ms: i64) -> Time {
    Time::from_unix_nanos((1_796_011_200_000 + ms) * 1_000_000)
}

pub(super) fn uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// A name that would clear the screen, colour it, and turn the reading order round.
pub(super) const HOSTILE: &str = "\u{1b}[2J\u{1b}[31mevil\u{202e}\n\u{9b}0m";

pub(super) fn event(kind: EventKind, ms: i64) -> EventView {
    EventView {
        agent: Some("claude".into()),
        agent_pid: Some(41),
        server: Some("npm:@modelcontextprotocol/server-memory".into()),
        server_id: Some(1),
        ..EventView::new(kind, at(ms), uid(), "ada")
    }
}

pub(super) fn result(tool: &str, outcome: Outcome, us: u64, bytes: u64, ms: i64) -> Record {
    Record::Event(EventView {
        direction: Some(Direction::ToAgent),
        method: Some("tools/call".into()),
        tool: Some(tool.into()),
        outcome: Some(outcome),
        latency_us: Some(us),
        bytes: Some(bytes),
        ..event(EventKind::ToolResult, ms)
    })
}

pub(super) fn finding(severity: &str, ms: i64) -> FindingRecord {
    FindingRecord {
        time: at(ms),
        code: "KAMS-INT-002".into(),
        detector: "integrity.description_injection".into(),
        kind: "INTEGRITY_INJECTION".into(),
        severity: severity.into(),
        confidence: 0.72,
        uid: uid(),
        user: "ada".into(),
        agent: "claude".into(),
        server: "npm:x".into(),
        tool: Some("add".into()),
        action: "alert".into(),
        would: Some("block_tool".into()),
        ..FindingRecord::default()
    }
}

pub(super) struct Fake(Arc<Feed>);

impl Backend for Fake {
    fn status(&self, _scope: Scope) -> Result<StatusView, BackendError> {
        Ok(StatusView {
            version: "0.1.0".into(),
            pid: 77,
            uptime_seconds: 7_380,
            enabled: true,
            kernel: "6.18.44".into(),
            scope: "host".into(),
            coverage: vec![
                CoverageView {
                    what: "stdio servers".into(),
                    covered: true,
                    count: Some(3),
                    ..CoverageView::default()
                },
                CoverageView {
                    what: "servers reached over HTTP".into(),
                    count: Some(1),
                    detail: "not read by this version".into(),
                    ..CoverageView::default()
                },
            ],
            probes: vec![ProbeView {
                name: "sched_process_exec".into(),
                attached: true,
                proved: true,
                ..ProbeView::default()
            }],
            payload: PayloadView {
                attached: true,
                backend: "tracepoint".into(),
                reason: "2 agents live".into(),
            },
            losses: vec![LossView {
                stage: "ring".into(),
                reason: "reserve".into(),
                count: 4,
            }],
            agents_live: 2,
            servers_live: 3,
            calls: 120,
            findings: 1,
            notes: vec![format!("look at {HOSTILE}")],
            ..StatusView::default()
        })
    }

    fn agents(&self, _scope: Scope) -> Result<Vec<AgentView>, BackendError> {
        Ok(Vec::new())
    }

    fn servers(&self, _scope: Scope, query: &ServerQuery) -> Result<Vec<ServerView>, BackendError> {
        let memory = ServerView {
            id: 1,
            uid: uid(),
            user: "ada".into(),
            agent: "claude".into(),
            identity: "npm:@modelcontextprotocol/server-memory".into(),
            version: Some("2.0".into()),
            name: Some(HOSTILE.into()),
            state: ServerState::Observed,
            pid: 42,
            calls: 3,
            errors: 1,
            tools: Some(9),
            definition_tokens: Some(1_234),
            bytes_to_agent: 4_096,
            ..ServerView::default()
        };
        let gone = ServerView {
            id: 2,
            state: ServerState::Gone,
            tools: None,
            version: None,
            name: None,
            ..memory.clone()
        };
        Ok(if query.gone {
            vec![memory, gone]
        } else {
            vec![memory]
        })
    }

    fn tools(&self, _scope: Scope, query: &ToolQuery) -> Result<Vec<ToolView>, BackendError> {
        if let Some(server) = query.server.as_deref().filter(|s| *s != "memory & more") {
            return Err(BackendError::NotFound {
                what: format!("server `{server}`"),
            });
        }
        Ok(vec![ToolView {
            uid: uid(),
            user: "ada".into(),
            server: "npm:memory".into(),
            tool: HOSTILE.into(),
            description: Some("Reads\nall".into()),
            calls: 2,
            median_us: Some(1_500),
            baseline: Some("pinned".into()),
            ..ToolView::default()
        }])
    }

    fn findings(&self, _scope: Scope, _query: &FindingQuery) -> Result<Vec<FindingRecord>, BackendError> {
        Ok(vec![finding("MEDIUM", 0), finding("HIGH", 1_000)])
    }

    fn doctor(&self) -> Result<DoctorView, BackendError> {
        let check = |area: &str, name: &str, result, remedy: Option<&str>| CheckView {
            area: area.into(),
            name: name.into(),
            result,
            detail: "seen".into(),
            remedy: remedy.map(Into::into),
        };
        Ok(DoctorView {
            schema: 1,
            checks: vec![
                check("kernel", "BTF", CheckResult::Ok, None),
                check("kernel", "trampolines", CheckResult::Warn, None),
                check("sensor", "ring buffer", CheckResult::Fail, Some("make it larger")),
            ],
        })
    }

    fn set_enabled(&self, _enabled: bool, _by: &Viewer) -> Result<(), BackendError> {
        let remedy = "wait until it has ended".into();
        Err(BackendError::Refused {
            message: "an upgrade is running".into(),
            remedy,
        })
    }

    fn feed(&self) -> &Arc<Feed> {
        &self.0
    }

    fn is_in_agent_tree(&self, _pid: u32) -> bool {
        false
    }
}

/// A daemon at a path.
pub(super) struct Daemon {
    pub(super) feed: Arc<Feed>,
    stop: watch::Sender<bool>,
    task: JoinHandle<io::Result<()>>,
}

impl Daemon {
    pub(super) fn start(socket: &Path, instance: &str) -> Self {
        let feed = Feed::new(FeedLimits::default(), instance);
        let backend = Arc::new(Fake(Arc::clone(&feed)));
        let metrics = Arc::new(Metrics::new("0", "0", 0.0, LabelLimits::default()).unwrap());
        let server = AdminServer::bind(socket, None, Limits::default()).unwrap();
        let (stop, stopped) = watch::channel(false);
        Self {
            feed,
            stop,
            task: tokio::spawn(server.serve(backend, metrics, stopped)),
        }
    }

    pub(super) async fn stop(self) {
        self.stop.send(true).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

/// Where output goes; lets a test wait for lines as they come.
#[derive(Clone, Default)]
pub(super) struct Page(Arc<(Mutex<String>, Condvar)>, Arc<AtomicBool>);

impl Page {
    /// From now on the reader is gone.
    pub(super) fn close(&self) {
        self.1.store(true, Ordering::SeqCst);
    }

    pub(super) fn text(&self) -> String {
        self.0.0.lock().unwrap().clone()
    }

    /// Waits until the output holds this.
    pub(super) async fn wait_for(&self, part: &'static str) {
        let page = self.clone();
        let wait = move || {
            let (text, changed) = &*page.0;
            drop(
                changed
                    .wait_while(text.lock().unwrap(), |text| !text.contains(part))
                    .unwrap(),
            );
        };
        tokio::task::spawn_blocking(wait).await.unwrap();
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.0
            .0
            .lock()
            .unwrap()
            .push_str(std::str::from_utf8(bytes).unwrap());
        self.0.1.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn no_replay(
    _: &Path,
    _: Arc<kams_policy::Policy>,
    _: &mut dyn FnMut(Record) -> io::Result<()>,
) -> anyhow::Result<()> {
    anyhow::bail!("no engine here")
}

pub(super) const OFFLINE: Offline = Offline { replay: no_replay };

/// Runs a command line on a thread of its own, as a process would.
pub(super) fn spawn(
    socket: &Path,
    line: &str,
    to: Box<dyn Write + Send>,
    terminal: Terminal,
) -> JoinHandle<Result<Ended, CliError>> {
    let mut args: Vec<OsString> = vec!["kams".into(), "--socket".into(), socket.into()];
    args.extend(
        line.split(' ')
            .filter(|w| !w.is_empty())
            .map(|w| OsString::from(w.replace('_', " "))),
    );
    tokio::task::spawn_blocking(move || run(args, OFFLINE, &mut Out::new(to, terminal)))
}

/// Runs a command line to its end. An underscore in a word stands for a space.
pub(super) async fn kams(socket: &Path, line: &str) -> (Result<Ended, CliError>, String) {
    let page = Page::default();
    let ended = spawn(socket, line, Box::new(page.clone()), Terminal::none())
        .await
        .unwrap();
    (ended, page.text())
}

/// A folder with a running daemon.
pub(super) fn daemon() -> (tempfile::TempDir, PathBuf, Daemon) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kams.sock");
    let daemon = Daemon::start(&socket, "one");
    (folder, socket, daemon)
}

/// Lines without the trailing newline of the last.
pub(super) fn text(lines: &[&str]) -> String {
    lines.join("\n") + "\n"
}

/// The event that the live view shows for a server.
pub(super) fn confirmed(ms: i64) -> Record {
    Record::Event(EventView {
        server_pid: Some(42),
        transport: Some(Transport::Pipe),
        revision: Some("2025-11-25".into()),
        ..event(EventKind::ServerConfirmed, ms)
    })
}
