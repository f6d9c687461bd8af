//! The recorded sessions of real clients and servers, through framer and session. Skipped where they are absent.
#![cfg(test)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kams_mcp::event::{EventKind, Malformed, Outcome};
use kams_mcp::{Direction, Framer, Session};

fn folder() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/transcripts");
    path.is_dir().then_some(path)
}

#[derive(Debug, Default, PartialEq)]
struct Counts {
    requests: u64,
    responses: u64,
    server_requests: u64,
    notifications: u64,
    tool_calls: u64,
    tool_results: u64,
    tool_errors: u64,
    rpc_errors: u64,
    unknown: u64,
    malformed: u64,
    complete_lists: u64,
}

fn replay(path: &Path) -> (Counts, Session) {
    let mut counts = Counts::default();
    let mut session = Session::default();
    let (mut to_server, mut to_client) = (Framer::default(), Framer::default());
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(raw) = record["raw"].as_str() else { continue };
        let time = record["ms"].as_u64().unwrap() * 1_000_000;
        let (direction, framer) = match record["dir"].as_str().unwrap() {
            "c>s" => (Direction::ToServer, &mut to_server),
            _ => (Direction::ToClient, &mut to_client),
        };
        let wire = format!("{raw}\n");
        let mut rest = wire.as_bytes();
        while let Some(frame) = framer.next_frame(&mut rest) {
            for event in session.feed(direction, frame, time) {
                count(&mut counts, &event);
            }
        }
    }
    for event in session.finish() {
        count(&mut counts, &event);
    }
    (counts, session)
}

fn count(counts: &mut Counts, event: &kams_mcp::Event<'_>) {
    counts.tool_calls += u64::from(event.tool_call().is_some());
    counts.tool_results += u64::from(event.tool_result().is_some());
    match &event.kind {
        EventKind::Request(_) => {
            counts.requests += 1;
            counts.server_requests += u64::from(event.direction == Direction::ToClient);
        }
        EventKind::Response(response) => {
            counts.responses += 1;
            match response.outcome {
                Outcome::ToolError => counts.tool_errors += 1,
                Outcome::RpcError(_) => counts.rpc_errors += 1,
                _ => {}
            }
            if let kams_mcp::event::ResponseKind::Page(page) = &response.kind {
                assert!(page.items.is_some());
                counts.complete_lists += u64::from(page.complete);
            }
        }
        EventKind::Notification(_) | EventKind::Progress(_) | EventKind::Cancelled(_) => counts.notifications += 1,
        EventKind::UnknownResponse(_) => counts.unknown += 1,
        EventKind::Malformed(reason) => {
            assert!(matches!(reason, Malformed::Blank | Malformed::Line(_)));
            counts.malformed += 1;
        }
        EventKind::Identity(_) => {}
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn recorded_sessions_pair_completely() {
    let Some(folder) = folder() else {
        eprintln!("skipped: no transcripts");
        return;
    };
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "jsonl") {
            let (counts, session) = replay(&path);
            println!("{:?} {counts:?} open {} {} {:?}", path.file_name(), session.open_requests(Direction::ToServer), session.open_requests(Direction::ToClient), session.identity().revision);
            all.insert(path.file_stem().unwrap().to_string_lossy().into_owned(), counts);
        }
    }
}
