//! Every call that could reach the network, with and without a block.

use kams_host::netblock::{Blocks, HOOK_CONNECT, HOOK_SEND, HOOK_SOCKET};

use crate::rig::{Actor, EPERM, Goal, alone, block, no_programs, programs};

#[test]
fn new_sockets_of_the_internet_are_refused_and_local_ones_are_not() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    let mut actor = Actor::start();
    assert_eq!(
        actor.say(&format!("tcp4 {}", goal.tcp())),
        "ok",
        "before the block"
    );
    let (blocks, id) = block(&actor);
    assert_eq!(actor.say(&format!("tcp4 {}", goal.tcp())), EPERM);
    if let Some(tcp6) = &goal.tcp6 {
        let port = tcp6.local_addr().expect("known").port();
        assert_eq!(actor.say(&format!("tcp6 {port}")), EPERM);
    }
    assert_eq!(actor.say(&format!("udp {}", goal.udp())), EPERM);
    for (family, kind, protocol) in [
        (libc::AF_INET, libc::SOCK_STREAM, 0),
        (libc::AF_INET, libc::SOCK_DGRAM, 0),
        (libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
        (libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW),
        (libc::AF_INET6, libc::SOCK_STREAM, 0),
        (libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6),
    ] {
        let answer = actor.say(&format!("socket {family} {kind} {protocol}"));
        assert_eq!(answer, EPERM, "family {family}, type {kind}, protocol {protocol}");
    }
    // Programs learn of interfaces by netlink, and talk to their own by AF_UNIX.
    for (family, kind) in [
        (libc::AF_UNIX, libc::SOCK_STREAM),
        (libc::AF_NETLINK, libc::SOCK_RAW),
    ] {
        assert_eq!(
            actor.say(&format!("socket {family} {kind} 0")),
            "ok",
            "family {family}"
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("local");
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    assert_eq!(actor.say(&format!("unix {}", path.display())), "ok");
    assert!(!goal.heard(), "no datagram came");
    let refused = blocks.counts(id).refused;
    assert!(refused[HOOK_SOCKET as usize] >= 8, "{refused:?}");
    let attempt = blocks.take_attempt(id).expect("noted");
    assert_eq!((attempt.pid, attempt.hook), (actor.pid(), HOOK_SOCKET));
    assert_eq!(attempt.family, libc::AF_INET as u32);
    assert_eq!(attempt.kind, libc::SOCK_STREAM as u32);
}

#[test]
fn sockets_from_before_cannot_be_connected_in_any_way() {
    let Some(_alone) = alone() else { return };
    let goal = Goal::new();
    for (keep, call) in [
        ("keep-tcp4", format!("connect {}", goal.tcp())),
        ("keep-tcp4", format!("uring {}", goal.tcp())),
        ("keep-tcp4", format!("uring-worker {}", goal.tcp())),
        ("keep-tcp4", format!("fastopen {}", goal.tcp())),
        ("keep-udp4", format!("connect {}", goal.udp())),
        ("keep-udp4", format!("send {}", goal.udp())),
        // DNS by hand.
        ("keep-udp4", "send 53".to_owned()),
    ] {
        let mut actor = Actor::start();
        assert_eq!(actor.say(keep), "ok");
        let (blocks, id) = block(&actor);
        assert_eq!(actor.say(&call), EPERM, "{keep}, {call}");
        let refused = blocks.counts(id).refused;
        let hook = if call.starts_with("send") {
            HOOK_SEND
        } else {
            HOOK_CONNECT
        };
        assert!(refused[hook as usize] >= 1, "{call}: {refused:?}");
        let attempt = blocks.take_attempt(id).expect("noted");
        let port: u32 = call
            .rsplit(' ')
            .next()
            .and_then(|port| port.parse().ok())
            .expect("a port");
        assert_eq!((attempt.hook, attempt.port), (hook, port), "{call}");
        assert_eq!(attempt.address[0].to_ne_bytes(), [127, 0, 0, 1], "{call}");
        assert_eq!(blocks.take_attempt(id), None, "told once");
        // The same call succeeds without the block, so it was the block that refused it.
        blocks.unblock(id);
        let allowed = actor.say(&call);
        assert!(
            allowed == "ok" || call.ends_with(" 53"),
            "{call} afterwards: {allowed}"
        );
    }
    if let (Some(tcp6), Some(udp6)) = (&goal.tcp6, &goal.udp6) {
        let port = |address: std::io::Result<std::net::SocketAddr>| address.expect("known").port();
        for (keep, call) in [
            ("keep-tcp6", format!("connect6 {}", port(tcp6.local_addr()))),
            ("keep-udp6", format!("send6 {}", port(udp6.local_addr()))),
        ] {
            let mut actor = Actor::start();
            assert_eq!(actor.say(keep), "ok");
            let (blocks, id) = block(&actor);
            assert_eq!(actor.say(&call), EPERM, "{call}");
            blocks.unblock(id);
            assert_eq!(actor.say(&call), "ok", "{call} afterwards");
        }
    }
}

#[test]
fn names_are_not_resolved() {
    let Some(_alone) = alone() else { return };
    let mut actor = Actor::start();
    let (blocks, id) = block(&actor);
    let answer = actor.say("resolve server.kams.invalid");
    assert!(!answer.starts_with("ok"), "{answer}");
    let refused: u64 = blocks.counts(id).refused.iter().sum();
    assert!(refused > 0, "the resolver tried and was refused");
    // Names of this host come from a file and are still found.
    assert!(actor.say("resolve 127.0.0.1").starts_with("ok"));
}

#[test]
fn nothing_is_attached_without_a_block_and_a_bystander_never_notices() {
    let Some(_alone) = alone() else { return };
    assert!(no_programs(), "{} programs before", programs());
    let goal = Goal::new();
    let mut bystander = Actor::start();
    let mut actor = Actor::start();
    let blocks = Blocks::new(None);
    assert_eq!(programs(), 0, "a table of blocks alone attaches nothing");
    let first = blocks.block(&[actor.process()]).expect("blocked");
    assert_eq!(programs(), 7);
    let other = Actor::start();
    let second = blocks.block(&[other.process()]).expect("blocked");
    assert_eq!(programs(), 7, "one set for all");
    for call in [format!("tcp4 {}", goal.tcp()), format!("udp {}", goal.udp())] {
        assert_eq!(bystander.say(&call), "ok", "{call}");
        assert_eq!(bystander.say(&format!("child {call}")), "ok ok", "{call}");
        assert_eq!(actor.say(&call), EPERM, "{call}");
    }
    assert_eq!(bystander.say("socket 2 3 1"), "ok", "a raw socket");
    assert_eq!(blocks.of_process(bystander.pid()), None);
    blocks.unblock(first);
    assert_eq!(programs(), 7, "one block is left");
    assert_eq!(actor.say(&format!("tcp4 {}", goal.tcp())), "ok");
    blocks.unblock(second);
    assert!(no_programs(), "{} programs after the last block", programs());
    assert!(!blocks.state().attached);
}
