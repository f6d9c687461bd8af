//! Framing must not depend on how the bytes arrive, must account for each byte, and must keep its memory bound.
//! The first byte of the input is the cap, the second the size of the pieces.
#![no_main]

use kams_mcp::{Frame, FrameKind, Framer};
use libfuzzer_sys::fuzz_target;

fn show(frame: &Frame<'_>) -> (u8, Vec<u8>, u64, bool) {
    let (tag, bytes) = match frame.kind {
        FrameKind::Line(line) => (0, line.to_vec()),
        FrameKind::Blank => (1, Vec::new()),
        FrameKind::Oversized { head, .. } => (2, head.to_vec()),
        FrameKind::Damaged { .. } => (3, Vec::new()),
        FrameKind::Unterminated(line) => (4, line.to_vec()),
    };
    (tag, bytes, frame.wire_len, frame.after_gap)
}

fn run(cap: usize, data: &[u8], size: usize) -> Vec<(u8, Vec<u8>, u64, bool)> {
    let mut framer = Framer::new(cap);
    let mut frames = Vec::new();
    for piece in data.chunks(size) {
        framer.push(piece, |frame| frames.push(show(&frame)));
        assert!(framer.held() <= cap);
    }
    frames.extend(framer.finish().as_ref().map(show));
    frames
}

fuzz_target!(|input: &[u8]| {
    let [cap, size, data @ ..] = input else { return };
    let (cap, size) = (usize::from(*cap), usize::from(*size) + 1);
    let whole = run(cap, data, usize::MAX);
    assert_eq!(
        whole.iter().map(|(_, _, len, _)| len).sum::<u64>(),
        data.len() as u64
    );
    assert_eq!(whole, run(cap, data, size));

    // A loss in the middle drops nothing behind the next newline.
    let (before, after) = data.split_at(data.len() / 2);
    let mut framer = Framer::new(cap);
    framer.push(before, |_| {});
    framer.gap(1);
    let mut frames = Vec::new();
    framer.push(after, |frame| frames.push(show(&frame)));
    frames.extend(framer.finish().as_ref().map(show));
    assert_eq!(frames[0].0, 3);
    let rest = after
        .iter()
        .position(|b| *b == b'\n')
        .map_or(&[][..], |at| &after[at + 1..]);
    let expected: Vec<_> = run(cap, rest, usize::MAX)
        .into_iter()
        .map(|(tag, bytes, len, _)| (tag, bytes, len))
        .collect();
    let got: Vec<_> = frames[1..]
        .iter()
        .map(|(tag, bytes, len, _)| (*tag, bytes.clone(), *len))
        .collect();
    assert_eq!(expected, got);
});
