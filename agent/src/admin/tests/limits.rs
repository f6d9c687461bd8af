//! What a hostile or clumsy client may cost.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::fake::{run, run_with};
use super::http::{can_be_others, get, get_text, json, post_text, say, say_as};
use crate::admin::{AdminServer, BindError, FeedLimits, Limits, MetricsServer, patiently};

fn short() -> Limits {
    Limits {
        head: Duration::from_millis(200),
        answer: Duration::from_millis(300),
        body: 1_000,
        ..Limits::default()
    }
}

#[tokio::test]
async fn oversize_requests_are_refused() {
    let server = run_with(short(), FeedLimits::default());
    let big = "x".repeat(1_001);
    let (status, body) = say(&server.path, &post_text("/v1/command/echo", &big)).await;
    assert!(status == 413 || status == 403, "{status} {body}");
    let many = "header: v\r\n".repeat(100);
    let (status, _) = say(
        &server.path,
        &format!("GET /v1/status HTTP/1.1\r\nhost: k\r\n{many}\r\n"),
    )
    .await;
    assert_eq!(status, 431);
    let long = format!("/v1/events?server={}", "x".repeat(300));
    assert_eq!(get(&server.path, &long).await.0, 400);
    assert_eq!(get(&server.path, "/v1/status").await.0, 200);
}

#[tokio::test]
async fn endless_heads_are_cut() {
    let server = run_with(short(), FeedLimits::default());
    let mut stream = UnixStream::connect(&server.path).await.unwrap();
    let mut written = 0_usize;
    let chunk = vec![b'x'; 64 * 1024];
    // The server stops reading long before this; the write then fails.
    while written < 64 << 20 && stream.write_all(&chunk).await.is_ok() {
        written += chunk.len();
    }
    assert!(written < 64 << 20, "all of {written} bytes were taken");
}

#[tokio::test]
async fn slow_heads_and_bodies_time_out() {
    let server = run_with(short(), FeedLimits::default());
    let whole = post_text("/v1/command/echo", "12345");
    let partial = whole.split_at(whole.len() - 1).0;
    for text in ["GET /v1/sta", "", partial] {
        let mut stream = UnixStream::connect(&server.path).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut out = String::new();
        // Ends although this side neither finishes nor closes.
        if let Err(error) = stream.read_to_string(&mut out).await {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        assert!(!out.contains("200 OK"), "{text:?}: {out}");
    }
}

#[tokio::test]
async fn an_engine_that_hangs_is_reported() {
    let server = run_with(short(), FeedLimits::default());
    server.backend.gate.close();
    let (status, body) = get(&server.path, "/v1/status").await;
    assert_eq!(
        (status, json(&body)["code"].as_str()),
        (503, Some("busy")),
        "{body}"
    );
    assert_eq!(
        get(&server.path, "/v1/agents").await.0,
        200,
        "other questions are still answered"
    );
    server.backend.gate.open();
    assert_eq!(get(&server.path, "/v1/status").await.0, 200);
}

#[tokio::test]
async fn one_user_cannot_take_all_connections() {
    if !can_be_others() {
        return;
    }
    let limits = Limits {
        connections: 4,
        per_user: 2,
        reserved: 1,
        ..Limits::default()
    };
    let server = run_with(limits, FeedLimits::default());
    let holder = concat!(
        "import os,socket,sys\n",
        "os.setgroups([]); os.setgid(1001); os.setuid(1001)\n",
        "s=[socket.socket(socket.AF_UNIX) for _ in range(3)]\n",
        "[c.connect(sys.argv[1]) for c in s]\n",
        // The one beyond the limit is answered at once, before it has said anything.
        "print(s[2].recv(4096).decode(), flush=True)\n",
        "sys.stdin.read()\n",
    );
    let mut child = tokio::process::Command::new("python3")
        .args(["-c", holder])
        .arg(&server.path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 4096];
    let count = child.stdout.as_mut().unwrap().read(&mut said).await.unwrap();
    let said = String::from_utf8_lossy(&said[..count]).into_owned();
    assert!(
        said.contains("503") && said.contains("too many connections"),
        "{said}"
    );
    assert_eq!(
        say_as(&server.path, 1002, "", &get_text("/v1/agents")).await.0,
        200
    );
    assert_eq!(
        get(&server.path, "/v1/agents").await.0,
        200,
        "root has a reserved place"
    );
    drop(child.stdin.take());
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test]
async fn rubbish_is_survived() {
    let server = run();
    for text in [
        "\0\0\0\0\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\u{1b}[2J\r\n\r\n",
        "GET /v1/%ff%00 HTTP/1.1\r\nhost: k\r\n\r\n",
    ] {
        let (status, _) = say(&server.path, text).await;
        assert!((400..500).contains(&status), "{text:?}: {status}");
    }
    assert_eq!(get(&server.path, "/v1/status").await.0, 200);
}

#[tokio::test]
async fn the_socket_is_made_and_taken_away_with_care() {
    let server = run();
    let path = server.path.clone();
    let again = || AdminServer::bind(&path, None, Limits::default());
    assert!(matches!(again(), Err(BindError::InUse { .. })));
    server.stop.send(true).unwrap();
    server.task.await.unwrap().unwrap();
    assert!(!path.exists(), "gone after a clean stop");

    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "left behind by a dead daemon");
    let revived = AdminServer::bind(&path, None, Limits::default()).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "somebody else's").unwrap();
    drop(revived);
    assert!(path.exists(), "not ours, not removed");
    assert!(matches!(
        AdminServer::bind(&path, None, Limits::default()),
        Err(BindError::Occupied { .. })
    ));
}

#[test]
fn an_address_that_is_given_up_is_waited_for() {
    let mut dying = Some(MetricsServer::bind("127.0.0.1:0".parse().unwrap(), false).unwrap());
    let address = dying.as_ref().unwrap().address();
    let mut attempts = 0;
    let bound = patiently(|| {
        attempts += 1;
        if attempts == 3 {
            dying = None;
        }
        MetricsServer::bind(address, false)
    });
    assert_eq!((bound.unwrap().address(), attempts), (address, 3));
}

#[tokio::test]
async fn metrics_stay_on_loopback() {
    let remote = "0.0.0.0:0".parse().unwrap();
    assert!(matches!(
        MetricsServer::bind(remote, false),
        Err(BindError::Remote { .. })
    ));
    assert!(MetricsServer::bind(remote, true).is_ok());

    let server = run();
    let endpoint = MetricsServer::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let address = endpoint.address();
    let task = tokio::spawn(endpoint.serve(
        std::sync::Arc::clone(&server.backend) as _,
        std::sync::Arc::clone(&server.metrics),
        server.stop.subscribe(),
    ));
    let ask = async |path: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(get_text(path).as_bytes()).await.unwrap();
        let mut out = String::new();
        stream.read_to_string(&mut out).await.unwrap();
        out
    };
    let text = ask("/metrics").await;
    assert!(
        text.contains("200 OK") && text.contains("text/plain; version=0.0.4"),
        "{text}"
    );
    assert!(
        text.contains("kams_build_info{commit=\"0\",version=\"0\"} 1"),
        "{text}"
    );
    assert!(ask("/v1/status").await.contains("404"));
    let mut silent = Vec::new();
    for _ in 0..100 {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /met").await.unwrap();
        silent.push(stream);
    }
    assert!(
        ask("/metrics").await.contains("200 OK"),
        "clients that say nothing keep nobody out"
    );
    server.stop.send(true).unwrap();
    task.await.unwrap().unwrap();
}
