//! Reading a user's files from a root daemon, as that user.
//!
//! The paths come from people and processes we do not trust, so the kernel has to judge every step of every path with
//! the user's own rights. How, and why this way:
//!
//! - **A thread of its own with the user's file-system identity** (`setgroups`, `setfsgid`, `setfsuid`, then every
//!   capability dropped; all four are per thread in the kernel, and raw system calls keep libc from spreading them
//!   to the other threads). Real and effective ids stay root's: with the user's real uid the user could send
//!   SIGKILL to the thread's id, which ends the whole daemon. `setfsuid` exists for exactly this difference.
//! - **No forked child**: forking a process with many threads leaves the child with other threads' locks, and a fork per
//!   file costs more than the read.
//! - **Capabilities are dropped for good in that thread.** `setfsuid` alone takes away the file-system ones, but with
//!   CAP_SYS_PTRACE left a link to `/proc/PID/root/...` would be followed into other users' processes.
//! - **Symbolic links are followed, magic ones are not** (`RESOLVE_NO_MAGICLINKS`). People keep their dotfiles as links
//!   into a repository; with the user's own rights a link reaches nothing the user could not read anyway. What is
//!   left to fear is that a file the user may read but does not own is presented as theirs, so the file that is finally
//!   opened must be a regular file of the asked-for owner. [`Owner`] says which; where a foreign file is normal
//!   (a project shared by a team) the last component must be no link.
//! - **First O_PATH, then the check, then the open** of the very same file through `/proc/thread-self/fd`: opening a FIFO
//!   would wait for a writer, opening a device may act on it.
//! - **A size limit, and a time limit**: a user can mount a file system of their own that never answers. A thread
//!   stuck in one is left behind, their number is bounded ([`MAX_STUCK`]), and beyond it sessions are refused.
//!
//! Paths are those of the daemon's mount namespace: an agent in a container has other files, and they are not read.

mod session;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, getgrouplist};
use std::ffi::CString;

/// Threads that may be left behind in file systems that do not answer.
pub const MAX_STUCK: usize = 8;

static STUCK: AtomicUsize = AtomicUsize::new(0);

/// A user of the running system.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostUser {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// All groups, the primary one included.
    pub groups: Vec<u32>,
    /// Home directory, absolute.
    pub home: PathBuf,
}

/// Who has to own a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Owner {
    /// The user.
    User,
    /// The user or root: files of the system that the user may read.
    UserOrRoot,
    /// Anyone, but then the last component may be no symbolic link.
    Anyone,
}

/// Bounds of a session.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest file read, in bytes.
    pub bytes: u64,
    /// Longest wait for one answer.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 4 << 20,
            time: Duration::from_secs(2),
        }
    }
}

/// Why a file was not read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UserFileError {
    /// No user has this id.
    #[error("no user has the id {0}")]
    NoUser(u32),
    /// The user's database entry cannot be used.
    #[error("the entry of user {0} cannot be used: {1}")]
    BadUser(u32, &'static str),
    /// There is no such file.
    #[error("there is no such file")]
    Absent,
    /// The user may not read it.
    #[error("the user may not read it")]
    Denied,
    /// It is a FIFO, a device, a directory or a socket.
    #[error("it is no regular file")]
    NotRegular,
    /// It is a link where none is allowed, a loop, or leads through /proc.
    #[error("it is a symbolic link that is not followed")]
    Link,
    /// It belongs to another user.
    #[error("it belongs to the user id {0}")]
    Foreign(u32),
    /// It is larger than the limit.
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    /// It is no UTF-8 text.
    #[error("it is no UTF-8 text (byte {0})")]
    NotText(usize),
    /// The file system did not answer in time; the session is over.
    #[error("the file system did not answer in time")]
    Time,
    /// Too many threads are stuck in file systems that do not answer.
    #[error("{MAX_STUCK} earlier reads still wait for file systems that do not answer")]
    Stuck,
    /// The daemon cannot act as this user.
    #[error("cannot act as this user: {0}")]
    Identity(#[source] Errno),
    /// Another error of the system.
    #[error("{0}")]
    System(#[source] Errno),
}

impl HostUser {
    /// The user with this id, from the system's user database.
    pub fn by_uid(uid: u32) -> Result<Self, UserFileError> {
        let user = User::from_uid(Uid::from_raw(uid)).map_err(UserFileError::System)?;
        let user = user.ok_or(UserFileError::NoUser(uid))?;
        let bad = |why| UserFileError::BadUser(uid, why);
        if !user.dir.is_absolute() {
            return Err(bad("its home directory is not absolute"));
        }
        let Ok(name) = CString::new(user.name.as_str()) else {
            return Err(bad("its name holds a zero byte"));
        };
        let groups = getgrouplist(&name, user.gid).map_err(UserFileError::System)?;
        Ok(Self {
            name: user.name,
            uid,
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
            home: user.dir,
        })
    }
}

enum Request {
    Read(PathBuf, Owner),
    RealPath(PathBuf),
    List(PathBuf, usize),
    /// Stands for a file system that does not answer.
    #[cfg(test)]
    Hang(Receiver<()>),
}

enum Answer {
    Bytes(Result<Vec<u8>, UserFileError>),
    Path(Result<PathBuf, UserFileError>),
    Names(Result<Vec<String>, UserFileError>),
}

/// A thread that reads files as one user. Made for a batch of reads and dropped after it.
#[derive(Debug)]
pub struct UserFiles {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    limits: Limits,
    given_up: Arc<AtomicBool>,
    /// Never waited for: the thread may be stuck, and ends by itself when the session is dropped.
    #[cfg_attr(not(test), expect(dead_code, reason = "only a test waits for the thread"))]
    thread: JoinHandle<()>,
}

/// Takes a thread that was given up on off the count when it ends after all.
struct OnEnd(Arc<AtomicBool>);

impl Drop for OnEnd {
    fn drop(&mut self) {
        if self.0.load(Ordering::Acquire) {
            STUCK.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl UserFiles {
    /// Starts a session. As root any user can be taken; otherwise only the daemon's own.
    pub fn open(user: &HostUser, limits: Limits) -> Result<Self, UserFileError> {
        if STUCK.load(Ordering::Relaxed) >= MAX_STUCK {
            return Err(UserFileError::Stuck);
        }
        let (requests, inbox) = channel::<Request>();
        let (outbox, answers) = channel();
        let (ready, started) = channel();
        let user = user.clone();
        let given_up = Arc::new(AtomicBool::new(false));
        let on_end = OnEnd(Arc::clone(&given_up));
        let thread = std::thread::Builder::new()
            .name("user-files".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                let _on_end = on_end;
                let identity = session::become_user(&user);
                let failed = identity.is_err();
                if ready.send(identity).is_err() || failed {
                    return;
                }
                for request in inbox {
                    let answer = match request {
                        Request::Read(path, owner) => {
                            Answer::Bytes(session::read(&path, owner, user.uid, limits.bytes))
                        }
                        Request::RealPath(path) => Answer::Path(session::real_path(&path)),
                        Request::List(path, max) => Answer::Names(session::list(&path, max)),
                        #[cfg(test)]
                        Request::Hang(until) => {
                            until.recv().ok();
                            Answer::Names(Ok(Vec::new()))
                        }
                    };
                    if outbox.send(answer).is_err() {
                        break;
                    }
                }
            })
            .map_err(|error| {
                UserFileError::System(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EAGAIN)))
            })?;
        match started.recv_timeout(limits.time) {
            Ok(Ok(())) => Ok(Self {
                requests,
                answers,
                limits,
                given_up,
                thread,
            }),
            Ok(Err(errno)) => Err(UserFileError::Identity(errno)),
            Err(_) => Err(UserFileError::Time),
        }
    }

    fn ask(&self, request: Request) -> Result<Answer, UserFileError> {
        if self.given_up.load(Ordering::Relaxed) {
            return Err(UserFileError::Time);
        }
        if self.requests.send(request).is_err() {
            return Err(UserFileError::System(Errno::EPIPE));
        }
        match self.answers.recv_timeout(self.limits.time) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                // Counted before the mark: the thread takes off what it sees marked.
                STUCK.fetch_add(1, Ordering::Relaxed);
                self.given_up.store(true, Ordering::Release);
                Err(UserFileError::Time)
            }
            Err(RecvTimeoutError::Disconnected) => Err(UserFileError::System(Errno::EPIPE)),
        }
    }

    /// The whole of a regular file.
    pub fn read(&self, path: &Path, owner: Owner) -> Result<Vec<u8>, UserFileError> {
        match self.ask(Request::Read(path.to_owned(), owner))? {
            Answer::Bytes(result) => result,
            _ => Err(UserFileError::System(Errno::EPROTO)),
        }
    }

    /// The whole of a regular file, as text.
    pub fn read_text(&self, path: &Path, owner: Owner) -> Result<String, UserFileError> {
        String::from_utf8(self.read(path, owner)?)
            .map_err(|error| UserFileError::NotText(error.utf8_error().valid_up_to()))
    }

    /// The path with symbolic links resolved, as far as the user may look.
    pub fn real_path(&self, path: &Path) -> Result<PathBuf, UserFileError> {
        match self.ask(Request::RealPath(path.to_owned()))? {
            Answer::Path(result) => result,
            _ => Err(UserFileError::System(Errno::EPROTO)),
        }
    }

    /// Names in a directory, at most `max`, those that are UTF-8.
    pub fn list(&self, path: &Path, max: usize) -> Result<Vec<String>, UserFileError> {
        match self.ask(Request::List(path.to_owned(), max))? {
            Answer::Names(result) => result,
            _ => Err(UserFileError::System(Errno::EPROTO)),
        }
    }
}

#[cfg(test)]
mod tests;
