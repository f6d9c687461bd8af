//! What a relay must not change: bytes, ends, back pressure.

use std::io::{Read, Write};

use kams_relay::Connector;
use kams_relay::relay::Ended;
use rustix::net::Shutdown;

use super::rig::{Engine, FORMS, Form, Options, Rig};

fn options(form: Form) -> Options {
    Options {
        form,
        ..Options::default()
    }
}

/// Bytes of all kinds: lines short and long, without JSON, characters, no newline at the end.
fn everything() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes
        .extend_from_slice(b"{\"jsonrpc\":\"2.0\", \"id\":1.50,\"x/y\":1.50,\"\\u0061\":1}\n\n  \r\nhello\n");
    bytes.extend_from_slice("[{\"id\":1},{\"id\":\"\u{20ac}\"}]\r\n".as_bytes());
    bytes.extend_from_slice(b"\xff\xfe\x00 not text\n");
    let mut state = 1_u32;
    for length in [1, 100, 5_000, 70_000, 200_000, 3_000_000] {
        for _ in 0..length {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bytes.push(b' ' + (state >> 25) as u8 % 90);
        }
        bytes.push(b'\n');
    }
    bytes.extend_from_slice(b"{\"cut\": \"sho");
    bytes
}

#[test]
fn bytes_pass_unchanged_both_ways_at_once() {
    for form in FORMS {
        for judged in [false, true] {
            let (mut rig, engine) = if judged {
                let (rig, engine) = Rig::linked(options(form));
                (rig, Some(Engine::new(engine).pass_all()))
            } else {
                (Rig::new(options(form), Connector::Nobody), None)
            };
            let sent = everything();
            let mut writers = Vec::new();
            for end in [&mut rig.agent_out, &mut rig.server_out] {
                let (mut end, sent) = (end.take().unwrap(), sent.clone());
                writers.push(std::thread::spawn(move || {
                    for piece in sent.chunks(7_001) {
                        end.write_all(piece).unwrap();
                    }
                    Rig::hang_up(&mut Some(end), Shutdown::Write);
                }));
            }
            for end in [&mut rig.server_in, &mut rig.agent_in] {
                let mut got = Vec::new();
                end.as_mut().unwrap().read_to_end(&mut got).unwrap();
                assert!(got == sent, "{form:?} {judged}: {} of {}", got.len(), sent.len());
            }
            for writer in writers {
                writer.join().unwrap();
            }
            assert_eq!(rig.join(), Ended::Closed);
            if let Some(engine) = engine {
                assert!(engine.join().unwrap() > 20);
            }
        }
    }
}

#[test]
fn a_half_closed_agent_still_gets_its_answers() {
    for form in FORMS {
        let (mut rig, engine) = Rig::linked(options(form));
        let _engine = Engine::new(engine).pass_all();
        rig.agent_says("{\"id\":1,\"method\":\"a\"}\n");
        Rig::hang_up(&mut rig.agent_out, Shutdown::Write);
        let mut got = String::new();
        rig.server_in.as_mut().unwrap().read_to_string(&mut got).unwrap();
        assert_eq!(got, "{\"id\":1,\"method\":\"a\"}\n");
        rig.server_says("{\"id\":1,\"result\":{}}\n");
        assert_eq!(rig.agent_hears(), "{\"id\":1,\"result\":{}}\n");
        Rig::hang_up(&mut rig.server_out, Shutdown::Write);
        assert_eq!(rig.agent_hears(), "");
        assert_eq!(rig.join(), Ended::Closed);
    }
}

#[test]
fn a_server_that_closed_its_output_still_hears() {
    for form in FORMS {
        let (mut rig, engine) = Rig::linked(options(form));
        let _engine = Engine::new(engine).pass_all();
        Rig::hang_up(&mut rig.server_out, Shutdown::Write);
        assert_eq!(rig.agent_hears(), "");
        rig.agent_says("still here\n");
        assert_eq!(rig.server_hears(), "still here\n");
    }
}

#[test]
fn a_server_that_closed_its_input_breaks_the_agents_pipe() {
    for form in [Form::Pipes, Form::Sockets] {
        let (mut rig, engine) = Rig::linked(options(form));
        let _engine = Engine::new(engine).pass_all();
        drop(rig.server_in.take());
        let mut out = rig.agent_out.take().unwrap();
        let broken = std::iter::repeat_with(|| out.write_all(b"{}\n")).find_map(Result::err);
        let kind = broken.unwrap().kind();
        let unread = matches!(form, Form::Sockets) && kind == std::io::ErrorKind::ConnectionReset;
        assert!(unread || kind == std::io::ErrorKind::BrokenPipe, "{kind}");
        rig.server_says("alive\n");
        assert_eq!(rig.agent_hears(), "alive\n");
    }
}

#[test]
fn an_agent_that_closed_its_input_breaks_the_servers_pipe() {
    for form in [Form::Pipes, Form::Sockets] {
        let (mut rig, engine) = Rig::linked(options(form));
        let _engine = Engine::new(engine).pass_all();
        drop(rig.agent_in.take());
        let mut out = rig.server_out.take().unwrap();
        let broken = std::iter::repeat_with(|| out.write_all(b"{}\n")).find_map(Result::err);
        let kind = broken.unwrap().kind();
        // A socket that is closed with something unread in it says so, once, before it is broken.
        let unread = matches!(form, Form::Sockets) && kind == std::io::ErrorKind::ConnectionReset;
        assert!(unread || kind == std::io::ErrorKind::BrokenPipe, "{kind}");
        rig.agent_says("alive\n");
        assert_eq!(rig.server_hears(), "alive\n");
    }
}

#[test]
fn who_reads_late_stops_the_writer_and_nobody_else() {
    let (mut rig, engine) = Rig::linked(options(Form::Pipes));
    let _engine = Engine::new(engine).pass_all();
    // Neither side reads until both have written more than any buffer takes.
    let line = format!("{{\"pad\":\"{}\"}}\n", "x".repeat(1_000));
    let lines = 20_000;
    let written = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut writers = Vec::new();
    for end in [&mut rig.agent_out, &mut rig.server_out] {
        let (mut end, line, written) = (end.take().unwrap(), line.clone(), std::sync::Arc::clone(&written));
        writers.push(std::thread::spawn(move || {
            for _ in 0..lines {
                end.write_all(line.as_bytes()).unwrap();
                written.fetch_add(line.len(), std::sync::atomic::Ordering::SeqCst);
            }
        }));
    }
    // The writers stop by themselves: what they could write stays the same.
    let stuck = || written.load(std::sync::atomic::Ordering::SeqCst);
    let mut before = usize::MAX;
    while before != stuck() {
        before = stuck();
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    assert!(
        before < 6 << 20,
        "{before} bytes were taken from writers nobody reads"
    );
    for end in [&mut rig.server_in, &mut rig.agent_in] {
        let mut end = end.take().unwrap();
        writers.push(std::thread::spawn(move || {
            let mut got = vec![0; (1_000 + 11) * 20_000];
            end.read_exact(&mut got).unwrap();
        }));
    }
    for thread in writers {
        thread.join().unwrap();
    }
}

#[test]
fn a_server_that_dies_leaves_an_error_for_what_it_owes() {
    let (mut rig, engine) = Rig::linked(options(Form::Pipes));
    let _engine = Engine::new(engine).pass_all();
    rig.agent_says("{\"id\":\"a\",\"method\":\"tools/call\",\"params\":{\"name\":\"x\"}}\n");
    rig.agent_says("{\"id\":2,\"method\":\"ping\"}\n{\"id\":3,\"method\":\"ping\"}\n");
    rig.agent_says("{\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":3}}\n");
    for _ in 0..4 {
        rig.server_hears();
    }
    rig.server_says("{\"id\":2,\"result\":{}}\n{\"id\":\"a\",\"resu");
    drop((rig.server_out.take(), rig.server_in.take()));
    assert_eq!(rig.agent_hears(), "{\"id\":2,\"result\":{}}\n");
    assert_eq!(rig.agent_hears(), "{\"id\":\"a\",\"resu\n");
    let error: serde_json::Value = serde_json::from_str(&rig.agent_hears()).unwrap();
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (&"a".into(), &(-31_002).into())
    );
    assert_eq!(rig.agent_hears(), "");
    assert_eq!(rig.join(), Ended::Closed);
}

#[test]
fn what_a_grandchild_holds_open_does_not_keep_the_relay() {
    let (ended, exit) = std::io::pipe().unwrap();
    let (mut rig, engine) = Rig::linked(Options {
        server_ended: Some(ended.into()),
        ..Options::default()
    });
    let _engine = Engine::new(engine).pass_all();
    rig.server_says("last words\n");
    drop(exit);
    assert_eq!(rig.agent_hears(), "last words\n");
    assert_eq!(rig.agent_hears(), "");
    assert_eq!(rig.join(), Ended::Closed);
}
