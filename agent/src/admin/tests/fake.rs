//! An engine in memory.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use kams_export::metrics::{LabelLimits, Metrics};
use kams_export::view::{
    AgentView, DoctorView, EventKind, EventView, FindingRecord, Record, ServerView, StatusView, Time,
    ToolView,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admin::{
    AdminServer, Backend, BackendError, CommandRight, Feed, FeedLimits, FindingQuery, Limits, Scope,
    ServerQuery, ToolQuery, Viewer,
};

/// Returns everyone's data whatever the scope: the API itself must hold it back.
pub(super) struct Fake {
    pub(super) feed: Arc<Feed>,
    pub(super) enabled: AtomicBool,
    pub(super) switched_by: Mutex<Vec<Viewer>>,
    pub(super) tree: Mutex<HashSet<u32>>,
    pub(super) asked: Mutex<Vec<Scope>>,
    /// Questions wait here while a test has it closed.
    pub(super) gate: Gate,
}

/// Holds threads back until it is opened.
#[derive(Default)]
pub(super) struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    pub(super) fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let closed = self.closed.lock().unwrap();
        drop(self.opened.wait_while(closed, |closed| *closed).unwrap());
    }
}

pub(super) const USERS: [(u32, &str); 3] = [(0, "root"), (1001, "ada"), (1002, "bob")];

impl Backend for Fake {
    fn status(&self, scope: Scope) -> Result<StatusView, BackendError> {
        self.gate.pass();
        self.asked.lock().unwrap().push(scope);
        Ok(StatusView {
            version: "9.9.9".into(),
            ..StatusView::default()
        })
    }

    fn agents(&self, _scope: Scope) -> Result<Vec<AgentView>, BackendError> {
        let agent = |(uid, user): (u32, &str)| AgentView {
            uid,
            user: user.into(),
            ..AgentView::default()
        };
        Ok(USERS.map(agent).into())
    }

    fn servers(&self, _scope: Scope, _query: &ServerQuery) -> Result<Vec<ServerView>, BackendError> {
        let server = |(uid, user): (u32, &str)| ServerView {
            uid,
            user: user.into(),
            ..ServerView::default()
        };
        Ok(USERS.map(server).into())
    }

    fn tools(&self, _scope: Scope, query: &ToolQuery) -> Result<Vec<ToolView>, BackendError> {
        if let Some(server) = query.server.as_deref().filter(|s| *s == "none") {
            return Err(BackendError::NotFound {
                what: format!("server `{server}`"),
            });
        }
        let tool = |(uid, user): (u32, &str)| ToolView {
            uid,
            user: user.into(),
            ..ToolView::default()
        };
        Ok(USERS.map(tool).into())
    }

    fn findings(&self, _scope: Scope, _query: &FindingQuery) -> Result<Vec<FindingRecord>, BackendError> {
        let one = |(uid, user): (u32, &str)| FindingRecord {
            uid,
            user: user.into(),
            severity: "HIGH".into(),
            ..FindingRecord::default()
        };
        Ok(USERS.map(one).into())
    }

    fn doctor(&self) -> Result<DoctorView, BackendError> {
        panic!("a question that panics must not take the server down")
    }

    fn set_enabled(&self, enabled: bool, by: &Viewer) -> Result<(), BackendError> {
        self.enabled.store(enabled, Ordering::SeqCst);
        self.switched_by.lock().unwrap().push(by.clone());
        Ok(())
    }

    fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }

    fn is_in_agent_tree(&self, pid: u32) -> bool {
        self.gate.pass();
        self.tree.lock().unwrap().contains(&pid)
    }

    fn command_right(&self, name: &str) -> CommandRight {
        if name == "echo" {
            CommandRight::Person
        } else {
            CommandRight::Admin
        }
    }

    fn command(&self, name: &str, viewer: &Viewer, body: Value) -> Result<Value, BackendError> {
        match name {
            "echo" => Ok(json!({"uid": viewer.uid, "body": body})),
            _ => Err(BackendError::Unsupported {
                name: name.to_owned(),
            }),
        }
    }
}

/// An event of a user.
pub(super) fn event(uid: u32, tool: &str) -> Record {
    let user = USERS
        .iter()
        .find(|(u, _)| *u == uid)
        .map_or("?", |(_, name)| name);
    Record::Event(EventView {
        tool: Some(tool.to_owned()),
        ..EventView::new(EventKind::ToolCall, Time::from_unix_nanos(1), uid, user)
    })
}

/// A running server; ends with the test.
pub(super) struct Running {
    pub(super) path: std::path::PathBuf,
    pub(super) backend: Arc<Fake>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) task: JoinHandle<std::io::Result<()>>,
    _folder: tempfile::TempDir,
}

pub(super) const GROUP: u32 = 4_242;

pub(super) fn fake(feed: FeedLimits) -> Arc<Fake> {
    Arc::new(Fake {
        feed: Feed::new(feed, "one"),
        enabled: AtomicBool::new(true),
        switched_by: Mutex::default(),
        tree: Mutex::default(),
        asked: Mutex::default(),
        gate: Gate::default(),
    })
}

pub(super) fn run_with(limits: Limits, feed: FeedLimits) -> Running {
    let folder = tempfile::tempdir().unwrap();
    // Other users must reach the socket.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let path = folder.path().join("run/kams.sock");
    let backend = fake(feed);
    let metrics = Arc::new(Metrics::new("0", "0", 0.0, LabelLimits::default()).unwrap());
    let server = AdminServer::bind(&path, Some(GROUP), limits).unwrap();
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(server.serve(Arc::clone(&backend) as _, Arc::clone(&metrics), stopped));
    Running {
        path,
        backend,
        metrics,
        stop,
        task,
        _folder: folder,
    }
}

pub(super) fn run() -> Running {
    run_with(Limits::default(), FeedLimits::default())
}
