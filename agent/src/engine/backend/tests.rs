//! Decisions and reports over a real socket, with a real judge and store behind it.

use std::sync::Arc;

use kams_detect::egress::Salt;
use kams_export::metrics::{LabelLimits, Metrics};
use kams_export::view::{AgentView, Time};
use kams_policy::Policy;
use kams_store::{Baseline, BaselineState, Retention, Store, WriteOp};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use super::DaemonBackend;
use crate::admin::{AdminServer, Feed, FeedLimits, Limits};
use crate::config::Config;
use crate::engine::counter::Counter;
use crate::engine::counter::tokenizer::Tokenizer;
use crate::engine::judge::Judge;
use crate::engine::live::Live;
use crate::engine::registry::Registry;
use crate::engine::{Command, Shared};

async fn say(path: &std::path::Path, method: &str, route: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let text = format!(
        "{method} {route} HTTP/1.1\r\nhost: k\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut out = String::new();
    stream.read_to_string(&mut out).await.unwrap();
    let status = out.split(' ').nth(1).unwrap().parse().unwrap();
    let body = out.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body.trim()).unwrap())
}

#[tokio::test]
async fn decisions_reach_judge_and_store_and_reports_only_own_agents() {
    let uid = nix::unistd::geteuid().as_raw();
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(
        Store::open(&folder.path().join("state"), Retention::default())
            .unwrap()
            .0,
    );
    let definition =
        |text: &str| json!({"name": "add", "about": {"description": text}, "schema": {}}).to_string();
    store.write(WriteOp::Baseline(Box::new(Baseline {
        uid,
        server: "npm:x".to_owned(),
        item: "tool:add".to_owned(),
        state: BaselineState::Provisional,
        digest: "one".to_owned(),
        definition: definition("Adds."),
        version: None,
        seen: Some(("two".to_owned(), definition("Adds twice."))),
        first_seen: 1,
        changed_at: 1,
        changed_by: None,
    })));
    store.flush(std::time::Duration::from_mins(1)).unwrap();
    let metrics = Arc::new(Metrics::new("0", "0", 0.0, LabelLimits::default()).unwrap());
    let registry = Arc::new(Registry::default());
    let agent = |pid, uid| AgentView {
        id: pid,
        uid,
        pid: u32::try_from(pid).unwrap(),
        live: true,
        ..AgentView::default()
    };
    registry.lock().add_agent(agent(41, uid));
    let counter = Counter::start(Arc::clone(&registry), Arc::clone(&metrics), Tokenizer::Here).unwrap();
    let live = Live {
        registry,
        feed: Feed::new(FeedLimits::default(), "one"),
        metrics: Arc::clone(&metrics),
        counter,
    };
    let (commands, mut queue) = mpsc::channel(4);
    let mut judge = Judge::new(
        Arc::new(Policy::default_policy()),
        Salt::new(b"t"),
        Some(Arc::clone(&store)),
    );
    let mut sink = live.clone();
    tokio::spawn(async move {
        while let Some(command) = queue.recv().await {
            match command {
                Command::Baseline { decided, by, done } => {
                    drop(done.send(judge.decide(decided, by.uid, Time::now(), &mut sink)));
                }
                Command::Usage { usage, done } => drop(done.send(judge.usage(&usage, &mut sink))),
                _ => {}
            }
        }
    });
    let config = Arc::new(arc_swap::ArcSwap::from_pointee(Config::default()));
    let in_force = Arc::new(crate::policy_file::in_force::PolicyInForce::new(
        crate::policy_file::PolicySource::file(folder.path().join("policy.yaml")),
        Arc::new(Policy::default_policy()),
        commands.clone(),
        Arc::clone(&metrics),
    ));
    let backend = DaemonBackend::new(
        live,
        Arc::new(Shared::default()),
        commands,
        config,
        Arc::clone(&store),
        in_force,
    );
    let path = folder.path().join("k.sock");
    let server = AdminServer::bind(&path, Some(nix::unistd::getegid().as_raw()), Limits::default()).unwrap();
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(server.serve(Arc::new(backend), metrics, stopped));

    for (order, expected) in [
        (json!({"op": "pin", "server": "npm:none"}), 404),
        (json!({"op": "pin", "server": "npm:x", "item": "none"}), 404),
        (json!({"op": "burn", "server": "npm:x"}), 400),
        (json!({"op": "import", "rows": [{"server": "npm:x"}]}), 400),
        (json!({"op": "accept", "server": "npm:x", "item": "add"}), 200),
        (json!({"op": "pin", "server": "npm:x"}), 200),
    ] {
        let (status, body) = say(&path, "POST", "/v1/command/baseline", &order).await;
        assert_eq!(status, expected, "{order}: {body}");
    }
    let (_, body) = say(&path, "GET", "/v1/query/baselines?full=1", &Value::Null).await;
    let row = &body["baselines"][0];
    assert_eq!(
        (&row["state"], &row["changed"]),
        (&json!("pinned"), &json!(false))
    );
    assert_eq!(row["definition"]["about"]["description"], "Adds twice.");
    assert_eq!(row["changed_by"], uid);

    for (report, expected) in [
        (json!({"agent_pid": 41, "input_tokens": 5}), 200),
        (json!({"agent_pid": 42, "input_tokens": 5}), 404),
        (json!({"agent_pid": 41, "input_tokens": 50_000_000}), 400),
        (json!({"agent_pid": 41, "input_tokens": -1}), 400),
        (json!({"agent_pid": 41}), 400),
    ] {
        let (status, body) = say(&path, "POST", "/v1/usage", &report).await;
        assert_eq!(status, expected, "{report}: {body}");
    }
}
