//! Byte-exact capture in every call form, over pipes and socket pairs, at sizes around every boundary.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;

use kams_host::{Op, SensorOptions};

use crate::calls::{Move, READS, WRITES};
use crate::rig::{Rig, Stream, drain, noise};

/// Around a chunk, around a pipe's buffer, and a message of 1 MB.
const SIZES: [usize; 8] = [1, 2, 200, 16_384, 16_385, 65_536, 100_003, 1_000_047];

fn check_write(rig: &mut Rig, stream: Stream, name: &str, call: Move, size: usize) {
    let mut bytes = noise(size, 7);
    let sent = bytes.clone();
    let Stream { agent, far, key, .. } = stream;
    let reader = drain(far, size);
    let mut at = 0;
    while at < size {
        let moved = call(&agent, &mut bytes[at..]);
        at +=
            usize::try_from(moved).unwrap_or_else(|_| panic!("{name}: {}", std::io::Error::last_os_error()));
    }
    assert!(
        reader.join().expect("reader") == sent,
        "{name} {size}: the far end got other bytes"
    );
    let arrived = rig.arrived(key, u64::try_from(size).expect("fits"));
    assert_eq!(arrived.lost, 0, "{name} {size}");
    assert!(arrived.data == sent, "{name} {size}: other bytes were captured");
    arrived.assert_whole_calls();
}

fn check_read(rig: &mut Rig, stream: Stream, name: &str, call: Move, size: usize) {
    let sent = noise(size, 11);
    let Stream {
        agent, mut far, key, ..
    } = stream;
    let to_send = sent.clone();
    let writer = std::thread::spawn(move || far.write_all(&to_send).expect("the far end writes"));
    let mut got = vec![0; size];
    let mut at = 0;
    while at < size {
        let moved = call(&agent, &mut got[at..]);
        at +=
            usize::try_from(moved).unwrap_or_else(|_| panic!("{name}: {}", std::io::Error::last_os_error()));
    }
    writer.join().expect("writer");
    assert!(got == sent, "{name} {size}: the agent got other bytes");
    let arrived = rig.arrived(key, u64::try_from(size).expect("fits"));
    assert_eq!(arrived.lost, 0, "{name} {size}");
    assert!(arrived.data == sent, "{name} {size}: other bytes were captured");
    arrived.assert_whole_calls();
}

#[test]
fn every_write_form_is_captured() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    for (name, call, on_pipes) in WRITES {
        for size in SIZES {
            if on_pipes {
                let stream = rig.pipe(Op::Write);
                check_write(&mut rig, stream, name, call, size);
            }
            let stream = rig.socketpair(Op::Write);
            check_write(&mut rig, stream, name, call, size);
        }
    }
    assert_eq!(rig.losses(), []);
}

#[test]
fn every_read_form_is_captured() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    for (name, call, on_pipes) in READS {
        for size in SIZES {
            if on_pipes {
                let stream = rig.pipe(Op::Read);
                check_read(&mut rig, stream, name, call, size);
            }
            let stream = rig.socketpair(Op::Read);
            check_read(&mut rig, stream, name, call, size);
        }
    }
    assert_eq!(rig.losses(), []);
}

#[test]
fn one_blocking_write_of_16_mib_is_carried_whole() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    for stream in [rig.pipe(Op::Write), rig.socketpair(Op::Write)] {
        check_write(&mut rig, stream, "write", WRITES[0].1, 16 * 1024 * 1024);
    }
    assert_eq!(rig.losses(), []);
}

#[test]
fn kernels_without_bpf_loop_carry_up_to_16_mib_per_call_and_tell_the_rest() {
    let Some(mut rig) = Rig::start(SensorOptions {
        force_bounded: true,
        ..SensorOptions::default()
    }) else {
        return;
    };
    for size in [1, 16_385, 16 * 1024 * 1024] {
        let stream = rig.pipe(Op::Write);
        check_write(&mut rig, stream, "write", WRITES[0].1, size);
    }
    assert_eq!(rig.losses(), []);

    let size = 20 * 1024 * 1024;
    let sent = noise(size, 3);
    let Stream {
        mut agent, far, key, ..
    } = rig.pipe(Op::Write);
    let reader = drain(far, size);
    agent.write_all(&sent).expect("write");
    reader.join().expect("reader");
    let arrived = rig.arrived(key, u64::try_from(size).expect("fits"));
    assert!(arrived.has_reason("cut"), "{:?}", arrived.reasons);
    assert!(
        arrived.data.len() >= 16 * 1024 * 1024,
        "{} bytes came",
        arrived.data.len()
    );
    assert!(sent.starts_with(&arrived.data), "what came is the beginning");
}

#[test]
fn one_byte_writes_keep_their_order() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let mut stream = rig.pipe(Op::Write);
    let sent = noise(3_000, 5);
    for byte in &sent {
        stream.agent.write_all(std::slice::from_ref(byte)).expect("write");
    }
    let arrived = rig.arrived(stream.key, 3_000);
    assert_eq!(arrived.data, sent);
    assert_eq!(arrived.chunks.len(), 3_000);
}

#[test]
fn two_threads_on_one_pipe_lose_nothing() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let stream = rig.pipe(Op::Write);
    let reader = drain(stream.far, 2 * 500 * 100);
    let writers: Vec<_> = (0..2u8)
        .map(|writer| {
            let mut agent = stream.agent.try_clone().expect("duplicate");
            // 100 bytes at a time: the kernel keeps each write in one piece.
            std::thread::spawn(move || (0..500).for_each(|_| agent.write_all(&[writer; 100]).expect("write")))
        })
        .collect();
    for writer in writers {
        writer.join().expect("writer");
    }
    reader.join().expect("reader");
    let arrived = rig.arrived(stream.key, 2 * 500 * 100);
    assert_eq!(arrived.lost, 0);
    let of = |writer: u8| {
        arrived
            .data
            .chunks(100)
            .filter(|piece| *piece == [writer; 100])
            .count()
    };
    assert_eq!((of(0), of(1)), (500, 500));
}

#[test]
fn peeked_bytes_are_captured_once() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let mut stream = rig.socketpair(Op::Read);
    stream.far.write_all(b"once").expect("write");
    let mut buffer = [0u8; 16];
    // SAFETY: the buffer is valid for its length.
    let peeked = unsafe {
        libc::recv(
            stream.agent.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_PEEK,
        )
    };
    assert_eq!(peeked, 4);
    assert_eq!(stream.agent.read(&mut buffer).expect("read"), 4);
    stream.far.write_all(b"end").expect("write");
    assert_eq!(stream.agent.read(&mut buffer).expect("read"), 3);
    assert_eq!(rig.arrived(stream.key, 7).data, b"onceend");
}

#[test]
fn a_duplicated_descriptor_leads_to_the_same_stream() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let stream = rig.pipe(Op::Write);
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::fcntl(stream.agent.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 700) };
    let mut high = crate::rig::owned(fd);
    drop(stream.agent);
    high.write_all(b"from descriptor 700").expect("write");
    assert_eq!(rig.arrived(stream.key, 19).data, b"from descriptor 700");
}

#[test]
fn a_fork_that_keeps_the_agents_end_is_captured() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let stream = rig.pipe(Op::Write);
    let fd = stream.agent.as_raw_fd();
    // SAFETY: the child only calls async-signal-safe functions: write and _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a static buffer; the descriptor is inherited.
        unsafe { libc::write(fd, c"child".as_ptr().cast(), 5) };
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    let arrived = rig.arrived(stream.key, 5);
    assert_eq!(arrived.data, b"child");
    assert_eq!(arrived.chunks[0].pid, u32::try_from(child).expect("process id"));
}

#[test]
fn end_of_file_is_told_after_the_last_bytes() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let Stream {
        mut agent,
        mut far,
        key,
        id,
    } = rig.pipe(Op::Read);
    far.write_all(b"last").expect("write");
    drop(far);
    let mut all = Vec::new();
    agent.read_to_end(&mut all).expect("read");
    assert_eq!(rig.arrived(key, 4).data, b"last");
    rig.wait_for(|event| match event {
        kams_host::SensorEvent::StreamEof { key: on, stream, .. } => {
            (on == key && stream == id).then_some(())
        }
        _ => None,
    });
}

#[test]
fn nothing_is_captured_of_a_process_without_the_mark() {
    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let mut stream = rig.pipe(Op::Write);
    let own = std::process::id();
    rig.control.unmark(own, kams_host::Marks::ENDPOINT);
    stream.agent.write_all(b"unseen").expect("write");
    rig.control
        .mark(own, None, kams_host::Marks::ENDPOINT)
        .expect("own process");
    stream.agent.write_all(b"seen").expect("write");
    assert_eq!(rig.arrived(stream.key, 4).data, b"seen");
}
