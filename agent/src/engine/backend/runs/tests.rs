//! Orders over a real socket, by the right person and by the wrong one.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Arc;

use kams_detect::egress::Salt;
use kams_export::metrics::{LabelLimits, Metrics};
use kams_policy::{Action, Policy, Request, Restriction, Subject};
use kams_store::{Retention, Store};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::super::DaemonBackend;
use super::name_of;
use crate::admin::{AdminServer, Feed, FeedLimits, Limits};
use crate::config::Config;
use crate::engine::counter::Counter;
use crate::engine::counter::tokenizer::Tokenizer;
use crate::engine::gate::here;
use crate::engine::judge::Judge;
use crate::engine::live::Live;
use crate::engine::registry::Registry;
use crate::engine::{Command, Shared};
use crate::policy_file::PolicySource;
use crate::policy_file::in_force::PolicyInForce;

/// One request in a process of its own, as `uid` where that is given.
async fn say(path: &Path, method: &str, route: &str, body: &Value, uid: Option<u32>) -> (u16, Value) {
    const ASK: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(sys.argv[2].encode())
out = b''
while True:
    part = s.recv(65536)
    if not part: break
    out += part
sys.stdout.buffer.write(out)";
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let text = format!(
        "{method} {route} HTTP/1.1\r\nhost: k\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut ask = std::process::Command::new("python3");
    ask.arg("-c").arg(ASK).arg(path).arg(text);
    if let Some(uid) = uid {
        ask.uid(uid).gid(uid);
    }
    let out = tokio::task::spawn_blocking(move || ask.output().unwrap())
        .await
        .unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    let status = out.split(' ').nth(1).unwrap().parse().unwrap();
    let body = out.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body.trim()).unwrap())
}

fn request(user: &str, digest: &str) -> Request {
    Request {
        run: "r1".to_owned(),
        user: user.to_owned(),
        agent: "codex".to_owned(),
        server: "npm:pay".to_owned(),
        tool: "pay".to_owned(),
        args_digest: digest.to_owned(),
        rule: "limit".to_owned(),
        group: None,
        reason: None,
        fields: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_right_person_decides_and_lifts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let store = Store::open(&folder.path().join("state"), Retention::default())
        .unwrap()
        .0;
    let store = Arc::new(store);
    let metrics = Arc::new(Metrics::new("0", "0", 0.0, LabelLimits::default()).unwrap());
    let registry = Arc::new(Registry::default());
    let counter = Counter::start(Arc::clone(&registry), Arc::clone(&metrics), Tokenizer::Here).unwrap();
    let live = Live {
        registry,
        feed: Feed::new(FeedLimits::default(), "one"),
        metrics: Arc::clone(&metrics),
        counter,
    };
    let policy = Arc::new(Policy::default_policy());
    let mut judge = Judge::new(Arc::clone(&policy), Salt::new(b"t"), Some(Arc::clone(&store)));
    let mut sink = live.clone();
    let own = name_of(nix::unistd::geteuid().as_raw());
    let now = here();
    judge.gate.order(now, &mut sink, |gate| {
        for (user, digest) in [(own.as_str(), "a"), ("somebody-else", "b")] {
            gate.approvals
                .request(request(user, digest), policy.approvals(), now);
        }
        let subject = Subject {
            user: "somebody-else",
            server: "npm:pay",
            ..Subject::default()
        };
        gate.restrictions.add(
            Restriction::of(Action::BlockServer, &subject, "r", None, now).unwrap(),
            now,
        );
    });
    let (commands, mut queue) = mpsc::channel(4);
    tokio::spawn(async move {
        while let Some(command) = queue.recv().await {
            if let Command::Gate(ask) = command {
                ask.answer(&mut judge.gate, &mut sink);
            }
        }
    });
    let in_force = PolicyInForce::new(
        PolicySource::file(folder.path().join("policy.yaml")),
        Arc::new(Policy::default_policy()),
        commands.clone(),
        Arc::clone(&metrics),
    );
    let config = Arc::new(arc_swap::ArcSwap::from_pointee(Config::default()));
    let shared = Arc::new(Shared::default());
    let backend = DaemonBackend::new(
        live,
        shared,
        commands,
        config,
        Arc::clone(&store),
        Arc::new(in_force),
    );
    let path = folder.path().join("k.sock");
    let server = AdminServer::bind(&path, Some(nix::unistd::getegid().as_raw()), Limits::default()).unwrap();
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(server.serve(Arc::new(backend), Arc::clone(&metrics), stopped));

    let decide = |op: &str, id: u64| json!({"op": op, "id": id});
    let (approvals, restrictions) = ("/v1/command/approvals", "/v1/command/restrictions");
    let root = nix::unistd::geteuid().is_root();
    if root {
        // In no group that matters.
        let stranger = Some(54_321);
        let (status, body) = say(&path, "POST", approvals, &decide("approve", 2), stranger).await;
        assert_eq!(status, 409, "{body}");
        assert!(body["message"].as_str().unwrap().contains("`kams`"), "{body}");
        let (status, body) = say(&path, "POST", restrictions, &decide("lift", 1), stranger).await;
        assert_eq!(status, 403, "{body}");
        for (what, route) in [
            ("approvals", "/v1/query/approvals"),
            ("restrictions", "/v1/query/restrictions"),
        ] {
            let (_, body) = say(&path, "GET", route, &Value::Null, stranger).await;
            assert_eq!(body[what], json!([]), "others' are not shown");
        }
        let (status, body) = say(&path, "POST", approvals, &decide("approve", 1), None).await;
        assert_eq!(status, 409, "one's own call: {body}");
        let (status, body) = say(&path, "POST", approvals, &decide("approve", 2), None).await;
        assert_eq!((status, &body["state"]), (200, &json!("approved")));
    }
    for (route, order, expected) in [
        (approvals, decide("approve", 77), 404),
        (approvals, decide("burn", 1), 400),
        (restrictions, decide("lift", 1), 200),
        (restrictions, decide("lift", 1), 404),
        (
            "/v1/command/runs",
            json!({"op": "checkpoint", "run": "none"}),
            404,
        ),
    ] {
        let (status, body) = say(&path, "POST", route, &order, None).await;
        assert_eq!(status, expected, "{order}: {body}");
    }
    let (_, body) = say(&path, "GET", "/v1/query/runs", &Value::Null, None).await;
    assert!(
        body["head"]["n"].as_u64().unwrap() > 0,
        "the decisions are on record: {body}"
    );
    let text = String::from_utf8(metrics.render().unwrap()).unwrap();
    assert!(text.contains("kams_decision_head{hash="), "{text}");
    assert!(
        text.contains("kams_restrictions{action=\"block_server\"} 0"),
        "{text}"
    );
}
