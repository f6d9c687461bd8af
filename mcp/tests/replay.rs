//! The recorded sessions of real clients and servers, through framer and session. Skipped where they are absent.

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kams_mcp::event::{EventKind, Outcome, ResponseKind};
    use kams_mcp::{Confirm, Direction, Event, Framer, Revision, Session, Verdict};

    /// What a recording must give. Counted from the recordings by another program.
    #[derive(Debug, Default, PartialEq)]
    struct Counts {
        /// Of both directions.
        requests: u32,
        /// Answers that were paired.
        responses: u32,
        /// Requests by the server.
        server_requests: u32,
        /// Progress and cancellations among them.
        notifications: u32,
        tool_calls: u32,
        tool_results: u32,
        tool_errors: u32,
        rpc_errors: u32,
        /// Answers nobody asked for.
        unknown: u32,
        malformed: u32,
        complete_lists: u32,
    }

    impl Counts {
        const fn new(row: [u32; 11]) -> Self {
            let [
                requests,
                responses,
                server_requests,
                notifications,
                tool_calls,
                tool_results,
                tool_errors,
                rpc_errors,
                unknown,
                malformed,
                complete_lists,
            ] = row;
            Self {
                requests,
                responses,
                server_requests,
                notifications,
                tool_calls,
                tool_results,
                tool_errors,
                rpc_errors,
                unknown,
                malformed,
                complete_lists,
            }
        }

        fn add(&mut self, event: &Event<'_>) {
            self.tool_calls += u32::from(event.tool_call().is_some());
            self.tool_results += u32::from(event.tool_result().is_some());
            match &event.kind {
                EventKind::Request(_) => {
                    self.requests += 1;
                    self.server_requests += u32::from(event.direction == Direction::ToClient);
                }
                EventKind::Response(response) => {
                    self.responses += 1;
                    match response.outcome {
                        Outcome::ToolError => self.tool_errors += 1,
                        Outcome::RpcError(_) => self.rpc_errors += 1,
                        _ => {}
                    }
                    if let ResponseKind::Page(page) = &response.kind {
                        assert!(page.items.is_some());
                        self.complete_lists += u32::from(page.complete);
                    }
                }
                EventKind::Notification(_) | EventKind::Progress(_) | EventKind::Cancelled(_) => {
                    self.notifications += 1;
                }
                EventKind::UnknownResponse(_) => self.unknown += 1,
                EventKind::Malformed(_) => self.malformed += 1,
                EventKind::Identity(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// The wire bytes of a recording, with direction and time.
    fn lines(path: &Path) -> Vec<(Direction, u64, String)> {
        std::fs::read_to_string(path)
            .unwrap()
            .lines()
            .filter_map(|line| {
                let record: serde_json::Value = serde_json::from_str(line).unwrap();
                let raw = record.get("raw")?.as_str()?;
                let to_server = record["dir"] == "c>s";
                let direction = if to_server {
                    Direction::ToServer
                } else {
                    Direction::ToClient
                };
                Some((
                    direction,
                    record["ms"].as_u64().unwrap() * 1_000_000,
                    format!("{raw}\n"),
                ))
            })
            .collect()
    }

    /// Plays a recording in pieces of `size` bytes.
    fn replay(lines: &[(Direction, u64, String)], size: usize) -> (Counts, Session) {
        let mut counts = Counts::default();
        let mut session = Session::default();
        let mut framers = [Framer::default(), Framer::default()];
        for (direction, time, wire) in lines {
            let framer = &mut framers[usize::from(*direction == Direction::ToClient)];
            for piece in wire.as_bytes().chunks(size) {
                framer.push(piece, |frame| {
                    session
                        .feed(*direction, frame, *time)
                        .iter()
                        .for_each(|event| counts.add(event));
                });
            }
        }
        session
            .finish(u64::MAX)
            .iter()
            .for_each(|event| counts.add(event));
        (counts, session)
    }

    const ROWS: [(&str, Revision, [u32; 11]); 15] = [
        (
            "client-claude--server-everything",
            Revision::V2025_11_25,
            [5, 5, 0, 4, 1, 1, 0, 0, 0, 0, 3],
        ),
        (
            "client-codex--server-everything",
            Revision::V2025_06_18,
            [3, 3, 0, 4, 1, 1, 0, 0, 0, 0, 1],
        ),
        (
            "client-gemini--server-everything",
            Revision::V2025_06_18,
            [9, 9, 1, 4, 1, 1, 0, 0, 0, 0, 6],
        ),
        (
            "client-python-sdk-modern--mcp-server-time",
            Revision::V2026_07_28,
            [3, 3, 0, 0, 1, 1, 0, 0, 0, 0, 1],
        ),
        (
            "context7-mcp",
            Revision::V2025_11_25,
            [6, 6, 0, 1, 2, 1, 0, 3, 0, 0, 1],
        ),
        // A stray answer, a blank line and a line that is no JSON.
        (
            "edge-cases--typescript-sdk--probe-server",
            Revision::V2025_11_25,
            [8, 8, 0, 3, 6, 4, 1, 2, 1, 2, 1],
        ),
        (
            "mcp-server-fetch",
            Revision::V2025_11_25,
            [6, 6, 0, 1, 2, 2, 2, 2, 0, 0, 1],
        ),
        (
            "mcp-server-git",
            Revision::V2025_11_25,
            [8, 8, 0, 1, 4, 4, 2, 2, 0, 0, 1],
        ),
        (
            "mcp-server-time",
            Revision::V2025_11_25,
            [7, 7, 0, 1, 3, 3, 1, 2, 0, 0, 1],
        ),
        (
            "modern-2026-07-28--mcp-server-git",
            Revision::V2026_07_28,
            [5, 5, 0, 0, 1, 1, 0, 2, 0, 0, 1],
        ),
        (
            "modern-2026-07-28--mcp-server-time",
            Revision::V2026_07_28,
            [7, 7, 0, 0, 3, 2, 1, 3, 0, 0, 1],
        ),
        (
            "playwright-mcp",
            Revision::V2025_11_25,
            [8, 8, 2, 1, 2, 2, 2, 2, 0, 0, 1],
        ),
        (
            "server-everything",
            Revision::V2025_11_25,
            [17, 17, 3, 9, 10, 10, 2, 2, 0, 0, 1],
        ),
        (
            "server-filesystem",
            Revision::V2025_11_25,
            [11, 11, 1, 1, 6, 6, 2, 2, 0, 0, 1],
        ),
        (
            "server-memory",
            Revision::V2025_11_25,
            [8, 8, 0, 1, 4, 4, 1, 2, 0, 0, 1],
        ),
    ];

    #[test]
    fn recorded_sessions_pair_completely() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/transcripts");
        if !folder.is_dir() {
            println!("skipped: the recorded transcripts are not here");
            return;
        }
        for (name, revision, row) in ROWS {
            let lines = lines(&folder.join(format!("{name}.jsonl")));
            for size in [usize::MAX, 1, 13] {
                let (counts, session) = replay(&lines, size);
                assert_eq!(counts, Counts::new(row), "{name} in pieces of {size}");
                assert_eq!(session.identity().revision, Some(revision.clone()), "{name}");
                assert!(
                    session.identity().client.is_some() && session.identity().server.is_some(),
                    "{name}"
                );
                for direction in [Direction::ToServer, Direction::ToClient] {
                    assert_eq!(session.open_requests(direction), 0, "{name}");
                }
            }
            let (direction, _, first) = &lines[0];
            let mut confirm = Confirm::new(256 << 10, 256 << 10);
            assert!(
                matches!(confirm.feed(*direction, first.as_bytes()), Verdict::Mcp(_)),
                "{name}"
            );
        }
        let recordings = std::fs::read_dir(&folder).unwrap().filter(|entry| {
            entry
                .as_ref()
                .is_ok_and(|e| e.path().extension().is_some_and(|e| e == "jsonl"))
        });
        assert_eq!(recordings.count(), ROWS.len(), "a recording without a row");
    }
}
