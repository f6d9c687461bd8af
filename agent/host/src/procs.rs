//! Facts about processes from procfs. Every answer may be out of date when it is used: a process id alone names
//! nothing for good, `(pid, start)` does.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::clock::NS_PER_TICK;
use crate::event::FdKind;

/// Most bytes of arguments that are read.
const ARGV_MAX: usize = 128 * 1024;

/// What `/proc/PID/stat` says that never changes while the process lives, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// State letter; `Z` and `X` are dead.
    pub state: u8,
    /// Parent process.
    pub ppid: u32,
    /// Process group.
    pub pgid: u32,
    /// Session.
    pub sid: u32,
    /// Start, in 1/100 s of CLOCK_BOOTTIME.
    pub start_ticks: u64,
}

/// Facts about a process, as far as they could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Process id.
    pub pid: u32,
    /// From `/proc/PID/stat`.
    pub stat: Stat,
    /// Real user id.
    pub uid: u32,
    /// Real group id.
    pub gid: u32,
    /// Executable; `None` for kernel threads, zombies and foreign processes.
    pub exe: Option<PathBuf>,
    /// Arguments.
    pub argv: Vec<Vec<u8>>,
    /// Current directory.
    pub cwd: Option<PathBuf>,
}

/// One entry of `/proc/PID/fd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdLink {
    /// Descriptor number.
    pub fd: u32,
    /// [`FdKind::Pipe`], [`FdKind::SocketOther`] for any socket (procfs does not tell which), else
    /// [`FdKind::Other`].
    pub kind: FdKind,
    /// Inode number of a pipe or socket, else 0.
    pub ino: u64,
}

/// Reads and splits `/proc/PID/stat`.
pub fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(line: &[u8]) -> Option<Stat> {
    // The name in parentheses can hold anything, parentheses and spaces included: fields count from the last one.
    let close = line.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let ppid = fields.next()?.parse().ok()?;
    let pgid = fields.next()?.parse().ok()?;
    let sid = fields.next()?.parse().ok()?;
    // Field 22 of the line; state is field 3, session field 6.
    let start_ticks = fields.nth(15)?.parse().ok()?;
    Some(Stat {
        state,
        ppid,
        pgid,
        sid,
        start_ticks,
    })
}

/// Whether the process lives (a zombie does not) and, with `start_ns`, is the one that started then.
pub fn is_alive(pid: u32, start_ns: Option<u64>) -> bool {
    stat(pid).is_some_and(|stat| {
        !matches!(stat.state, b'Z' | b'X' | b'x')
            && start_ns.is_none_or(|start| start / NS_PER_TICK == stat.start_ticks)
    })
}

/// Everything about a process; `None` if it is gone or was replaced while it was read.
pub fn facts(pid: u32) -> Option<ProcessFacts> {
    let before = stat(pid)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let first_id = |name: &str| -> Option<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let (uid, gid) = (first_id("Uid:")?, first_id("Gid:")?);
    let exe = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok();
    let argv = argv(pid).unwrap_or_default();
    let same = stat(pid)?.start_ticks == before.start_ticks;
    same.then_some(ProcessFacts {
        pid,
        stat: before,
        uid,
        gid,
        exe,
        argv,
        cwd,
    })
}

/// Arguments of a process, at most 128 KiB of them.
pub fn argv(pid: u32) -> Option<Vec<Vec<u8>>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let limit = u64::try_from(ARGV_MAX).ok()?;
    fs::File::open(format!("/proc/{pid}/cmdline"))
        .ok()?
        .take(limit)
        .read_to_end(&mut bytes)
        .ok()?;
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    Some(bytes.split(|&b| b == 0).map(<[u8]>::to_vec).collect())
}

/// Executable of a process.
pub fn exe(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Current directory of a process.
pub fn cwd(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// Open descriptors of a process. Empty if it is gone or may not be read.
pub fn fd_links(pid: u32) -> Vec<FdLink> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let fd = entry.file_name().to_str()?.parse().ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            let (kind, ino) = parse_link(target.as_os_str().as_bytes());
            Some(FdLink { fd, kind, ino })
        })
        .collect()
}

/// One open descriptor of a process; `None` if it is closed, or may not be read.
pub fn fd_link(pid: u32, fd: u32) -> Option<FdLink> {
    let target = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    let (kind, ino) = parse_link(target.as_os_str().as_bytes());
    Some(FdLink { fd, kind, ino })
}

fn parse_link(target: &[u8]) -> (FdKind, u64) {
    let number = |prefix: &[u8]| -> Option<u64> {
        let digits = target.strip_prefix(prefix)?.strip_suffix(b"]")?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    if let Some(ino) = number(b"pipe:[") {
        (FdKind::Pipe, ino)
    } else if let Some(ino) = number(b"socket:[") {
        (FdKind::SocketOther, ino)
    } else {
        (FdKind::Other, 0)
    }
}

/// Whether a process has the far end of a descriptor open: a descriptor with the inode number
/// [`crate::FdShape::far_ino`]. For a pipe this holds for the near end too. Reads `/proc/PID/fd`.
pub fn holds_far_end(pid: u32, shape: &crate::FdShape) -> bool {
    has_far_end(&fd_links(pid), shape)
}

/// The same for descriptors that were read already.
pub fn has_far_end(links: &[FdLink], shape: &crate::FdShape) -> bool {
    let ino = shape.far_ino();
    let kind = match shape.kind {
        FdKind::Pipe => FdKind::Pipe,
        FdKind::UnixStream => FdKind::SocketOther,
        _ => return false,
    };
    ino != 0 && links.iter().any(|link| link.kind == kind && link.ino == ino)
}

/// Bytes that wait to be read in a pipe or socket which a process has open; `None` if it has it open no more, or
/// may not be asked. `kind` and `ino` as in [`FdLink`].
///
/// The process's descriptor is held for as long as the kernel needs to answer, which it cannot notice.
pub fn unread(pid: u32, kind: FdKind, ino: u64) -> Option<u64> {
    let link = fd_links(pid)
        .into_iter()
        .find(|link| link.ino == ino && link.kind == kind)?;
    let copy = descriptor(pid, link.fd)?;
    let mut waiting: libc::c_int = 0;
    // SAFETY: writes one int into a local.
    let done = unsafe { libc::ioctl(copy.as_raw_fd(), libc::FIONREAD, &raw mut waiting) };
    (done == 0).then(|| u64::try_from(waiting).unwrap_or(0))
}

/// A copy of what waits to be read at a process's descriptor, at most `limit` bytes; `None` if there is no pipe or
/// stream socket with this inode number there, or it may not be asked. Nothing is taken away: whoever reads it, reads it all.
pub fn peek(pid: u32, fd: u32, kind: FdKind, ino: u64, limit: usize) -> Option<Vec<u8>> {
    let copy = descriptor(pid, fd)?;
    let held = fs::read_link(format!("/proc/self/fd/{}", copy.as_raw_fd())).ok()?;
    let (held_kind, held_ino) = parse_link(held.as_os_str().as_bytes());
    if held_ino != ino {
        return None;
    }
    match (kind, held_kind) {
        (FdKind::Pipe, FdKind::Pipe) => peek_pipe(&copy, limit),
        (FdKind::UnixStream, FdKind::SocketOther) => Some(peek_socket(&copy, limit)),
        _ => None,
    }
}

fn peek_pipe(from: &OwnedFd, limit: usize) -> Option<Vec<u8>> {
    use std::io::Read;
    let (mut reader, writer) = std::io::pipe().ok()?;
    let size = libc::c_int::try_from(limit).ok()?;
    // SAFETY: takes numbers only. Where the user's limit refuses it, the pipe holds what it holds.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, size) };
    // SAFETY: takes numbers only; both are open pipes. It duplicates what is there and waits for nothing.
    let moved = unsafe {
        libc::tee(
            from.as_raw_fd(),
            writer.as_raw_fd(),
            limit,
            libc::SPLICE_F_NONBLOCK,
        )
    };
    let Ok(moved) = usize::try_from(moved) else {
        // EAGAIN: nothing is there.
        return Some(Vec::new());
    };
    let mut bytes = vec![0; moved];
    reader.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn peek_socket(from: &OwnedFd, limit: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; limit];
    // SAFETY: writes at most the length of a local buffer; with these flags it takes nothing and waits for nothing.
    let seen = unsafe {
        libc::recv(
            from.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            libc::MSG_PEEK | libc::MSG_DONTWAIT,
        )
    };
    bytes.truncate(usize::try_from(seen).unwrap_or(0));
    bytes
}

/// A copy of a process's descriptor. The process cannot notice it.
fn descriptor(pid: u32, fd: u32) -> Option<OwnedFd> {
    let process = new_fd(
        // SAFETY: takes numbers only.
        unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) },
    )?;
    new_fd(
        // SAFETY: takes numbers only; the pidfd is open.
        unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) },
    )
}

/// The descriptor that a system call returned.
pub(crate) fn new_fd(returned: libc::c_long) -> Option<OwnedFd> {
    let fd = i32::try_from(returned).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just given it to us, and nobody else knows its number.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Every process id at about one time.
pub fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Children of a process, by the parent that each process names. Reads every process.
pub fn children(pid: u32) -> Vec<u32> {
    pids()
        .into_iter()
        .filter(|&other| stat(other).is_some_and(|stat| stat.ppid == pid))
        .collect()
}

/// One more than the largest process id the kernel gives out now; 4,194,304 if it does not say.
pub fn pid_max() -> u32 {
    fs::read_to_string("/proc/sys/kernel/pid_max")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(4 * 1024 * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_a_name_with_parentheses_and_spaces() {
        let line = b"42 (a) R (b) S 7 42 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        let stat = parse_stat(line).expect("valid line");
        assert_eq!(
            stat,
            Stat {
                state: b'S',
                ppid: 7,
                pgid: 42,
                sid: 40,
                start_ticks: 987_654
            }
        );
    }

    #[test]
    fn own_facts() {
        let own = facts(std::process::id()).expect("own process");
        assert_eq!(own.exe, std::env::current_exe().ok());
        assert!(is_alive(own.pid, Some(own.stat.start_ticks * NS_PER_TICK)));
        assert!(!is_alive(own.pid, Some((own.stat.start_ticks + 1) * NS_PER_TICK)));
        let args: Vec<Vec<u8>> = std::env::args_os().map(|arg| arg.as_bytes().to_vec()).collect();
        assert_eq!(own.argv, args);
    }

    #[test]
    fn pipe_links_carry_the_inode() {
        let (reader, _writer) = std::io::pipe().expect("pipe");
        let fd = u32::try_from(AsRawFd::as_raw_fd(&reader)).expect("descriptor");
        let link = fd_links(std::process::id())
            .into_iter()
            .find(|link| link.fd == fd)
            .expect("listed");
        assert_eq!(link.kind, FdKind::Pipe);
        assert!(link.ino > 0);
    }

    #[test]
    fn what_waits_in_a_pipe_and_in_a_socket_is_counted() {
        use std::io::{Read, Write};
        let own = std::process::id();
        let waiting = |kind, fd: &dyn AsRawFd| {
            let links = fd_links(own);
            let link = links
                .iter()
                .find(|link| i64::from(link.fd) == i64::from(fd.as_raw_fd()));
            unread(own, kind, link.expect("listed").ino)
        };
        let (mut reader, mut writer) = std::io::pipe().expect("pipe");
        assert_eq!(waiting(FdKind::Pipe, &reader), Some(0));
        writer.write_all(b"12345").expect("written");
        assert_eq!(waiting(FdKind::Pipe, &reader), Some(5));
        reader.read_exact(&mut [0; 3]).expect("read");
        assert_eq!(waiting(FdKind::Pipe, &reader), Some(2));

        let (near, mut far) = std::os::unix::net::UnixStream::pair().expect("sockets");
        far.write_all(b"1234").expect("written");
        assert_eq!(waiting(FdKind::SocketOther, &near), Some(4));
        drop(far);
        assert_eq!(
            waiting(FdKind::SocketOther, &near),
            Some(4),
            "the writer is gone, its bytes are not"
        );
        assert_eq!(unread(own, FdKind::Pipe, u64::MAX), None);
    }

    #[test]
    fn a_peek_takes_nothing_and_waits_for_nothing() {
        use std::io::{Read, Write};
        let own = std::process::id();
        let at = |kind, fd: &dyn AsRawFd, limit| {
            let fd = u32::try_from(fd.as_raw_fd()).expect("descriptor");
            let ino = fd_links(own)
                .iter()
                .find(|link| link.fd == fd)
                .expect("listed")
                .ino;
            assert_eq!(peek(own, fd, kind, ino + 1, limit), None, "another object");
            peek(own, fd, kind, ino, limit)
        };
        let (mut reader, mut writer) = std::io::pipe().expect("pipe");
        assert_eq!(at(FdKind::Pipe, &reader, 100), Some(Vec::new()));
        writer.write_all(b"one\n").expect("written");
        writer.write_all(b"two\n").expect("written");
        assert_eq!(
            at(FdKind::Pipe, &reader, 100).as_deref(),
            Some(&b"one\ntwo\n"[..])
        );
        assert_eq!(at(FdKind::Pipe, &reader, 6).as_deref(), Some(&b"one\ntw"[..]));
        let mut read = [0; 8];
        reader.read_exact(&mut read).expect("all is still there");
        assert_eq!(&read, b"one\ntwo\n");
        drop(writer);
        assert_eq!(
            at(FdKind::Pipe, &reader, 100),
            Some(Vec::new()),
            "its writer is gone"
        );

        let (near, mut far) = std::os::unix::net::UnixStream::pair().expect("sockets");
        assert_eq!(at(FdKind::UnixStream, &near, 100), Some(Vec::new()));
        far.write_all(b"one\n").expect("written");
        far.write_all(b"two\n").expect("written");
        assert_eq!(
            at(FdKind::UnixStream, &near, 100).as_deref(),
            Some(&b"one\ntwo\n"[..])
        );
        assert_eq!(at(FdKind::Pipe, &near, 100), None, "no pipe");
    }

    #[test]
    fn links_of_other_kinds() {
        assert_eq!(parse_link(b"/dev/null"), (FdKind::Other, 0));
        assert_eq!(parse_link(b"socket:[12]"), (FdKind::SocketOther, 12));
        assert_eq!(parse_link(b"pipe:[99999999999999999999]"), (FdKind::Other, 0));
    }
}
