//! Commands that ask once.

use serde_json::Value;

use super::fixture::{Page, daemon, kams, spawn, text};
use crate::cli::{CliError, Ended, Terminal};

#[tokio::test]
async fn status_is_one_page() {
    let (_folder, socket, _daemon) = daemon();
    let (ended, out) = kams(&socket, "status").await;
    assert_eq!(ended.unwrap(), Ended::Clean);
    assert_eq!(
        out,
        text(&[
            "kamsd 0.1.0 (pid 77) is on, mode observe, up 2 h 3 min, kernel 6.18.44",
            "2 agents and 3 servers live, 120 calls, 1 findings (whole host)",
            "payload probe attached (tracepoint): 2 agents live",
            "",
            "Coverage",
            "SEEN  WHAT                       NOW  DETAIL",
            "yes   stdio servers                3",
            "no    servers reached over HTTP    1  not read by this version",
            "",
            "Probes",
            "PROBE               STATE     DETAIL",
            "sched_process_exec  attached",
            "",
            "Losses since start",
            "STAGE  REASON   COUNT",
            "ring   reserve      4",
            "",
            "Notes",
            r"- look at \u{1b}[2J\u{1b}[31mevil\u{202e}\n\u{9b}0m",
        ])
    );
}

#[tokio::test]
async fn servers_and_their_cost() {
    let (_folder, socket, _daemon) = daemon();
    let (_, out) = kams(&socket, "servers").await;
    assert_eq!(
        out,
        text(&[
            "ID  USER  AGENT   SERVER                                       STATE     PID  TOOLS  CALLS  ERRORS  GAPS  NETWORK  SECCOMP  CALLS ITSELF",
            " 1  ada   claude  npm:@modelcontextprotocol/server-memory@2.0  observed   42      9      3       1     0  -        -        \\u{1b}[2J\\u{1b}[31me…l\\u{202e}\\n\\u{9b}0m",
        ])
    );
    let (_, out) = kams(&socket, "servers --cost --gone").await;
    assert_eq!(
        out,
        text(&[
            "ID  USER  AGENT   SERVER                                       STATE     TOOLS  DEFINITIONS  RESULTS (EST.)  REPORTED  SHARE  CALLS  RECEIVED",
            " 1  ada   claude  npm:@modelcontextprotocol/server-memory@2.0  observed      9         1234               -         -   50 %      3   4.0 KiB",
            " 2  ada   claude  npm:@modelcontextprotocol/server-memory      gone          -         1234               -         -   50 %      3   4.0 KiB",
        ])
    );
}

#[tokio::test]
async fn hostile_names_cannot_act_in_any_form() {
    let (_folder, socket, _daemon) = daemon();
    for line in [
        "servers",
        "tools",
        "status",
        "servers -o json",
        "tools -o json",
        "status -o json",
    ] {
        for terminal in [
            Terminal::none(),
            Terminal {
                tty: true,
                ..Terminal::none()
            },
        ] {
            let page = Page::default();
            spawn(&socket, line, Box::new(page.clone()), terminal)
                .await
                .unwrap()
                .unwrap();
            let out = page.text();
            assert!(out.contains("[31me"), "{line}: {out}");
            let acting = out
                .chars()
                .find(|c| *c != '\n' && kams_export::text::is_unsafe(*c));
            assert_eq!(acting, None, "{line}: {out:?}");
        }
    }
}

#[tokio::test]
async fn json_is_one_document_with_every_member() {
    let (_folder, socket, _daemon) = daemon();
    let (_, out) = kams(&socket, "servers -o json").await;
    assert_eq!(out.lines().count(), 1, "one line for programs");
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["schema"], 1);
    assert_eq!(value["servers"][0]["definition_tokens"], 1234);
    assert_eq!(value["servers"][0]["state"], "observed");
}

#[tokio::test]
async fn parameters_are_encoded() {
    let (_folder, socket, _daemon) = daemon();
    let (ended, out) = kams(&socket, "tools memory_&_more").await;
    ended.unwrap();
    assert!(out.contains("npm:memory"), "{out}");
    let error = kams(&socket, "tools none").await.0.unwrap_err().to_string();
    assert_eq!(
        error,
        "no such server `none`\n  `kams servers` and `kams tools` list what there is"
    );
}

#[tokio::test]
async fn doctor_fails_where_a_check_fails() {
    let (_folder, socket, _daemon) = daemon();
    let (ended, out) = kams(&socket, "doctor").await;
    assert_eq!(ended.unwrap(), Ended::Found);
    assert_eq!(
        out,
        text(&[
            "kernel",
            "  ok    BTF: seen",
            "  WARN  trampolines: seen",
            "",
            "sensor",
            "  FAIL  ring buffer: seen",
            "        -> make it larger",
            "",
            "3 checks: 1 failed, 1 with limits",
        ])
    );
}

#[tokio::test]
async fn no_daemon_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none.sock");
    for line in ["status", "events --follow", "off", "findings -o json"] {
        let (ended, out) = kams(&socket, line).await;
        let error = ended.unwrap_err();
        assert!(matches!(error, CliError::NotRunning { .. }), "{line}: {error}");
        assert!(
            error.to_string().contains("sudo systemctl start kamsd"),
            "{error}"
        );
        assert_eq!(out, "", "nothing on stdout");
    }
    // A socket that a dead daemon left behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(matches!(
        kams(&socket, "status").await.0,
        Err(CliError::NotRunning { .. })
    ));
}

#[tokio::test]
async fn a_refusal_comes_with_its_remedy() {
    let (_folder, socket, _daemon) = daemon();
    let error = kams(&socket, "off").await.0.unwrap_err().to_string();
    let expected = if nix::unistd::geteuid().is_root() {
        "an upgrade is running\n  wait until it has ended"
    } else {
        "refused: uid"
    };
    assert!(error.starts_with(expected), "{error}");
}
