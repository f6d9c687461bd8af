//! Every loss is told on its stream: what was delivered and what was told as lost add up to what was moved.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use kams_host::{ForcedStage, Op, SensorEvent, SensorOptions, Watch};

use crate::rig::{Arrived, Rig, Stream, drain, noise};

const MANY: usize = 600_000;

/// Writes in pieces of 1,000 bytes and returns what was told about it. Nothing is taken from the queue before `ripe`.
fn write_pieces_until(rig: &mut Rig, ripe: impl FnOnce(&Rig)) -> (Arrived, Vec<u8>) {
    let Stream {
        mut agent, far, key, ..
    } = rig.pipe(Op::Write);
    let reader = drain(far, MANY);
    let sent = noise(MANY, 21);
    for piece in sent.chunks(1_000) {
        agent.write_all(piece).expect("write");
    }
    reader.join().expect("reader");
    ripe(rig);
    (rig.arrived(key, u64::try_from(MANY).expect("fits")), sent)
}

fn write_pieces(rig: &mut Rig) -> (Arrived, Vec<u8>) {
    write_pieces_until(rig, |_| {})
}

/// As `write_pieces`, but nothing is taken from the queue before it has overflowed.
fn overflow_queue(rig: &mut Rig) -> (Arrived, Vec<u8>) {
    write_pieces_until(rig, |rig| {
        // The sensor's reader has its own pace; only when it has dropped something is the queue known to be full.
        let began = std::time::Instant::now();
        let dropped = || rig.losses().iter().any(|loss| loss.0 == "queue");
        while !dropped() && began.elapsed() < crate::rig::PATIENCE {
            std::thread::yield_now();
        }
    })
}

/// Exactly the bytes of the missing calls are lost, and each gap stands where its bytes are missing.
fn assert_one_in(every: usize, arrived: &Arrived, sent: &[u8]) {
    let expected: Vec<u8> = sent
        .chunks(1_000)
        .enumerate()
        .filter(|(index, _)| (index + 1) % every != 0)
        .flat_map(|(_, piece)| piece.to_vec())
        .collect();
    assert_eq!(
        usize::try_from(arrived.lost).expect("fits"),
        sent.len() - expected.len()
    );
    assert!(arrived.data == expected, "other pieces were lost");
}

#[test]
fn forced_ring_loss_is_told_on_the_stream() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    rig.control
        .force_loss(ForcedStage::Ring, Some(3))
        .expect("forced");
    let (arrived, _) = write_pieces(&mut rig);
    // Counted per CPU: about every third, exactly accounted.
    assert!(
        arrived.lost > 0 && arrived.has_reason("ring"),
        "{:?}",
        arrived.reasons
    );
    assert_eq!(arrived.accounted(), u64::try_from(MANY).expect("fits"));
    assert_eq!(rig.loss("ring", "payload") * 1_000, arrived.lost);
    rig.control.force_loss(ForcedStage::Ring, None).expect("ended");
    let (arrived, sent) = write_pieces(&mut rig);
    assert_eq!((arrived.lost, arrived.data == sent), (0, true));
}

#[test]
fn forced_read_loss_is_told_on_the_stream() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    rig.control
        .force_loss(ForcedStage::Read, Some(5))
        .expect("forced");
    let (arrived, _) = write_pieces(&mut rig);
    assert!(
        arrived.lost > 0 && arrived.has_reason("read"),
        "{:?}",
        arrived.reasons
    );
    assert_eq!(arrived.accounted(), u64::try_from(MANY).expect("fits"));
    assert!(rig.loss("read", "buffer") > 0);
}

#[test]
fn forced_queue_loss_is_told_on_the_stream() {
    // Its own sensor: which piece is lost depends on how many there were before.
    let Some(mut rig) = Rig::start(SensorOptions::default()) else {
        return;
    };
    rig.control
        .force_loss(ForcedStage::Queue, Some(4))
        .expect("forced");
    let (arrived, sent) = write_pieces(&mut rig);
    assert!(arrived.has_reason("queue"), "{:?}", arrived.reasons);
    assert_one_in(4, &arrived, &sent);
    assert_eq!(rig.loss("queue", "payload") * 1_000, arrived.lost);
}

#[test]
fn forced_map_loss_shows_on_the_exec_report() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    rig.control.force_loss(ForcedStage::Map, Some(1)).expect("forced");
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cat starts");
    let pid = child.id();
    let (watched, failed) = rig.wait_for(|event| match event {
        SensorEvent::Exec(exec) if exec.pid == pid => Some((exec.watched, exec.watch_failed)),
        _ => None,
    });
    drop(child.stdin.take());
    child.wait().expect("cat ends");
    assert_eq!((watched, failed), (false, true));
    assert!(rig.loss("map", "streams_full") > 0);
}

#[test]
fn a_full_stream_table_is_told_and_its_room_is_used_again() {
    // Two servers fill it.
    let options = SensorOptions {
        max_streams: 4,
        ..SensorOptions::default()
    };
    let Some(mut rig) = Rig::start(options) else {
        return;
    };
    let start = |rig: &mut Rig| {
        let child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cat starts");
        let pid = child.id();
        let watched = rig.wait_for(|event| match event {
            SensorEvent::Exec(exec) if exec.pid == pid => Some((exec.watched, exec.watch_failed)),
            _ => None,
        });
        (child, watched)
    };
    let mut children = Vec::new();
    for expected in [(true, false), (true, false), (false, true)] {
        let (child, watched) = start(&mut rig);
        assert_eq!(watched, expected);
        children.push(child);
    }
    assert!(rig.loss("map", "streams_full") > 0);
    for mut child in children {
        drop(child.stdin.take());
        child.wait().expect("cat ends");
    }
    let deadline = std::time::Instant::now() + crate::rig::PATIENCE;
    while !rig.control.streams().is_empty() {
        assert!(
            std::time::Instant::now() < deadline,
            "streams of ended servers stay"
        );
        std::thread::yield_now();
    }
    let (mut child, watched) = start(&mut rig);
    assert_eq!(watched, (true, false));
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"room").expect("write");
    drop(input);
    child.wait().expect("cat ends");
    let bytes = rig.wait_for(|event| match event {
        SensorEvent::Payload(chunk) if chunk.key.op == Op::Write => Some(chunk.data),
        _ => None,
    });
    assert_eq!(bytes, b"room".as_slice());
}

#[test]
fn a_full_ring_is_told_and_capture_goes_on() {
    let options = SensorOptions {
        ring_bytes: kams_host::RING_MIN,
        ..SensorOptions::default()
    };
    let Some(mut rig) = Rig::start(options) else {
        return;
    };
    let size = 32 * 1024 * 1024;
    let Stream {
        mut agent, far, key, ..
    } = rig.pipe(Op::Write);
    let reader = drain(far, size);
    let sent = noise(size, 9);
    agent.write_all(&sent).expect("write");
    reader.join().expect("reader");
    let arrived = rig.arrived(key, u64::try_from(size).expect("fits"));
    assert!(
        arrived.lost > 0 && arrived.has_reason("ring"),
        "a ring of 1 MiB cannot hold 32 MiB"
    );
    for chunk in &arrived.chunks {
        let at = usize::try_from(chunk.offset).expect("fits");
        assert!(
            sent[at..at + chunk.data.len()] == chunk.data,
            "chunk at {at} has the bytes of its place"
        );
    }
    let mut next = rig.pipe(Op::Write);
    next.agent.write_all(b"after").expect("write");
    assert_eq!(rig.arrived(next.key, 5).data, b"after");
}

#[test]
fn a_full_queue_is_told_and_capture_goes_on() {
    let options = SensorOptions {
        queue_bytes: 128 * 1024,
        ..SensorOptions::default()
    };
    let Some(mut rig) = Rig::start(options) else {
        return;
    };
    let (arrived, sent) = overflow_queue(&mut rig);
    assert!(arrived.has_reason("queue"), "{:?}", arrived.reasons);
    assert_eq!(arrived.accounted(), u64::try_from(sent.len()).expect("fits"));
    assert!(
        sent.starts_with(&arrived.data[..64_000]),
        "the first bytes came in order"
    );
    let mut next = rig.pipe(Op::Write);
    next.agent.write_all(b"after").expect("write");
    assert_eq!(rig.arrived(next.key, 5).data, b"after");
}

#[test]
fn memory_that_is_gone_at_the_end_of_the_call_costs_its_page_only() {
    const LEN: usize = 256 * 1024;
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let Stream { agent, far, key, .. } = rig.pipe(Op::Write);
    // SAFETY: a fresh private mapping at an address of the kernel's choice.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            LEN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(map, libc::MAP_FAILED);
    let sent = noise(LEN, 13);
    // SAFETY: the mapping is LEN bytes long and writable.
    unsafe { std::ptr::copy_nonoverlapping(sent.as_ptr(), map.cast(), LEN) };
    let address = map as usize;
    let writer = std::thread::spawn(move || {
        // SAFETY: the kernel checks the range itself; a missing page would be an error of the call.
        unsafe { libc::write(agent.as_raw_fd(), address as *const _, LEN) }
    });
    // The pipe holds 64 KiB: once they are there, the first page was copied and the call waits.
    wait_until_holds(&far, 64 * 1024);
    // SAFETY: the first page of our own mapping; the blocked call does not need it any more.
    unsafe { libc::munmap(map, 4096) };
    let got = drain(far, LEN).join().expect("reader");
    assert_eq!(
        writer.join().expect("writer"),
        isize::try_from(LEN).expect("fits")
    );
    assert!(got == sent, "the reader got every byte");
    let arrived = rig.arrived(key, u64::try_from(LEN).expect("fits"));
    assert_eq!(arrived.lost, 4096);
    assert!(arrived.has_reason("read"));
    assert!(arrived.data == sent[4096..], "the rest came");
}

fn wait_until_holds(pipe: &std::fs::File, bytes: i32) {
    let deadline = std::time::Instant::now() + crate::rig::PATIENCE;
    let mut held = 0;
    while held < bytes {
        // SAFETY: FIONREAD writes one int.
        let result = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut held) };
        assert_eq!(result, 0);
        assert!(
            std::time::Instant::now() < deadline,
            "the pipe holds {held} bytes"
        );
        std::thread::yield_now();
    }
}

#[test]
fn splice_tee_vmsplice_and_sendfile_are_gaps() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let null = std::ptr::null_mut();
    let mut scratch = tempfile::tempfile().expect("temporary file");
    scratch.write_all(b"from a file").expect("write");

    // splice: a file into the watched pipe.
    let stream = rig.pipe(Op::Write);
    let mut at: libc::loff_t = 0;
    // SAFETY: `at` is a valid offset to read and write.
    let moved = unsafe {
        libc::splice(
            scratch.as_raw_fd(),
            &raw mut at,
            stream.agent.as_raw_fd(),
            null,
            11,
            0,
        )
    };
    assert_eq!(moved, 11, "{}", std::io::Error::last_os_error());
    let arrived = rig.arrived(stream.key, 11);
    assert_eq!((arrived.lost, arrived.has_reason("unsupported")), (11, true));

    // sendfile: the same.
    let stream = rig.pipe(Op::Write);
    at = 0;
    // SAFETY: `at` is a valid offset to read and write.
    let moved = unsafe { libc::sendfile(stream.agent.as_raw_fd(), scratch.as_raw_fd(), &raw mut at, 11) };
    assert_eq!(moved, 11, "{}", std::io::Error::last_os_error());
    assert_eq!(rig.arrived(stream.key, 11).lost, 11);

    // vmsplice: memory into the watched pipe.
    let stream = rig.pipe(Op::Write);
    let bytes = *b"memory";
    let vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: 6,
    };
    // SAFETY: the vector's bytes live until the pipe is closed at the end of this test.
    let moved = unsafe { libc::vmsplice(stream.agent.as_raw_fd(), &raw const vector, 1, 0) };
    assert_eq!(moved, 6, "{}", std::io::Error::last_os_error());
    assert_eq!(rig.arrived(stream.key, 6).lost, 6);

    // tee and splice out of the watched pipe.
    let mut source = rig.pipe(Op::Read);
    source.far.write_all(b"server").expect("write");
    let (_reader, writer) = std::io::pipe().expect("pipe");
    // SAFETY: no memory is passed.
    let moved = unsafe { libc::tee(source.agent.as_raw_fd(), writer.as_raw_fd(), 6, 0) };
    assert_eq!(moved, 6, "{}", std::io::Error::last_os_error());
    // SAFETY: no offsets are passed.
    let moved = unsafe { libc::splice(source.agent.as_raw_fd(), null, writer.as_raw_fd(), null, 6, 0) };
    assert_eq!(moved, 6, "{}", std::io::Error::last_os_error());
    assert_eq!(rig.arrived(source.key, 12).lost, 12);
    assert_eq!(rig.loss("unsupported", "splice"), 5);
}

#[test]
fn io_uring_of_an_endpoint_is_told_once_per_process() {
    const IO_URING_PARAMS: usize = 120;
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let mut params = [0u8; IO_URING_PARAMS];
    // SAFETY: `params` is as long as the kernel's structure and all zero.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2, params.as_mut_ptr()) };
    if fd < 0 {
        // A kernel that refuses io_uring has nothing to tell.
        println!("io_uring is refused here: {}", std::io::Error::last_os_error());
        return;
    }
    let ring = crate::rig::owned(i32::try_from(fd).expect("descriptor"));
    for _ in 0..3 {
        // SAFETY: submits nothing, waits for nothing.
        unsafe { libc::syscall(libc::SYS_io_uring_enter, ring.as_raw_fd(), 0, 0, 0, 0, 0) };
    }
    let mut stream = rig.pipe(Op::Write);
    stream.agent.write_all(b"end").expect("write");
    let mut told = 0;
    rig.wait_for(|event| match event {
        SensorEvent::IoUring { pid, .. } => {
            told += i32::from(pid == std::process::id());
            None
        }
        SensorEvent::Payload(chunk) if chunk.key == stream.key => Some(()),
        _ => None,
    });
    assert_eq!(told, 1);
    assert_eq!(rig.loss("unsupported", "io_uring"), 3);
}

#[test]
fn a_reused_object_is_not_taken_for_the_old_stream() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let mut stream = rig.pipe(Op::Write);
    // As if the pipe had been freed and its address given to another one: the watch names another inode.
    rig.control.unwatch(stream.key, None);
    let old = Watch {
        key: stream.key,
        ino: 1,
        server: std::process::id(),
        agent: std::process::id(),
    };
    rig.control.watch(&old).expect("watched");
    stream.agent.write_all(b"not of the old server").expect("write");
    let mut marker = rig.pipe(Op::Write);
    marker.agent.write_all(b"end").expect("write");
    let mut stray = Arrived::default();
    rig.wait_for(|event| match event {
        SensorEvent::Payload(ref chunk) if chunk.key == marker.key => Some(()),
        other => {
            stray.take(other, stream.key);
            None
        }
    });
    assert_eq!(stray.data, b"");
    assert_eq!(rig.loss("map", "stale"), 1);
    assert_eq!(rig.control.stream(stream.key), None);
}
