//! Connections that are open when a tree is cut off: found through the descriptors of its processes, and closed.
//!
//! A copy of each socket is taken (`pidfd_getfd`) and disconnected with `connect` to AF_UNSPEC: the peer gets a reset,
//! what waits to be sent is dropped, and every holder's next use fails. That works on every kernel, in every network
//! namespace, and on sockets that sock_diag does not list; SOCK_DESTROY needs an option of the kernel's build.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use crate::event::FdKind;
use crate::hold::pidfd_open;
use crate::procs;

const IPPROTO_UDPLITE: i32 = 136;
const IPPROTO_MPTCP: i32 = 262;
const AF_SMC: i32 = 43;
/// How often a socket is tried on which threads wait: some kernels refuse to disconnect it until they have woken.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// Something that is open and was not closed.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Left {
    /// A process that has it.
    pub pid: u32,
    /// Family of addresses; 0 for a ring.
    pub family: i32,
    /// Why.
    pub why: Why,
}

/// Why something was not closed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Why {
    /// A raw, packet or other socket that cannot be disconnected from outside.
    Kind,
    /// A process outside the tree has it too, and would lose it.
    Shared,
    /// A ring of io_uring holds files of its own, which cannot be seen.
    Ring,
    /// The kernel refused.
    Refused,
}

impl Why {
    /// A short name, stable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kind => "kind_of_socket",
            Self::Shared => "shared_with_others",
            Self::Ring => "io_uring_files",
            Self::Refused => "refused",
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) closed: usize,
    pub(super) left: Vec<Left>,
    /// Cookies of sockets that nobody outside has.
    pub(super) cookies: Vec<u64>,
}

/// A socket of the tree.
struct Socket {
    pid: u32,
    copy: OwnedFd,
    family: i32,
    kind: i32,
    protocol: i32,
}

/// Closes what these processes have open.
pub(super) fn close(members: &[u32]) -> Found {
    let mut found = Found::default();
    let mut sockets: BTreeMap<u64, Socket> = BTreeMap::new();
    // AF_UNIX sockets and the like, which are many: not asked about again.
    let mut others: HashSet<u64> = HashSet::new();
    for &pid in members {
        if holds_ring_files(pid) {
            found.left.push(Left {
                pid,
                family: 0,
                why: Why::Ring,
            });
        }
        let links = procs::fd_links(pid);
        let of_sockets = links.iter().filter(|link| link.kind == FdKind::SocketOther);
        let mut process = None;
        for link in of_sockets {
            if sockets.contains_key(&link.ino) || others.contains(&link.ino) {
                continue;
            }
            if process.is_none() {
                process = pidfd_open(pid).ok();
            }
            let Some(socket) = process.as_ref().and_then(|process| take(process, pid, link.fd)) else {
                continue;
            };
            // The descriptor may stand for something else by now.
            if inode(&socket.copy) == Some(link.ino) && is_network(socket.family) {
                sockets.insert(link.ino, socket);
            } else {
                others.insert(link.ino);
            }
        }
    }
    if sockets.is_empty() {
        return found;
    }
    let shared = held_outside(members, &sockets);
    for (ino, socket) in sockets {
        let left = |why| Left {
            pid: socket.pid,
            family: socket.family,
            why,
        };
        if shared.contains(&ino) {
            found.left.push(left(Why::Shared));
            continue;
        }
        found.cookies.extend(option_u64(&socket.copy, libc::SO_COOKIE));
        match end(&socket) {
            Ok(true) => found.closed += 1,
            Ok(false) => {}
            Err(why) => found.left.push(left(why)),
        }
    }
    found
}

const fn is_network(family: i32) -> bool {
    !matches!(family, libc::AF_UNIX | libc::AF_NETLINK | libc::AF_ALG)
}

/// Ends one; whether there was anything to end.
fn end(socket: &Socket) -> Result<bool, Why> {
    match (socket.family, socket.kind & 0xf, socket.protocol) {
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP | IPPROTO_MPTCP)
        | (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP | IPPROTO_UDPLITE) => {
            let busy = has_peer(&socket.copy) || listens(&socket.copy);
            for _ in 0..TRIES {
                if disconnect(&socket.copy) {
                    return Ok(busy);
                }
                // Wakes who waits; the connection is over in both directions from here on.
                shut(&socket.copy);
                std::thread::sleep(PAUSE);
            }
            if has_peer(&socket.copy) {
                Err(Why::Refused)
            } else {
                Ok(busy)
            }
        }
        (
            libc::AF_INET | libc::AF_INET6 | libc::AF_VSOCK | AF_SMC,
            libc::SOCK_STREAM | libc::SOCK_SEQPACKET,
            _,
        ) => {
            let busy = has_peer(&socket.copy);
            if !busy && !listens(&socket.copy) {
                // Connecting it is refused as far as the kernel asks about this family.
                return if socket.family == libc::AF_VSOCK {
                    Err(Why::Kind)
                } else {
                    Ok(false)
                };
            }
            if shut(&socket.copy) {
                Ok(true)
            } else {
                Err(Why::Refused)
            }
        }
        _ => Err(Why::Kind),
    }
}

/// Of these sockets, those that a process outside the tree has open as well.
fn held_outside(members: &[u32], sockets: &BTreeMap<u64, Socket>) -> HashSet<u64> {
    let members: HashSet<u32> = members.iter().copied().collect();
    let own = std::process::id();
    let mut outside = HashSet::new();
    for pid in procs::pids() {
        // This process has just taken copies.
        if pid == own || members.contains(&pid) {
            continue;
        }
        for link in procs::fd_links(pid) {
            if link.kind == FdKind::SocketOther && sockets.contains_key(&link.ino) {
                outside.insert(link.ino);
            }
        }
    }
    outside
}

fn take(process: &OwnedFd, pid: u32, fd: u32) -> Option<Socket> {
    // SAFETY: takes numbers only.
    let returned = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) };
    let copy = procs::new_fd(returned)?;
    Some(Socket {
        pid,
        family: option(&copy, libc::SO_DOMAIN)?,
        kind: option(&copy, libc::SO_TYPE)?,
        protocol: option(&copy, libc::SO_PROTOCOL)?,
        copy,
    })
}

fn inode(socket: &OwnedFd) -> Option<u64> {
    nix::sys::stat::fstat(socket).ok().map(|stat| stat.st_ino)
}

/// A plain option of a socket.
fn read_option<T: Default>(socket: &OwnedFd, name: i32) -> Option<T> {
    let mut value = T::default();
    let mut len = libc::socklen_t::try_from(size_of::<T>()).ok()?;
    // SAFETY: the call writes at most `len` bytes to `value`, which is that long; only integers are asked for.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    (result == 0).then_some(value)
}

fn option(socket: &OwnedFd, name: i32) -> Option<i32> {
    read_option(socket, name)
}

fn option_u64(socket: &OwnedFd, name: i32) -> Option<u64> {
    read_option(socket, name)
}

fn listens(socket: &OwnedFd) -> bool {
    option(socket, libc::SO_ACCEPTCONN).is_some_and(|value| value != 0)
}

/// It is connected, or on the way.
fn has_peer(socket: &OwnedFd) -> bool {
    const TCP_SYN_SENT: u8 = 2;
    let mut address = [0u8; 128];
    let mut len: libc::socklen_t = 128;
    // SAFETY: the call writes at most `len` bytes to `address`, which is that long.
    let result = unsafe { libc::getpeername(socket.as_raw_fd(), address.as_mut_ptr().cast(), &raw mut len) };
    if result == 0 {
        return true;
    }
    let mut state = [0u8; 1];
    let mut len: libc::socklen_t = 1;
    // SAFETY: the call writes at most one byte, the first of `struct tcp_info`: the state.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            state.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    result == 0 && state == [TCP_SYN_SENT]
}

fn disconnect(socket: &OwnedFd) -> bool {
    let nowhere = libc::sockaddr {
        sa_family: 0,
        sa_data: [0; 14],
    };
    let Ok(len) = libc::socklen_t::try_from(size_of::<libc::sockaddr>()) else {
        return false;
    };
    // SAFETY: an address that lives during the call, with its length.
    unsafe { libc::connect(socket.as_raw_fd(), &raw const nowhere, len) == 0 }
}

fn shut(socket: &OwnedFd) -> bool {
    // SAFETY: numbers only.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) == 0 }
}

/// Whether one of its rings holds files of its own.
fn holds_ring_files(pid: u32) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let is_ring = std::fs::read_link(entry.path())
            .is_ok_and(|target| target == std::path::Path::new("anon_inode:[io_uring]"));
        is_ring && {
            let info: PathBuf = format!("/proc/{pid}/fdinfo/{}", entry.file_name().display()).into();
            let text = std::fs::read_to_string(info).unwrap_or_default();
            let files = text.lines().find_map(|line| line.strip_prefix("UserFiles:"));
            files
                .and_then(|count| count.trim().parse::<u64>().ok())
                .is_some_and(|count| count > 0)
        }
    })
}
