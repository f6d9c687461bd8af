//! One daemon per state folder.
//!
//! What is pinned for that folder (who is held, who is cut off the network) belongs to one daemon. Only whoever knows that
//! no other lives may heal it. That is the lock of the file `kamsd.lock` in the folder: a start, and `kamsd --heal`, take it
//! for themselves alone first; the parent and its workers then share it as long as they live, and the kernel ends it with
//! them (flock(2)).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// Name of the file, in the state folder.
const FILE: &str = "kamsd.lock";
/// How long a daemon that was just killed may take to go: its worker ends by itself then.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two tries.
const BETWEEN: Duration = Duration::from_millis(50);

/// Why one is not alone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AloneError {
    /// Another daemon lives.
    #[error(
        "another kamsd{} uses {}; stop it first (`systemctl stop kamsd`), or give this one another `state_dir`",
        processes(.pids), .state_dir.display()
    )]
    Taken {
        /// The state folder of both.
        state_dir: PathBuf,
        /// Its processes, as far as the kernel tells them.
        pids: Vec<u32>,
        /// Its parent process is among them: it is not about to end.
        stays: bool,
    },
    /// The file cannot be made, or not be locked.
    #[error("the lock of the state folder, {}: {source}{}", .path.display(), remedy(.source))]
    Io {
        /// The file, or its folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (kamsd needs root: start it with sudo or as the systemd service)"
        }
        _ => "",
    }
}

fn processes(pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    match pids.as_slice() {
        [] => String::new(),
        [pid] => format!(" (process {pid})"),
        _ => format!(" (processes {})", pids.join(", ")),
    }
}

/// The lock, as long as this is there.
#[derive(Debug)]
pub struct Alone {
    file: File,
    state_dir: PathBuf,
}

impl Alone {
    /// Takes the lock for oneself alone, and waits so long for a worker whose parent is dead: it is about to end.
    ///
    /// # Errors
    /// When another daemon lives, or the file cannot be made.
    pub fn take(state_dir: &Path, patience: Duration) -> Result<Self, AloneError> {
        let this = Self::open(state_dir)?;
        let began = Instant::now();
        loop {
            match this.lock(FlockOperation::NonBlockingLockExclusive) {
                Err(AloneError::Taken { stays: false, .. }) if began.elapsed() < patience => {
                    std::thread::sleep(BETWEEN);
                }
                done => return done.map(|()| this),
            }
        }
    }

    /// Shares the lock with the workers that are to come, as their parent.
    ///
    /// # Errors
    /// When another start was quicker: the kernel gives the lock up before it takes it anew.
    pub fn share(&self) -> Result<(), AloneError> {
        self.lock(FlockOperation::NonBlockingLockShared)?;
        let write = || {
            self.file.set_len(0)?;
            self.file
                .write_all_at(std::process::id().to_string().as_bytes(), 0)
        };
        if let Err(error) = write() {
            // A full disk, for example. Whoever comes waits for us to go, and is refused a little later.
            tracing::debug!(%error, "the parent's number is not written");
        }
        Ok(())
    }

    /// Shares the lock of the parent.
    ///
    /// # Errors
    /// When the parent has gone, and another daemon has come.
    pub fn join(state_dir: &Path) -> Result<Self, AloneError> {
        let this = Self::open(state_dir)?;
        this.lock(FlockOperation::NonBlockingLockShared)?;
        Ok(this)
    }

    fn open(state_dir: &Path) -> Result<Self, AloneError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| AloneError::Io { path, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state_dir)
            .map_err(failed(state_dir))?;
        let path = state_dir.join(FILE);
        // Private: whoever could open it could keep the daemon from starting.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            // A disk that has become read-only hides no daemon: what is there can be locked.
            .or_else(|error| match error.kind() {
                io::ErrorKind::ReadOnlyFilesystem => OpenOptions::new()
                    .read(true)
                    .custom_flags(libc::O_NOFOLLOW)
                    .open(&path)
                    .map_err(|_gone| error),
                _ => Err(error),
            })
            .map_err(failed(&path))?;
        Ok(Self {
            file,
            state_dir: state_dir.to_owned(),
        })
    }

    fn lock(&self, how: FlockOperation) -> Result<(), AloneError> {
        flock(&self.file, how).map_err(|error| {
            if error == rustix::io::Errno::WOULDBLOCK {
                let pids = self.holders();
                AloneError::Taken {
                    state_dir: self.state_dir.clone(),
                    stays: self.parent().is_some_and(|parent| pids.contains(&parent)),
                    pids,
                }
            } else {
                AloneError::Io {
                    path: self.state_dir.join(FILE),
                    source: error.into(),
                }
            }
        })
    }

    /// The parent that shared the lock last, alive or not.
    fn parent(&self) -> Option<u32> {
        std::fs::read_to_string(self.state_dir.join(FILE))
            .ok()?
            .parse()
            .ok()
    }

    /// Who has locked the file, by `/proc/locks` (proc_locks(5)).
    fn holders(&self) -> Vec<u32> {
        let (Ok(meta), Ok(locks)) = (self.file.metadata(), std::fs::read_to_string("/proc/locks")) else {
            return Vec::new();
        };
        let (dev, ino) = (meta.dev(), meta.ino());
        let file = format!("{:02x}:{:02x}:{ino}", libc::major(dev), libc::minor(dev));
        let mut pids: Vec<u32> = locks.lines().filter_map(|line| holder(line, &file)).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// The process of a line like `3: FLOCK  ADVISORY  WRITE 812 08:01:1234 0 EOF`, if it has locked this file.
fn holder(line: &str, file: &str) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [_, "FLOCK", _, _, pid, of, ..] if *of == file => pid.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn taken(result: Result<Alone, AloneError>) -> String {
        let error = result.unwrap_err();
        assert!(matches!(error, AloneError::Taken { .. }), "{error}");
        error.to_string()
    }

    #[test]
    fn one_is_alone_until_all_of_the_other_has_gone() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let parent = Alone::take(&state, Duration::ZERO).unwrap();
        let said = taken(Alone::take(&state, Duration::ZERO));
        assert!(
            said.contains("another kamsd") && said.contains("state_dir"),
            "{said}"
        );
        parent.share().unwrap();
        let worker = Alone::join(&state).unwrap();
        taken(Alone::take(&state, Duration::ZERO));
        drop(parent);
        taken(Alone::take(&state, Duration::ZERO));
        drop(worker);
        Alone::take(&state, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_worker_does_not_join_somebody_elses_start() {
        let dir = tempfile::tempdir().unwrap();
        let _other = Alone::take(dir.path(), Duration::ZERO).unwrap();
        taken(Alone::join(dir.path()));
    }

    #[test]
    fn a_daemon_whose_parent_lives_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let parent = Alone::take(dir.path(), Duration::ZERO).unwrap();
        parent.share().unwrap();
        let forever = Duration::from_hours(24);
        taken(Alone::take(dir.path(), forever));
        drop(parent);
        Alone::take(dir.path(), forever).unwrap();
    }

    #[test]
    fn a_daemon_that_goes_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let old = Alone::take(dir.path(), Duration::ZERO).unwrap();
        let state = dir.path().to_owned();
        let (begun, begins) = std::sync::mpsc::channel();
        let new = std::thread::spawn(move || {
            begun.send(()).unwrap();
            Alone::take(&state, Duration::from_mins(1)).map(drop)
        });
        begins.recv().unwrap();
        drop(old);
        new.join().unwrap().unwrap();
    }

    #[test]
    fn nobody_else_can_lock_it() {
        let dir = tempfile::tempdir().unwrap();
        let _alone = Alone::take(dir.path(), Duration::ZERO).unwrap();
        let meta = std::fs::metadata(dir.path().join(FILE)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn holders_are_read_off_the_kernels_list() {
        let line = "3: FLOCK  ADVISORY  READ  812 08:01:1234 0 EOF";
        assert_eq!(holder(line, "08:01:1234"), Some(812));
        assert_eq!(holder(line, "08:01:123"), None);
        assert_eq!(holder(&line.replace("FLOCK", "POSIX"), "08:01:1234"), None);
        assert_eq!(holder("", "08:01:1234"), None);
    }
}
