//! The receiver and the ingest API: what is taken, what is refused and how, and that a flood hurts only its sender.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::kit;
use kams_tests::stage::Stage;
use libtest_mimic::{Completion, Trial};
use serde_json::{Value, json};

use super::{boxed, until, waste, well};
use crate::context::{Context, DRIVERS, FORM_AGENT, FORM_SERVER};

const ADDRESS: &str = "127.0.0.1:4318";
pub(super) const NOBODY: u32 = 65_534;
pub(super) const JSON: &str = "content-type: application/json";
const PROTOBUF: &str = "content-type: application/x-protobuf";

pub(super) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let trial = |name: &str, extra: &'static str, test: fn(&Kams) -> Result<()>| {
        let context = Arc::clone(context);
        Trial::ignorable_test(format!("waste::receiver::{name}"), move || {
            match context.hindrance() {
                Some(hindrance) => Ok(Completion::ignored_with(hindrance)),
                None => boxed(extra, test)
                    .map(|()| Completion::Completed)
                    .map_err(|error| format!("{error:#}").into()),
            }
        })
    };
    vec![
        trial("bad-input", "", bad_input),
        trial("flood", DRIVERS, flood),
        trial("ingest", "", ingest),
    ]
}

/// Status of an answer; none where the connection was closed without one.
pub(super) fn post(path: &str, headers: &[&str], body: &[u8]) -> Result<Option<u16>> {
    let mut stream = TcpStream::connect(ADDRESS)?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n{}\r\n\r\n",
        body.len(),
        headers.join("\r\n")
    );
    // A receiver that has said no need not listen on.
    if stream.write_all(head.as_bytes()).is_ok() {
        drop(stream.write_all(body));
    }
    Ok(status(stream))
}

fn status(mut stream: impl Read) -> Option<u16> {
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    let text = String::from_utf8_lossy(&answer);
    text.split(' ').nth(1).and_then(|code| code.parse().ok())
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new("gzip")
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (mut input, bytes) = (child.stdin.take().context("a pipe")?, bytes.to_vec());
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output()?;
    ensure!(
        writer.join().is_ok_and(|written| written.is_ok()),
        "gzip reads all"
    );
    Ok(output.stdout)
}

/// An export of Claude Code's: a tool call with these arguments.
fn export(session: &str, arguments: &str) -> Value {
    let text = |name: &str, value: &str| json!({"key": name, "value": {"stringValue": value}});
    json!({"resourceLogs": [{"resource": {"attributes": [text("service.name", "claude-code")]}, "scopeLogs": [{"logRecords": [
        {"timeUnixNano": "1796006601836000000", "attributes": [text("session.id", session), text("event.name", "tool_result"),
         text("tool_name", "Bash"), text("tool_input", arguments)]}]}]}]})
}

fn bad_input(kams: &Kams) -> Result<()> {
    let good = export("s", "{}").to_string();
    let good = good.as_bytes();
    let packed = gzip(good)?;
    // 200 MB of spaces in 200 KB.
    let bomb = gzip(&vec![b' '; 200 << 20])?;
    ensure!(bomb.len() < 1 << 20, "the bomb is small");
    let many = format!("{{\"resourceLogs\": [{}{{}}]}}", "{},".repeat(500_000));
    let big = vec![b' '; (8 << 20) + 1];
    let unpack = [JSON, "content-encoding: gzip"];
    let before = memory(kams.pid())?;
    for (what, path, headers, body, wanted) in [
        ("JSON", "/v1/logs", &[JSON][..], good, 200),
        ("gzip", "/v1/logs", &unpack, &packed, 200),
        ("an empty protobuf message", "/v1/traces", &[PROTOBUF], b"", 200),
        ("empty metrics", "/v1/metrics", &[JSON], b"{}", 200),
        ("no type", "/v1/logs", &[], good, 415),
        (
            "another type",
            "/v1/logs",
            &["content-type: text/plain"],
            good,
            415,
        ),
        (
            "another encoding",
            "/v1/logs",
            &[JSON, "content-encoding: br"],
            good,
            415,
        ),
        ("half of it", "/v1/logs", &[JSON], &good[..good.len() / 2], 400),
        ("another signal", "/v1/traces", &[JSON], good, 400),
        ("JSON as protobuf", "/v1/logs", &[PROTOBUF], good, 400),
        ("no gzip", "/v1/logs", &unpack, good, 400),
        (
            "half of a gzip",
            "/v1/logs",
            &unpack,
            &packed[..packed.len() / 2],
            400,
        ),
        ("a bomb", "/v1/logs", &unpack, &bomb, 413),
        ("many values", "/v1/logs", &[JSON], many.as_bytes(), 413),
        ("too large", "/v1/logs", &[JSON], &big, 413),
        ("another path", "/v1/nothing", &[JSON], good, 404),
    ] {
        let got = post(path, headers, body)?;
        ensure!(got == Some(wanted), "{what}: {got:?}, not {wanted}");
    }
    let grown = memory(kams.pid())?.saturating_sub(before);
    ensure!(grown < 96 << 10, "kamsd holds {grown} KB more");
    Ok(())
}

/// Most memory that the daemon ever held, in KB.
fn memory(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.context("VmHWM")
}

/// One user floods; the other's reports are taken, sessions are seen, questions are answered.
fn flood(kams: &Kams) -> Result<()> {
    let body = export("flood", "{}").to_string();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let refused = std::sync::atomic::AtomicU64::new(0);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(relaxed) {
                    if matches!(post("/v1/logs", &[JSON], body.as_bytes()), Ok(Some(429))) {
                        refused.fetch_add(1, relaxed);
                    }
                }
            });
        }
        let result = (|| {
            until("a refusal", || Ok((refused.load(relaxed) > 100).then_some(())))?;
            // As another user.
            let script = format!(
                "import http.client\nc = http.client.HTTPConnection('{ADDRESS}')\n\
                 c.request('POST', '/v1/logs', '{{}}', {{'content-type': 'application/json'}})\nprint(c.getresponse().status)"
            );
            let mut other = Command::new("python3");
            let shown = well(other.args(["-c", &script]).uid(NOBODY).gid(NOBODY).output()?)?;
            ensure!(shown.trim() == "200", "another user's report: {shown}");
            let mark = kams.mark();
            let stage = Stage::new()?;
            let mut agent = stage.command(FORM_AGENT);
            agent
                .args(["pipe-write", FORM_SERVER])
                .env("KAMS_WITNESS", stage.path("witness"));
            stage.run_well(&mut agent)?;
            kams.wait(mark, "the session under a flood", |events| {
                events.iter().any(|event| event.event == "server_gone")
            })?;
            well(kams.kams(&["status"])?)?;
            Ok(())
        })();
        stop.store(true, relaxed);
        result
    })?;
    let counted: f64 = kams
        .metrics()?
        .iter()
        .filter(|(name, _)| name.starts_with("kams_telemetry_requests_total") && name.contains("\"flood\""))
        .map(|(_, value)| value)
        .sum();
    ensure!(counted >= 100.0, "{counted} refusals are counted");
    Ok(())
}

/// Status and body of a request to the admin socket.
pub(super) fn report(kams: &Kams, kind: &str, body: &str) -> Result<(u16, String)> {
    let mut stream = UnixStream::connect(kams.socket())?;
    let request = format!(
        "POST /v1/llm-calls HTTP/1.1\r\nhost: kams\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // Who is refused by the head alone need not be heard to the end.
    drop(stream.write_all(request.as_bytes()));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    Ok((status.context("a status")?, body.to_owned()))
}

fn ingest(kams: &Kams) -> Result<()> {
    let call = json!({"session_id": "nightly", "provider": "openai", "model": "gpt-5", "method": "embeddings.create",
        "prompt_tokens": 40, "raw_request": {"input": "top five of planted-words-77"}});
    let body = json!({"calls": [call, call]}).to_string();
    let (status, answer) = report(kams, "application/json", &body)?;
    ensure!(
        status == 200 && answer.contains("\"accepted\":2"),
        "{status} {answer}"
    );
    let found = until("embedding waste", || {
        Ok(waste(kams)?
            .into_iter()
            .find(|f| f["detector"] == "waste.embedding_waste"))
    })?;
    ensure!(
        found["uid"] == 0 && !found.to_string().contains("planted"),
        "{found}"
    );
    ensure!(
        found["evidence"]["numbers"]["tokens_at_stake"] == json!(40.0),
        "{found}"
    );
    ensure!(kams.metric("kams_waste_total")? >= 1.0, "it is counted");
    for (kind, body, wanted, word) in [
        ("text/plain", body.as_str(), 415, "content type"),
        ("application/json", "{", 400, "JSON"),
        ("application/json", "[]", 400, "object"),
        (
            "application/json",
            r#"{"calls": [{"session_id": "s", "tokens": 5}]}"#,
            400,
            "tokens",
        ),
        (
            "application/json",
            r#"{"calls": [{"session_id": "s"}], "agent_pid": 1}"#,
            404,
            "agent",
        ),
    ] {
        let (status, answer) = report(kams, kind, body)?;
        ensure!(
            status == wanted && answer.contains(word),
            "{body}: {status} {answer}"
        );
    }
    // The example of the documentation.
    let example = kit::root().join("dist/examples/report-llm-call.py");
    let output = Command::new(example)
        .args(["s-1", "gpt-5", "900", "12"])
        .env("KAMS_SOCKET", kams.socket())
        .output()?;
    ensure!(well(output)?.contains("\"accepted\":1"), "the example");
    let mut codes = Vec::new();
    for _ in 0..400 {
        codes.push(report(kams, "application/json", "{}")?.0);
    }
    ensure!(codes.contains(&429), "a flood is refused");
    Ok(())
}
