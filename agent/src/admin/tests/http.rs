//! A client that says exactly what a test wants said, as whom it wants.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Status and body.
pub(super) type Answer = (u16, String);

pub(super) fn get_text(route: &str) -> String {
    format!("GET {route} HTTP/1.1\r\nhost: kams\r\n\r\n")
}

pub(super) fn post_text(route: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {route} HTTP/1.1\r\nhost: kams\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// Sends the text from this process and reads to the end.
pub(super) async fn say(path: &Path, text: &str) -> Answer {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut out = Vec::new();
    stream.read_to_end(&mut out).await.unwrap();
    parse(&out)
}

pub(super) async fn get(path: &Path, route: &str) -> Answer {
    say(path, &get_text(route)).await
}

/// Sends the text from a child process under other credentials. Root only.
pub(super) async fn say_as(path: &Path, uid: u32, groups: &str, text: &str) -> Answer {
    let script = concat!(
        "import os,socket,sys\n",
        "uid,groups,path,text=int(sys.argv[1]),sys.argv[2],sys.argv[3],sys.argv[4]\n",
        "os.setgroups([int(g) for g in groups.split(',') if g]); os.setgid(uid); os.setuid(uid)\n",
        "s=socket.socket(socket.AF_UNIX); s.connect(path); s.sendall(text.encode())\n",
        "while True:\n b=s.recv(65536)\n if not b: break\n sys.stdout.buffer.write(b)\n",
    );
    let child = tokio::process::Command::new("python3")
        .args(["-c", script, &uid.to_string(), groups])
        .args([path.as_os_str(), text.as_ref()])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(
        child.status.success(),
        "{}",
        String::from_utf8_lossy(&child.stderr)
    );
    parse(&child.stdout)
}

/// Whether credentials can be changed here; says why a test does nothing otherwise.
pub(super) fn can_be_others() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can connect as another user");
    }
    root
}

pub(super) fn json(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn parse(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    (status, if chunked { unchunk(body) } else { body.to_owned() })
}

/// Takes the chunk frames off; a cut end gives what was there.
pub(super) fn unchunk(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size, 16) else {
            break;
        };
        let Some((chunk, rest)) = rest.split_at_checked(size) else {
            break;
        };
        out.push_str(chunk);
        body = rest.trim_start_matches("\r\n");
    }
    out
}
