//! A session must take anything, keep its bounds, and never answer one request twice without saying so.
//! Each line's first byte is its direction: `<` to the client, anything else to the server.
#![no_main]

use kams_mcp::event::EventKind;
use kams_mcp::{Config, Confirm, Direction, Frame, FrameKind, Session, visible};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let config = Config {
        pending: 4,
        early: 3,
        early_bytes: 512,
        early_wait: 3,
        tasks: 2,
    };
    let mut session = Session::new(config);
    let mut confirm = Confirm::new(2048, 2048);
    let (mut asked, mut answered, mut early) = (0_u64, 0_u64, 0_u64);
    for (time, line) in input.split(|b| *b == b'\n').enumerate() {
        let Some((mark, line)) = line.split_first() else {
            continue;
        };
        let direction = if *mark == b'<' {
            Direction::ToClient
        } else {
            Direction::ToServer
        };
        confirm.feed(direction, line);
        confirm.feed(direction, b"\n");
        let frame = Frame {
            kind: FrameKind::Line(line),
            wire_len: line.len() as u64 + 1,
            after_gap: time % 7 == 0,
        };
        for event in session.feed(direction, frame, time as u64) {
            match &event.kind {
                EventKind::Request(_) => asked += 1,
                EventKind::Response(response) => {
                    answered += 1;
                    early += u64::from(response.asked.ambiguous);
                }
                _ => {}
            }
            if let Some(result) = event.tool_result() {
                visible::texts(&result.result, &mut |_| {});
            }
            let copy = format!("{event:?}");
            assert_eq!(copy, format!("{:?}", event.into_owned()));
        }
        assert!(session.open_requests(Direction::ToServer) <= config.pending);
        assert!(session.open_requests(Direction::ToClient) <= config.pending);
    }
    session.finish(u64::MAX);
    assert!(answered <= asked + early);
    assert_eq!(
        (session.stats().requests, session.stats().responses),
        (asked, answered)
    );
});
