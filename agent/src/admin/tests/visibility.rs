//! Who sees what.

use serde_json::Value;

use super::fake::{GROUP, event, run};
use super::http::{can_be_others, get, get_text, json, say_as};
use crate::admin::Scope;

/// The uids in an answer, from an array member or from JSON lines.
fn uids(body: &str) -> Vec<u64> {
    let uid = |v: &Value| v["uid"].as_u64();
    let lines = body
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .flat_map(
            |v| match v.as_object().and_then(|o| o.values().find_map(Value::as_array)) {
                Some(items) => items.iter().filter_map(uid).collect::<Vec<_>>(),
                None => uid(&v).into_iter().collect(),
            },
        )
        .collect()
}

const ROUTES: [&str; 5] = [
    "/v1/agents",
    "/v1/servers?gone=1",
    "/v1/tools",
    "/v1/events",
    "/v1/findings",
];

#[tokio::test]
async fn a_user_sees_only_their_own() {
    if !can_be_others() {
        return;
    }
    let server = run();
    for uid in [0, 1001, 1002, 1001] {
        server.backend.feed.publish(event(uid, "t"));
    }
    for route in ROUTES {
        let (status, body) = say_as(&server.path, 1001, "", &get_text(route)).await;
        assert_eq!(status, 200, "{route}: {body}");
        let seen = uids(&body);
        assert!(
            !seen.is_empty() && seen.iter().all(|uid| *uid == 1001),
            "{route}: {body}"
        );
    }
    assert_eq!(
        say_as(&server.path, 1001, "", &get_text("/v1/status")).await.0,
        200
    );
    assert_eq!(
        server.backend.asked.lock().unwrap().last(),
        Some(&Scope::User(1001))
    );
}

#[tokio::test]
async fn root_and_the_group_see_all() {
    if !can_be_others() {
        return;
    }
    let server = run();
    server.backend.feed.publish(event(1001, "t"));
    let group = format!("7,{GROUP}");
    for route in ROUTES {
        let root = uids(&get(&server.path, route).await.1);
        assert!(root.contains(&1001), "{route}");
        let member = uids(&say_as(&server.path, 1005, &group, &get_text(route)).await.1);
        assert_eq!(root, member, "{route}");
    }
    let (_, body) = say_as(&server.path, 1005, "7", &get_text("/v1/agents")).await;
    assert!(uids(&body).is_empty(), "{body}");
}

#[tokio::test]
async fn root_of_a_container_is_not_root() {
    if !can_be_others() {
        return;
    }
    let server = run();
    // A new user namespace maps uid 0 inside to uid 0 outside: the number agrees, the authority does not.
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        s.sendall(sys.argv[2].encode())\nwhile True:\n b=s.recv(65536)\n if not b: break\n sys.stdout.buffer.write(b)\n";
    let ask = async |route: &str, method: &str| {
        let text = format!("{method} {route} HTTP/1.1\r\nhost: kams\r\n\r\n");
        let out = tokio::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "python3", "-c", script])
            .args([server.path.as_os_str(), text.as_ref()])
            .output()
            .await
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let seen = ask("/v1/agents", "GET").await;
    assert!(
        seen.contains("\"uid\":0") && !seen.contains("\"uid\":1001"),
        "{seen}"
    );
    let refused = ask("/v1/off", "POST").await;
    assert!(
        refused.contains("403") && refused.contains("namespace"),
        "{refused}"
    );
}

#[tokio::test]
async fn filters_narrow_and_mistakes_are_errors() {
    let server = run();
    for tool in ["add", "sub", "add"] {
        server
            .backend
            .feed
            .publish(event(nix::unistd::geteuid().as_raw(), tool));
    }
    let (_, body) = get(&server.path, "/v1/events?tool=a*&type=tool_call").await;
    assert_eq!(body.lines().count(), 3, "hello and two: {body}");
    let (_, body) = get(&server.path, "/v1/events?since=2").await;
    assert_eq!(body.lines().count(), 2, "{body}");
    let (_, body) = get(&server.path, "/v1/events?since=2&instance=another").await;
    assert_eq!(
        body.lines().count(),
        4,
        "numbers of another start do not count: {body}"
    );
    let (_, body) = get(&server.path, "/v1/events?limit=1").await;
    assert!(
        body.lines().nth(1).unwrap().contains("\"seq\":3"),
        "the newest: {body}"
    );
    for route in [
        "/v1/events?tols=x",
        "/v1/events?type=tool_cal",
        "/v1/events?since=-1",
        "/v1/events?tool=a&tool=b",
        "/v1/findings?min_severity=bad",
        "/v1/servers?gone=maybe",
        "/v1/agents?x=1",
    ] {
        let (status, body) = get(&server.path, route).await;
        assert_eq!(status, 400, "{route}: {body}");
        let error = json(&body);
        assert!(!error["message"].as_str().unwrap().is_empty(), "{route}");
        assert!(!error["remedy"].as_str().unwrap().is_empty(), "{route}");
    }
}

#[tokio::test]
async fn errors_have_codes() {
    let server = run();
    for (route, status, code) in [
        ("/v1/nothing", 404, "no_route"),
        ("/v1/off", 405, "no_method"),
        ("/v1/tools?server=none", 404, "not_found"),
        ("/v1/query/later", 501, "unsupported"),
        ("/v1/doctor", 500, "internal"),
    ] {
        let (got, body) = get(&server.path, route).await;
        assert_eq!(
            (got, json(&body)["code"].as_str()),
            (status, Some(code)),
            "{route}: {body}"
        );
    }
    assert_eq!(
        get(&server.path, "/v1/status").await.0,
        200,
        "still there after a panic in the engine"
    );
}
