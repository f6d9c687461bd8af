//! Who stands at the other end of the socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::stat::stat;

/// Shown for a uid that has no name in the daemon's user namespace.
const OVERFLOW_UID: u32 = 65_534;

/// A peer of the admin socket, as the kernel knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Viewer {
    /// Effective uid at connect, in the daemon's user namespace.
    pub uid: u32,
    /// Effective gid at connect.
    pub gid: u32,
    /// Supplementary groups at connect.
    pub groups: Vec<u32>,
    /// Process id at connect, in the daemon's pid namespace; 0 where the peer has none there.
    pub pid: u32,
    /// Root, or a member of the admin group: sees every user's data.
    pub sees_all: bool,
}

/// A viewer with the means to tell later whether its process is still the one that connected.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) viewer: Viewer,
    /// Same user and pid namespace as the daemon.
    pub(super) at_home: bool,
    /// Holds the very process, not its number (SO_PEERPIDFD, Linux 6.5).
    pidfd: Option<OwnedFd>,
    /// Start time in clock ticks since boot, for kernels without the above.
    started: Option<u64>,
}

impl Peer {
    /// Reads the credentials of a just accepted connection.
    pub(super) fn of<F: AsFd>(socket: &F, admin_group: Option<u32>) -> io::Result<Self> {
        let credentials = getsockopt(socket, sockopt::PeerCredentials)?;
        let groups = kams_host::peer::groups(socket.as_fd())?;
        let pidfd = getsockopt(socket, sockopt::PeerPidfd).ok();
        let pid = u32::try_from(credentials.pid()).unwrap_or(0);
        let at_home = pid != 0 && same_namespace(pid, "user") && same_namespace(pid, "pid");
        let (uid, gid) = (credentials.uid(), credentials.gid());
        let member = admin_group.is_some_and(|group| gid == group || groups.contains(&group));
        Ok(Self {
            // A container's root or group is not ours, even where the numbers agree.
            viewer: Viewer {
                uid,
                gid,
                groups,
                pid,
                sees_all: at_home && (uid == 0 || member),
            },
            at_home,
            pidfd,
            started: start_time(pid),
        })
    }

    /// Whether the uid tells who it is: a peer whose uid has no counterpart here shows as nobody.
    pub(super) fn is_somebody(&self) -> bool {
        self.at_home || self.viewer.uid != OVERFLOW_UID
    }

    /// Whether the process that connected still runs, so that what /proc says about its pid is about it.
    pub(super) fn is_alive(&self) -> bool {
        match &self.pidfd {
            Some(pidfd) => pid_of(pidfd) == Some(self.viewer.pid),
            None => self.started.is_some() && start_time(self.viewer.pid) == self.started,
        }
    }

    #[cfg(test)]
    pub(super) fn without_pidfd(mut self) -> Self {
        self.pidfd = None;
        self
    }
}

/// Start time of a process, in clock ticks since boot.
fn start_time(pid: u32) -> Option<u64> {
    let process = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?;
    process.stat().ok().map(|stat| stat.starttime)
}

/// Parent of a process; none where it has none or is gone.
pub(super) fn parent_of(pid: u32) -> Option<u32> {
    let process = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?;
    let parent = process.stat().ok()?.ppid;
    u32::try_from(parent).ok().filter(|p| *p != 0)
}

/// The pid behind a pidfd; none once the process has ended.
fn pid_of(pidfd: &OwnedFd) -> Option<u32> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("Pid:"))?;
    line.trim().parse().ok()
}

/// Whether a process is in the daemon's own namespace of this kind. What cannot be read is not.
fn same_namespace(pid: u32, kind: &str) -> bool {
    let id = |path: &Path| stat(path).ok().map(|s| (s.st_dev, s.st_ino));
    let theirs = id(Path::new(&format!("/proc/{pid}/ns/{kind}")));
    theirs.is_some() && theirs == id(Path::new(&format!("/proc/self/ns/{kind}")))
}
