//! Who may change what.

use std::sync::atomic::Ordering;

use super::fake::{GROUP, fake, run};
use super::http::{can_be_others, get, get_text, json, post_text, say, say_as};
use crate::admin::authority::may_write;
use crate::admin::viewer::Peer;
use crate::admin::{CommandRight, FeedLimits};

#[tokio::test]
async fn only_root_and_the_group_switch() {
    if !can_be_others() {
        return;
    }
    let server = run();
    let off = post_text("/v1/off", "");
    let (status, body) = say_as(&server.path, 1001, "7,8", &off).await;
    assert_eq!(status, 403, "{body}");
    assert!(server.backend.enabled.load(Ordering::SeqCst));
    assert!(json(&body)["remedy"].as_str().unwrap().contains("sudo"));

    assert_eq!(say_as(&server.path, 1001, &GROUP.to_string(), &off).await.0, 200);
    assert!(!server.backend.enabled.load(Ordering::SeqCst));
    assert_eq!(say(&server.path, &post_text("/v1/on", "")).await.0, 200);
    assert!(server.backend.enabled.load(Ordering::SeqCst));
    let by: Vec<u32> = server
        .backend
        .switched_by
        .lock()
        .unwrap()
        .iter()
        .map(|v| v.uid)
        .collect();
    assert_eq!(by, [1001, 0]);
}

#[tokio::test]
async fn nothing_below_an_agent_may_write() {
    if !can_be_others() {
        return;
    }
    let server = run();
    // This process is the agent; the child below it is what asks.
    server.backend.tree.lock().unwrap().insert(std::process::id());
    let (status, body) = say_as(&server.path, 0, "", &post_text("/v1/off", "")).await;
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("agent"), "{body}");
    let (status, body) = say(&server.path, &post_text("/v1/command/echo", "1")).await;
    assert_eq!(status, 403, "the agent itself: {body}");
    let (_, body) = get(&server.path, "/v1/whoami").await;
    assert_eq!(json(&body)["may_write"], false, "{body}");
    assert_eq!(
        get(&server.path, "/v1/servers").await.0,
        200,
        "reading stays open"
    );
}

#[tokio::test]
async fn commands_carry_their_body() {
    if !can_be_others() {
        return;
    }
    let server = run();
    let (status, body) = say_as(&server.path, 1001, "", &post_text("/v1/command/echo", "[1]")).await;
    assert_eq!(
        (status, json(&body)),
        (200, serde_json::json!({"uid": 1001, "body": [1]}))
    );
    let (status, _) = say_as(&server.path, 1001, "", &post_text("/v1/command/other", "")).await;
    assert_eq!(status, 403);
    let (status, _) = say(&server.path, &post_text("/v1/command/other", "")).await;
    assert_eq!(status, 501);
    let (status, body) = say(&server.path, &post_text("/v1/command/echo", "{")).await;
    assert_eq!(status, 400, "{body}");
    assert_eq!(say(&server.path, &get_text("/v1/on")).await.0, 405);
}

#[tokio::test]
async fn who_is_gone_may_not_write_with_and_without_pidfd() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let script =
        "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nsys.stdin.read()\n";
    let engine = fake(FeedLimits::default());
    for pidfd in [true, false] {
        let mut child = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let peer = Peer::of(&stream, None).unwrap();
        let peer = if pidfd { peer } else { peer.without_pidfd() };
        assert_eq!(peer.viewer.pid, child.id());
        assert_eq!(may_write(&peer, CommandRight::Person, &*engine), Ok(()));
        drop(child.stdin.take());
        child.wait().unwrap();
        let refusal = may_write(&peer, CommandRight::Person, &*engine).unwrap_err();
        assert!(refusal.message.contains("ended before"), "{refusal:?}");
    }
}
