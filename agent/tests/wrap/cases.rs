//! The cases.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::session::{Session, text};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("bytes_pass_unchanged", bytes_pass_unchanged),
    ("a_denied_call_and_the_next", a_denied_call_and_the_next),
    ("the_server_gets_redacted_bytes", the_server_gets_redacted_bytes),
    ("drift_never_reaches_the_agent", drift_never_reaches_the_agent),
    ("a_pinned_down_tool_disappears", a_pinned_down_tool_disappears),
    (
        "refusals_say_what_their_person_can_do",
        refusals_say_what_their_person_can_do,
    ),
    ("ends_are_kept", ends_are_kept),
    ("signals_go_on", signals_go_on),
    ("a_server_that_policy_kills", a_server_that_policy_kills),
    ("errors_do_not_go_past", errors_do_not_go_past),
    ("observe_changes_nothing", observe_changes_nothing),
    ("what_cannot_start", what_cannot_start),
];

fn secret() -> String {
    format!("gh{}_R7kQ2mZ9xT4bV1nW8cL5sD3gH6jP0aYeUoIq", 'p')
}

fn bytes_pass_unchanged() {
    for sockets in [false, true] {
        let mut session = Session::with(&["--enforce"], None, sockets);
        let (mut sent, mut got) = (String::new(), session.file("out"));
        for n in 0..2_000_u32 {
            let pad = match n % 500 {
                0 => "long ".repeat(60_000),
                7 => "\u{20ac}".repeat(3_000),
                _ => "word ".repeat(n as usize % 40),
            };
            let line = format!(
                "{{ \"params\":{{\"name\":\"say\" , \"arguments\":{{\"text\":\"{pad}\\u00e9 {n}\"}}}},\"un/known\":1.50,\"id\":\"{n}\",\"jsonrpc\":\"2.0\",\"method\":\"tools/call\"}}\n"
            );
            sent.push_str(&line);
            session.send(&line);
            if n % 3 == 0 {
                sent.push_str("not json\n[]\n");
                session.send("not json\n[]\n");
            }
            got.push_str(&session.line());
        }
        // What the server wrote down when it was greeted comes before.
        let read = session.file("in");
        assert!(read.ends_with(&sent), "{} bytes of {}", read.len(), sent.len());
        assert!(session.end().success());
        assert!(session.file("out") == got);
        assert_eq!(got.lines().count(), 2_001);
    }
}

fn a_denied_call_and_the_next() {
    let mut session = Session::start(&["--enforce"]);
    let denied = session.call("say", &json!({"text": secret()}));
    assert_eq!(denied["result"]["isError"], true);
    assert!(text(&denied).contains("block-credential-egress"), "{denied}");
    assert_eq!(text(&session.call("say", &json!({"text": "fine"}))), "fine");
    assert!(session.end().success());
    assert!(!session.file("in").contains("R7kQ2mZ9"), "it reached the server");
    let record = session.file("record");
    assert!(record.contains("\"action\":\"block_call\"") && !record.contains("R7kQ2mZ9"));
    assert!(
        session
            .file("stderr")
            .contains("CRITICAL egress.sensitive on say: block_call")
    );
}

fn the_server_gets_redacted_bytes() {
    let mut session =
        Session::ruled("  - {name: mask, match: {kind: EGRESS_SENSITIVE}, action: redact_args}\n");
    let answer = session.call("say", &json!({"text": format!("key {} end", secret())}));
    assert_eq!(text(&answer), "key [kams:redacted:github_token] end");
    session.end();
    assert!(
        session
            .file("in")
            .contains("key [kams:redacted:github_token] end")
    );
}

fn drift_never_reaches_the_agent() {
    let mut session =
        Session::ruled("  - {name: no-drift, match: {kind: INTEGRITY_DRIFT}, action: block_call}\n");
    assert_eq!(
        session.ask("tools/list", &json!({}))["result"]["tools"][0]["name"],
        "find"
    );
    session.call("say", &json!({"do": "poison"}));
    let list = session.ask("tools/list", &json!({}));
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list["x"].to_string(), "1.5");
    assert!(session.end().success());
    // The server did send it; what the agent got in its place is on record, to the byte.
    assert!(session.file("out").contains("id_rsa"));
    let replaced: Vec<Value> = session
        .file("record")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &Value| event["event"] == "replaced")
        .collect();
    assert_eq!(replaced.len(), 1);
    let detail = replaced[0]["detail"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(detail).unwrap(), list);
    assert!(
        detail.starts_with("{ \"result\":{") && detail.ends_with(" \"x\":1.50}"),
        "{detail}"
    );
}

fn a_pinned_down_tool_disappears() {
    let mut session = Session::start(&["--enforce"]);
    session.ask("tools/list", &json!({}));
    let poisoned = session.call("find", &json!({"inject": true}));
    assert!(
        text(&poisoned).contains("block-tool-on-result-injection"),
        "{poisoned}"
    );
    let notice: Value = serde_json::from_str(&session.line()).unwrap();
    assert_eq!(notice["method"], "notifications/tools/list_changed");
    let list = session.ask("tools/list", &json!({}));
    assert_eq!(list["result"]["tools"][0]["name"], "say");
    assert_eq!(
        session.call("find", &json!({"text": "x"}))["result"]["isError"],
        true
    );
    assert_eq!(text(&session.call("say", &json!({"text": "y"}))), "y");
}

fn refusals_say_what_their_person_can_do() {
    let mut first = Session::start(&["--enforce"]);
    first.call("find", &json!({"inject": true}));
    first.line();
    let blocked = first.call("find", &json!({"text": "x"}));
    assert!(
        text(&blocked).contains("kams wrap --lift") && !text(&blocked).contains("restrictions lift"),
        "{blocked}"
    );
    let denied = first.call("say", &json!({"text": secret()}));
    assert!(text(&denied).contains("can change it"), "{denied}");
    assert!(first.end().success());
    // The next session is told the same, until somebody lifts it.
    let mut next = Session::after(Some(&first), &["--enforce"], None, false);
    assert_eq!(
        next.call("find", &json!({"text": "x"}))["result"]["isError"],
        true
    );
    assert!(next.end().success());
    let mut lifted = Session::after(Some(&first), &["--enforce", "--lift"], None, false);
    assert_eq!(
        lifted.call("find", &json!({"text": "x"}))["result"]["isError"],
        Value::Null
    );
    assert!(lifted.end().success());
    // What takes an approval is refused: nobody could be asked.
    let mut asking =
        Session::ruled("  - {name: ask, match: {on: call, tool: say}, action: require_approval}\n");
    let refused = asking.call("say", &json!({"text": "x"}));
    assert!(text(&refused).contains("nobody to ask"), "{refused}");
}

fn ends_are_kept() {
    for (what, code, signal) in [("die", Some(7), None), ("abort", None, Some(6))] {
        let mut session = Session::start(&[]);
        session.send(&format!(
            "{}\n",
            json!({"id": "open", "method": "tools/call", "params": {"name": "say", "arguments": {"do": what}}})
        ));
        if what == "die" {
            assert_eq!(session.line(), "{\"half\n");
        }
        let error: Value = serde_json::from_str(&session.line()).unwrap();
        assert_eq!(
            (&error["id"], &error["error"]["code"]),
            (&json!("open"), &json!(-31_002))
        );
        assert_eq!(session.line(), "");
        let status = session.end();
        assert_eq!((status.code(), status.signal()), (code, signal), "{what}");
    }
}

fn signals_go_on() {
    let mut session = Session::start(&[]);
    let server = session.call("say", &json!({"do": "pid"}))["result"]["pid"]
        .as_i64()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(session.process.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    let status = session.process.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32));
    assert!(
        kill(Pid::from_raw(i32::try_from(server).unwrap()), None).is_err(),
        "the server runs on"
    );
    // What dies without a word takes the server along as the agent's death would: by the end of its input.
    let mut session = Session::start(&[]);
    let server = session.call("say", &json!({"do": "pid"}))["result"]["pid"]
        .as_i64()
        .unwrap();
    session.process.kill().unwrap();
    session.process.wait().unwrap();
    assert_eq!(session.line(), "", "the agent sees the end at once");
    let server = Pid::from_raw(i32::try_from(server).unwrap());
    while kill(server, None).is_ok() {
        std::thread::yield_now();
    }
}

fn a_server_that_policy_kills() {
    let mut session =
        Session::ruled("  - {name: kill, match: {kind: EGRESS_SENSITIVE}, action: kill_server}\n");
    let denied = session.call("say", &json!({"text": secret()}));
    assert!(text(&denied).contains("`kill`"), "{denied}");
    assert_eq!(session.line(), "");
    assert_eq!(session.end().signal(), Some(Signal::SIGKILL as i32));
}

fn errors_do_not_go_past() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg("exec \"$0\" \"$@\" 2>&1")
        .arg(env!("CARGO_BIN_EXE_kams"));
    command.args(["wrap", "--enforce", "--relays", "/nonexistent/relay.sock", "--"]);
    command
        .arg(std::env::current_exe().unwrap())
        .args(["serve"])
        .arg(folder.path());
    command.env("XDG_STATE_HOME", folder.path());
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut process = command.spawn().unwrap();
    let call = json!({"id": 1, "method": "tools/call", "params": {"name": "say", "arguments": {"do": "shout", "text": "t"}}});
    let mut input = process.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, format!("{call}\n").as_bytes()).unwrap();
    drop(input);
    let out = process.wait_with_output().unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines.contains(&"beside the point") && lines.len() == 2, "{out}");
}

fn observe_changes_nothing() {
    let mut session = Session::start(&[]);
    let secret = secret();
    assert_eq!(text(&session.call("say", &json!({"text": secret}))), secret);
    assert!(text(&session.call("find", &json!({"inject": true}))).contains("id_rsa"));
    assert!(session.end().success());
    let stderr = session.file("stderr");
    assert!(
        stderr.contains("would block_call") && stderr.contains("would block_tool"),
        "{stderr}"
    );
}

fn what_cannot_start() {
    let run = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_kams"))
            .arg("wrap")
            .args(words)
            .output()
            .unwrap()
    };
    let out = run(&["--", "/nonexistent/server"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("/nonexistent/server"));
    let out = run(&["--policy", "/nonexistent/policy.yaml", "--", "true"]);
    assert_eq!(out.status.code(), Some(2));
}
