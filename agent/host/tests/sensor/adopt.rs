//! Servers that ran before the sensor.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use kams_host::{Op, StreamKey, procs};

use crate::rig::{Arrived, Rig, is_root};

#[test]
#[expect(
    clippy::zombie_processes,
    reason = "they are waited for unless the test fails"
)]
fn running_servers_are_found_with_who_holds_their_ends_and_can_be_watched() {
    if !is_root() {
        return;
    }
    let own = std::process::id();
    let mut on_pipes = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cat starts");
    let (mut agent_in, far_in) = UnixStream::pair().expect("socketpair");
    let (mut agent_out, far_out) = UnixStream::pair().expect("socketpair");
    let mut on_sockets = Command::new("cat")
        .stdin(OwnedFd::from(far_in))
        .stdout(OwnedFd::from(far_out))
        .spawn()
        .expect("cat starts");

    let Some(mut rig) = Rig::with_defaults() else {
        return;
    };
    let running = rig.control.adopt().expect("descriptors");
    let candidates = running.candidates();
    for child in [on_pipes.id(), on_sockets.id()] {
        let found = candidates.iter().find(|(server, _)| *server == child);
        assert_eq!(found, Some(&(child, vec![own])));
        let stdio = running.stdio(child);
        assert_eq!(running.far_holders(&stdio[0], Op::Write), [own]);
        assert!(procs::holds_far_end(own, &stdio[0]) && procs::holds_far_end(own, &stdio[1]));
        rig.control
            .watch_server(&stdio, child, own)
            .expect("watched")
            .expect("can carry MCP");
    }

    let mut pipe_in = on_pipes.stdin.take().expect("piped");
    pipe_in.write_all(b"pipe").expect("write");
    agent_in.write_all(b"sock").expect("write");
    let mut echoed = [0; 4];
    on_pipes
        .stdout
        .as_mut()
        .expect("piped")
        .read_exact(&mut echoed)
        .expect("read");
    agent_out.read_exact(&mut echoed).expect("read");
    let mut expected: HashMap<StreamKey, (&[u8], Arrived)> = HashMap::new();
    for (child, text) in [(on_pipes.id(), b"pipe"), (on_sockets.id(), b"sock")] {
        let (to, from) = kams_host::far_keys(&running.stdio(child)).expect("can carry MCP");
        expected.insert(to, (text, Arrived::default()));
        expected.insert(from, (text, Arrived::default()));
    }
    while expected
        .values()
        .any(|(text, arrived)| arrived.data.len() < text.len())
    {
        let event = rig.next();
        for (key, (_, arrived)) in &mut expected {
            arrived.take(event.clone(), *key);
        }
    }
    assert!(expected.values().all(|(text, arrived)| arrived.data == *text));
    drop((pipe_in, agent_in));
    on_pipes.wait().expect("ends");
    on_sockets.wait().expect("ends");
}
