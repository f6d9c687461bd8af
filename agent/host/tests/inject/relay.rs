//! A relay that only copies: enough to show whose bytes go where.

use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::JoinHandle;

use kams_host::inject::Ends;

/// A relay at work.
pub(crate) struct Relay {
    to_server: JoinHandle<Vec<u8>>,
    to_agent: JoinHandle<Vec<u8>>,
}

/// What passed.
#[derive(Debug)]
pub(crate) struct Passed {
    pub(crate) to_server: Vec<u8>,
    pub(crate) to_agent: Vec<u8>,
}

impl Relay {
    pub(crate) fn start(ends: Ends) -> Self {
        let half_close = ends.one_socket;
        let (from_agent, to_server) = (ends.from_agent, ends.to_server);
        let (from_server, to_agent) = (ends.from_server, ends.to_agent);
        Self {
            to_server: std::thread::spawn(move || copy(&from_agent, &to_server, half_close)),
            to_agent: std::thread::spawn(move || copy(&from_server, &to_agent, half_close)),
        }
    }

    /// Waits for the end of both directions.
    pub(crate) fn join(self) -> Passed {
        Passed {
            to_server: self.to_server.join().expect("no panic"),
            to_agent: self.to_agent.join().expect("no panic"),
        }
    }
}

fn copy(from: &OwnedFd, to: &OwnedFd, half_close: bool) -> Vec<u8> {
    let mut passed = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        // A writer that waits must learn of a reader that has gone, too.
        if !ready(from, libc::POLLIN, Some(to)) {
            break;
        }
        // SAFETY: the buffer is as long as said.
        let read = unsafe { libc::read(from.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        let Ok(read) = usize::try_from(read) else {
            let error = std::io::Error::last_os_error();
            if error.kind() == std::io::ErrorKind::WouldBlock {
                continue;
            }
            break;
        };
        if read == 0 || !write_all(to, &buffer[..read]) {
            break;
        }
        passed.extend_from_slice(&buffer[..read]);
    }
    if half_close {
        // SAFETY: takes numbers only.
        let _closed_already = unsafe { libc::shutdown(to.as_raw_fd(), libc::SHUT_WR) };
    }
    passed
}

fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        if !ready(to, libc::POLLOUT, None) {
            return false;
        }
        // SAFETY: the slice is as long as said.
        let written = unsafe { libc::write(to.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(written) => bytes = &bytes[written..],
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
    true
}

/// Waits until `fd` is ready, or its end has come; false once nobody reads `peer` any more.
fn ready(fd: &OwnedFd, events: i16, peer: Option<&OwnedFd>) -> bool {
    let entry = |fd: &OwnedFd, events| libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    let mut fds = vec![entry(fd, events)];
    fds.extend(peer.map(|peer| entry(peer, 0)));
    let count = libc::nfds_t::try_from(fds.len()).expect("two at most");
    // SAFETY: the entries are valid and their number is as said.
    unsafe { libc::poll(fds.as_mut_ptr(), count, -1) };
    fds[0].revents != 0 || fds.get(1).is_none_or(|peer| peer.revents & libc::POLLERR == 0)
}
