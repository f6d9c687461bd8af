//! Who may change what.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::fake::{GROUP, run};
use super::http::{can_be_others, get, get_text, json, post_text, say, say_as};
use crate::admin::viewer::Peer;

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
async fn who_is_gone_may_not_write() {
    if !can_be_others() {
        return;
    }
    let server = run();
    // The engine is kept busy until the asking process has ended and its pid is free again.
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        s.sendall(sys.argv[2].encode())\n";
    server.backend.gate.close();
    let status = tokio::process::Command::new("python3")
        .args(["-c", script])
        .args([server.path.as_os_str(), post_text("/v1/off", "").as_ref()])
        .status()
        .await
        .unwrap();
    assert!(status.success());
    server.backend.gate.open();
    // Once the server has ended and the last question is done, nobody else holds the engine.
    server.stop.send(true).unwrap();
    server.task.await.unwrap().unwrap();
    while Arc::strong_count(&server.backend) > 1 {
        tokio::task::yield_now().await;
    }
    assert!(server.backend.switched_by.lock().unwrap().is_empty());
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
async fn a_peer_is_told_alive_from_gone_with_and_without_pidfd() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let script =
        "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nsys.stdin.read()\n";
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
        assert!(peer.is_alive());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!peer.is_alive());
    }
}
