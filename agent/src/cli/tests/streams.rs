//! `kams events` and `kams findings`.

use kams_export::view::{EventKind, EventView, Outcome, Record};
use serde_json::Value;

use super::fixture::{Daemon, HOSTILE, Page, confirmed, daemon, event, finding, kams, result, spawn, text};
use crate::cli::{CliError, Ended, Terminal};

fn a_session(daemon: &Daemon) {
    let feed = &daemon.feed;
    feed.publish(Record::Event(event(EventKind::ServerStarted, 1)));
    feed.publish(confirmed(2));
    feed.publish(Record::Event(EventView {
        count: Some(9),
        ..event(EventKind::ToolsListed, 3)
    }));
    feed.publish(Record::Event(EventView {
        tool: Some("add".into()),
        ..event(EventKind::ToolCall, 4)
    }));
    feed.publish(result("add", Outcome::Ok, 1_250, 300, 5));
    feed.publish(result(HOSTILE, Outcome::ToolError, 2_500_000, 1 << 20, 6));
    feed.publish(Record::Finding(finding("HIGH", 7)));
}

#[tokio::test]
async fn the_table_has_one_line_per_server_call_and_finding() {
    let (_folder, socket, daemon) = daemon();
    a_session(&daemon);
    let (ended, out) = kams(&socket, "events").await;
    assert_eq!(ended.unwrap(), Ended::Clean);
    let pad = "2026-11-30 04:00:00  ada     claude        ";
    let server = "npm:@modelcontextprotocol/server-memory";
    let lines: Vec<String> = vec![
        "TIME                 USER    AGENT         SERVER                    WHAT                          TOOK  OUTCOME     BYTES".into(),
        format!("{pad}{server}  server started                                         pid 42, pipe, MCP 2025-11-25"),
        format!("{pad}{server}  lists 9 tools"),
        format!("{pad}{server}  -> add                      1.2 ms  ok          300 B"),
        format!(r"{pad}{server}  -> \u{{1b}}[2J\u{{1b}}[31mevil\u{{202e}}\n\u{{9b}}0m    2.50 s  tool_error   1.0 MiB"),
        format!("{pad}npm:x                                    !! HIGH integrity.description_injection                 alert                 on add, KAMS-INT-002 confidence 0.72, would block_tool"),
    ];
    let expected: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(out, text(&expected), "\n{out}");
}

#[tokio::test]
async fn json_lines_hold_everything_and_filters_narrow() {
    let (_folder, socket, daemon) = daemon();
    a_session(&daemon);
    let (_, out) = kams(&socket, "events -o json").await;
    let seqs: Vec<u64> = out
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap()["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6, 7]);
    for (line, count) in [
        ("events -o json --type finding", 1),
        ("events -o json --tool a*", 3),
        ("events -o json --user bob", 0),
        ("events -o json --server 1 -n 2", 2),
    ] {
        assert_eq!(kams(&socket, line).await.1.lines().count(), count, "{line}");
    }
    // The word cannot carry an underscore here: ask the way the CLI spells it.
    let (_, all) = kams(&socket, "events --all").await;
    assert!(
        all.contains("may be a server") && all.contains("-> add ..."),
        "{all}"
    );
}

#[tokio::test]
async fn findings_decide_the_exit() {
    let (_folder, socket, _daemon) = daemon();
    for (line, expected) in [
        ("findings", Ended::Clean),
        ("findings --fail-on critical", Ended::Clean),
        ("findings --fail-on high", Ended::Found),
        ("findings --fail-on HIGH -o json", Ended::Found),
        ("findings --fail-on medium --min-severity critical", Ended::Clean),
    ] {
        assert_eq!(kams(&socket, line).await.0.unwrap(), expected, "{line}");
    }
    let (_, out) = kams(&socket, "findings --min-severity high -o json").await;
    assert_eq!(out.lines().count(), 1, "{out}");
}

#[tokio::test]
async fn following_shows_what_happens_and_says_when_it_ends() {
    let (_folder, socket, daemon) = daemon();
    daemon.feed.publish(result("before", Outcome::Ok, 1, 1, 0));
    let page = Page::default();
    let following = spawn(
        &socket,
        "events --follow -n 1",
        Box::new(page.clone()),
        Terminal::none(),
    );
    page.wait_for("before").await;
    daemon.feed.publish(result("after", Outcome::Ok, 1, 1, 1));
    page.wait_for("after").await;
    assert!(
        page.text().contains("04:00:00.001"),
        "times of day: {}",
        page.text()
    );
    daemon.stop().await;
    let error = following.await.unwrap().unwrap_err();
    assert!(matches!(error, CliError::Lost { .. }), "{error}");
    assert!(error.to_string().contains("--reconnect"), "{error}");
}

#[tokio::test]
async fn reconnecting_survives_a_restart_of_the_daemon() {
    let (_folder, socket, daemon) = daemon();
    let page = Page::default();
    let line = "events --follow --reconnect -n 10 -o json";
    daemon.feed.publish(result("first", Outcome::Ok, 1, 1, 0));
    let following = spawn(&socket, line, Box::new(page.clone()), Terminal::none());
    page.wait_for("first").await;
    daemon.stop().await;
    let second = Daemon::start(&socket, "two");
    // Numbered 1 like the first: it is shown all the same, since it belongs to another start.
    second.feed.publish(result("second", Outcome::Ok, 1, 1, 1));
    page.wait_for("second").await;
    assert_eq!(page.text().matches("first").count(), 1, "nothing twice");
    page.close();
    second.feed.publish(result("third", Outcome::Ok, 1, 1, 2));
    assert_eq!(
        following.await.unwrap().unwrap(),
        Ended::Clean,
        "a reader that goes away is success"
    );
}

#[tokio::test]
async fn colours_only_where_they_are_welcome() {
    let (_folder, socket, daemon) = daemon();
    a_session(&daemon);
    let coloured = Terminal {
        tty: true,
        color: true,
        ..Terminal::none()
    };
    for (line, terminal, expected) in [
        ("events", coloured.clone(), true),
        ("events --color never", coloured.clone(), false),
        ("events", Terminal::none(), false),
        ("events --color always", Terminal::none(), true),
        ("events -o json", coloured, false),
    ] {
        let page = Page::default();
        spawn(&socket, line, Box::new(page.clone()), terminal)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(page.text().contains('\u{1b}'), expected, "{line}");
    }
}
