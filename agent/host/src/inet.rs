//! Whose socket stands at the other end of a TCP connection on this host.
//!
//! TCP has no peer credentials, but the kernel knows the other socket: sock_diag finds it by its four numbers, in the
//! network namespace of the caller, and tells its owner. Where that module is missing, `/proc/net/tcp` says the same.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use crate::FdKind;
use crate::procs::fd_links;

/// Ours on this kernel interface (linux/sock_diag.h, linux/netlink.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const IPPROTO_TCP: u8 = 6;
/// Sizes of the header, of the question and of the least answer.
const HEADER: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;
/// How long the kernel may take; it answers at once.
const PATIENCE_SECONDS: i64 = 2;

/// The owner of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SocketOwner {
    /// User who made it.
    pub uid: u32,
    /// Its inode number, as in `/proc/PID/fd`; 0 where it has none any more.
    pub inode: u64,
}

/// The owner of the socket at `theirs` that is connected to `ours`. `NotFound` once it is closed, or where it is not of
/// this host and network namespace.
pub fn peer_owner(ours: SocketAddr, theirs: SocketAddr) -> io::Result<SocketOwner> {
    match ask(ours, theirs) {
        Ok(owner) => Ok(owner),
        // Not loaded, or not allowed: ENOENT is also what a closed socket gives, so both look there.
        Err(_) => from_table(ours, theirs),
    }
}

/// Whether a process has the socket with this inode number open.
pub fn holds_socket(pid: u32, inode: u64) -> bool {
    inode != 0
        && fd_links(pid)
            .iter()
            .any(|link| link.kind == FdKind::SocketOther && link.ino == inode)
}

fn ask(ours: SocketAddr, theirs: SocketAddr) -> io::Result<SocketOwner> {
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    setsockopt(
        &netlink,
        sockopt::ReceiveTimeout,
        &TimeVal::new(PATIENCE_SECONDS, 0),
    )?;
    send(netlink.as_raw_fd(), &question(ours, theirs), MsgFlags::empty())?;
    let mut buffer = [0; 4_096];
    let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    answer(buffer.get(..length).unwrap_or_default())
}

fn question(ours: SocketAddr, theirs: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + QUESTION);
    let length = u32::try_from(HEADER + QUESTION).unwrap_or_default();
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and sender: one question per socket.
    out.extend_from_slice(&[0; 8]);
    let family = match theirs {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    out.push(u8::try_from(family).unwrap_or_default());
    out.extend_from_slice(&[IPPROTO_TCP, 0, 0]);
    // Any state.
    out.extend_from_slice(&u32::MAX.to_ne_bytes());
    out.extend_from_slice(&theirs.port().to_be_bytes());
    out.extend_from_slice(&ours.port().to_be_bytes());
    for address in [theirs.ip(), ours.ip()] {
        let mut field = [0; 16];
        match address {
            IpAddr::V4(four) => field
                .iter_mut()
                .zip(four.octets())
                .for_each(|(to, from)| *to = from),
            IpAddr::V6(six) => field = six.octets(),
        }
        out.extend_from_slice(&field);
    }
    // Any interface, no cookie.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[0xff; 8]);
    out
}

fn answer(message: &[u8]) -> io::Result<SocketOwner> {
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "an answer of another shape");
    let kind = message
        .get(4..6)
        .and_then(|b| b.try_into().ok())
        .map(u16::from_ne_bytes);
    let number = |at: usize| -> Option<u32> {
        let bytes = message.get(HEADER + at..HEADER + at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    match kind {
        Some(SOCK_DIAG_BY_FAMILY) if message.len() >= HEADER + ANSWER => Ok(SocketOwner {
            uid: number(64).ok_or_else(broken)?,
            inode: number(68).ok_or_else(broken)?.into(),
        }),
        Some(NLMSG_ERROR) => {
            let code = number(0).ok_or_else(broken)?.cast_signed();
            Err(io::Error::from_raw_os_error(code.saturating_neg()))
        }
        _ => Err(broken()),
    }
}

fn from_table(ours: SocketAddr, theirs: SocketAddr) -> io::Result<SocketOwner> {
    let table = match theirs {
        SocketAddr::V4(_) => "/proc/net/tcp",
        SocketAddr::V6(_) => "/proc/net/tcp6",
    };
    let text = std::fs::read_to_string(table)?;
    let (local, remote) = (spelt(theirs), spelt(ours));
    let found = text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let same = fields.get(1) == Some(&local.as_str()) && fields.get(2) == Some(&remote.as_str());
        let uid = fields.get(7)?.parse().ok()?;
        let inode = fields.get(9)?.parse().ok()?;
        same.then_some(SocketOwner { uid, inode })
    });
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// As the kernel's table spells it: words of the address in the machine's order, in capital hexadecimal.
fn spelt(address: SocketAddr) -> String {
    let words: String = match address.ip() {
        IpAddr::V4(four) => format!("{:08X}", u32::from_ne_bytes(four.octets())),
        IpAddr::V6(six) => six
            .octets()
            .chunks_exact(4)
            .filter_map(|word| word.try_into().ok())
            .fold(String::new(), |words, word| {
                format!("{words}{:08X}", u32::from_ne_bytes(word))
            }),
    };
    format!("{words}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair(address: &str) -> Option<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind(address).ok()?;
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        Some((near, far))
    }

    #[test]
    fn the_owner_of_the_other_end_is_known_both_ways() {
        let own = nix::unistd::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Some((near, far)) = pair(address) else {
                continue;
            };
            let (ours, theirs) = (far.local_addr().unwrap(), far.peer_addr().unwrap());
            let found = peer_owner(ours, theirs).unwrap();
            assert_eq!(found.uid, own, "{address}");
            assert!(holds_socket(std::process::id(), found.inode), "{address}");
            assert_eq!(from_table(ours, theirs).unwrap(), found, "{address}");
            let other = peer_owner(theirs, ours).unwrap();
            assert_ne!(other.inode, found.inode);
            drop(near);
        }
    }

    #[test]
    fn a_socket_that_is_not_there_has_no_owner() {
        let (_near, far) = pair("127.0.0.1:0").unwrap();
        let ours = far.local_addr().unwrap();
        let nobody = SocketAddr::new(ours.ip(), ours.port().wrapping_add(1).max(1));
        assert_eq!(
            peer_owner(nobody, nobody).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(!holds_socket(std::process::id(), 0));
    }
}
