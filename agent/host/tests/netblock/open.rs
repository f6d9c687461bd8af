//! Connections that are open when the block begins.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use kams_host::netblock::{Blocks, Why};

use crate::rig::{Actor, EPERM, Goal, PATIENCE, alone, block};

/// Whether the other side was told that the connection is over.
fn is_over(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    match stream.read(&mut [0; 8]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn an_open_connection_is_closed_and_cannot_be_opened_again() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let mut actor = Actor::start();
    assert_eq!(actor.say(&format!("tcp4 {}", goal.tcp())), "ok");
    let (mut peer, _) = goal.tcp.accept().expect("accepted");
    let blocks = Blocks::new(None);
    let id = blocks.block(&[actor.process()]).expect("blocked");
    let swept = blocks.sweep(id);
    assert_eq!((swept.closed, swept.left.len()), (1, 0), "{swept:?}");
    assert!(is_over(&mut peer));
    let answer = actor.say("write");
    assert!(!answer.starts_with("ok"), "{answer}");
    assert_eq!(actor.say(&format!("connect {}", goal.tcp())), EPERM);
    assert_eq!(actor.say(&format!("uring-worker {}", goal.tcp())), EPERM);
    blocks.unblock(id);
    assert_eq!(actor.say(&format!("tcp4 {}", goal.tcp())), "ok");
}

#[test]
fn one_that_somebody_waits_on_is_closed_too() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let mut actor = Actor::start();
    assert_eq!(actor.say(&format!("tcp4 {}", goal.tcp())), "ok");
    let (mut peer, _) = goal.tcp.accept().expect("accepted");
    peer.write_all(b"x").expect("sent");
    assert_eq!(actor.say("read"), "ok 1");
    actor.tell("read");
    std::thread::sleep(Duration::from_millis(50));
    let (_blocks, _id) = block(&actor);
    assert!(is_over(&mut peer));
    let answer = actor.answer();
    assert!(
        answer == "ok 0" || !answer.starts_with("ok"),
        "the reader has woken: {answer}"
    );
}

#[test]
fn a_connected_datagram_socket_loses_its_peer() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let mut actor = Actor::start();
    assert_eq!(actor.say("keep-udp4"), "ok");
    assert_eq!(actor.say(&format!("connect {}", goal.udp())), "ok");
    assert_eq!(actor.say("write"), "ok 1");
    assert!(goal.heard());
    let (_blocks, _id) = block(&actor);
    let answer = actor.say("write");
    assert!(!answer.starts_with("ok"), "{answer}");
    assert!(!goal.heard());
}

#[test]
fn a_listener_takes_no_more_connections() {
    let Some(_alone) = alone() else { return };
    let mut actor = Actor::start();
    let answer = actor.say("listen");
    let port: u16 = answer
        .strip_prefix("ok ")
        .and_then(|port| port.parse().ok())
        .expect("a port");
    TcpStream::connect(("127.0.0.1", port)).expect("connected");
    let (_blocks, _id) = block(&actor);
    let refused = TcpStream::connect(("127.0.0.1", port)).expect_err("refused");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_connection_deep_in_the_tree_is_closed() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let mut actor = Actor::start();
    assert!(actor.say("start").starts_with("ok"));
    assert_eq!(actor.say(&format!("tell tcp4 {}", goal.tcp())), "ok ok");
    let (mut peer, _) = goal.tcp.accept().expect("accepted");
    let (_blocks, _id) = block(&actor);
    assert!(is_over(&mut peer));
}

#[test]
fn what_cannot_be_closed_is_named() {
    let Some(_alone) = alone() else { return };
    let mut actor = Actor::start();
    assert_eq!(actor.say("keep-raw"), "ok");
    let blocks = Blocks::new(None);
    let id = blocks.block(&[actor.process()]).expect("blocked");
    let swept = blocks.sweep(id);
    let [left] = swept.left.as_slice() else {
        panic!("one raw socket: {swept:?}");
    };
    assert_eq!(
        (left.pid, left.family, left.why),
        (actor.pid(), libc::AF_INET, Why::Kind)
    );
}

#[test]
fn what_others_have_as_well_is_left_to_them_and_named() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let mut actor = Actor::start();
    // Its child inherits nothing, so the outer process is the one that shares: it is not in the tree.
    assert_eq!(actor.say(&format!("tcp4 {}", goal.tcp())), "ok");
    let (mut peer, _) = goal.tcp.accept().expect("accepted");
    let answer = actor.say("sharing-child");
    let pid = answer
        .strip_prefix("ok ")
        .and_then(|pid| pid.parse().ok())
        .expect("a process");
    let blocks = Blocks::new(None);
    let id = blocks.block(&[crate::rig::process(pid)]).expect("blocked");
    let swept = blocks.sweep(id);
    assert_eq!(swept.closed, 0, "{swept:?}");
    assert_eq!(
        swept.left.iter().map(|left| left.why).collect::<Vec<_>>(),
        [Why::Shared]
    );
    assert_eq!(actor.say("write"), "ok 1");
    let mut byte = [0];
    peer.read_exact(&mut byte).expect("still open");
}
