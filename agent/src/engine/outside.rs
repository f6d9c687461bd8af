//! Looking at files of users from the engine, without ever waiting for them.
//!
//! A user decides what a path under their control does: a file system in user space can hold a `stat` for ever. So
//! whatever touches a path that a process named runs on a worker thread with a deadline; a worker that does not
//! come back is left to its fate and replaced, a few times.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::discover::identity::Look;
use crate::discover::tracker::ExeKey;

/// How long the engine waits for an answer.
const DEADLINE: Duration = Duration::from_millis(100);
/// Workers that may be stuck at once; beyond it nothing outside is looked at.
const STUCK: usize = 8;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on a thread of their own and waits for them at most [`DEADLINE`].
#[derive(Debug, Default)]
pub struct Outside {
    worker: Option<SyncSender<Job>>,
    stuck: Arc<AtomicUsize>,
    names: HashMap<u32, Arc<str>>,
}

impl Outside {
    /// Runs `job`; none where it took too long, or too many are stuck already.
    pub fn ask<T: Send + 'static>(&mut self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.stuck.load(Ordering::Relaxed) >= STUCK {
            return None;
        }
        let worker = self.worker.take().or_else(start)?;
        let (answer, answered): (SyncSender<T>, Receiver<T>) = sync_channel(1);
        let stuck = Arc::clone(&self.stuck);
        let gate = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&gate);
        let job = Box::new(move || {
            let value = job();
            if seen.swap(1, Ordering::AcqRel) == 2 {
                // The engine had given up on this worker.
                stuck.fetch_sub(1, Ordering::Relaxed);
            }
            drop(answer.send(value));
        });
        worker.send(job).ok()?;
        match answered.recv_timeout(DEADLINE) {
            Ok(value) => {
                self.worker = Some(worker);
                Some(value)
            }
            Err(RecvTimeoutError::Timeout) => {
                if gate.swap(2, Ordering::AcqRel) == 0 {
                    self.stuck.fetch_add(1, Ordering::Relaxed);
                }
                tracing::warn!("a user's file did not answer in time; going on without it");
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Login name of a user, or the uid in digits. Remembered: name services may be slow.
    pub fn user(&mut self, uid: u32) -> Arc<str> {
        if let Some(name) = self.names.get(&uid) {
            return Arc::clone(name);
        }
        let found = self.ask(move || {
            nix::unistd::User::from_uid(uid.into())
                .ok()
                .flatten()
                .map(|u| u.name)
        });
        let name: Arc<str> = found.flatten().unwrap_or_else(|| uid.to_string()).into();
        if self.names.len() < 4_096 {
            self.names.insert(uid, Arc::clone(&name));
        }
        name
    }

    /// Home directory of a user; empty where unknown.
    pub fn home(&mut self, uid: u32) -> String {
        let found = self.ask(move || {
            nix::unistd::User::from_uid(uid.into())
                .ok()
                .flatten()
                .map(|u| u.dir)
        });
        found
            .flatten()
            .map(|dir| dir.to_string_lossy().into_owned())
            .unwrap_or_default()
    }
}

fn start() -> Option<SyncSender<Job>> {
    let (jobs, queue) = sync_channel::<Job>(1);
    let run = move || queue.into_iter().for_each(|job| job());
    thread::Builder::new()
        .name("outside".to_owned())
        .spawn(run)
        .ok()?;
    Some(jobs)
}

/// Sees the file system as one process does.
#[derive(Clone, Debug)]
pub struct AsProcess {
    root: PathBuf,
}

impl AsProcess {
    /// As process `pid` sees it, whatever its mount namespace.
    pub fn new(pid: u32) -> Self {
        Self {
            root: PathBuf::from(format!("/proc/{pid}/root")),
        }
    }

    fn path(&self, path: &str) -> Option<PathBuf> {
        path.starts_with('/')
            .then(|| self.root.join(path.trim_start_matches('/')))
    }
}

impl Look for AsProcess {
    fn real_path(&self, path: &str) -> Option<String> {
        // Links are followed by hand: the kernel would follow absolute ones in our own root.
        let mut current = PathBuf::from(path);
        for _ in 0..16 {
            let mut changed = false;
            let mut walked = PathBuf::from("/");
            for part in current.clone().components() {
                use std::path::Component::{CurDir, Normal, ParentDir, Prefix, RootDir};
                match part {
                    RootDir | Prefix(_) | CurDir => {}
                    ParentDir => {
                        walked.pop();
                    }
                    Normal(name) => {
                        let here = walked.join(name);
                        let link = std::fs::read_link(self.path(here.to_str()?)?);
                        match link {
                            Ok(target) if !changed => {
                                changed = true;
                                walked = if target.is_absolute() {
                                    target
                                } else {
                                    walked.join(target)
                                };
                            }
                            _ => walked = here,
                        }
                    }
                }
            }
            current = walked;
            if !changed {
                break;
            }
        }
        std::fs::symlink_metadata(self.path(current.to_str()?)?).ok()?;
        current.to_str().map(str::to_owned)
    }

    fn read(&self, path: &str, max: usize) -> Option<String> {
        let real = self.real_path(path)?;
        let file = open_regular(&self.path(&real)?)?;
        let mut text = Vec::new();
        file.take(u64::try_from(max).ok()?).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    fn list(&self, dir: &str, max: usize) -> Vec<String> {
        let Some(entries) = self.path(dir).and_then(|dir| std::fs::read_dir(dir).ok()) else {
            return Vec::new();
        };
        entries
            .flatten()
            .take(max)
            .filter_map(|e| e.file_name().into_string().ok())
            .collect()
    }
}

/// Opens a regular file without waiting for a pipe's other end, and nothing else.
fn open_regular(path: &Path) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// The executable that a process runs, as it is now.
pub fn exe_key(pid: u32, path: String) -> Option<ExeKey> {
    let facts = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    let mtime = facts
        .mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(facts.mtime_nsec());
    Some(ExeKey {
        path,
        device: facts.dev(),
        inode: facts.ino(),
        mtime,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_given_up_and_the_next_question_is_answered() {
        let mut outside = Outside::default();
        let (release, held) = sync_channel::<()>(1);
        assert_eq!(outside.ask(move || held.recv().is_ok()), None);
        assert_eq!(outside.ask(|| 7), Some(7));
        assert_eq!(outside.stuck.load(Ordering::Relaxed), 1);
        release.send(()).unwrap();
    }

    #[test]
    fn too_many_stuck_workers_end_the_looking() {
        let mut outside = Outside::default();
        let mut releases = Vec::new();
        for _ in 0..STUCK {
            let (release, held) = sync_channel::<()>(1);
            assert_eq!(outside.ask(move || held.recv().is_ok()), None);
            releases.push(release);
        }
        assert_eq!(outside.ask(|| 7), None);
    }

    #[test]
    fn links_are_followed_within_the_root_of_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        std::fs::write(base.join("real/file"), "text").unwrap();
        std::os::unix::fs::symlink(base.join("real"), base.join("link")).unwrap();
        std::os::unix::fs::symlink("file", base.join("real/again")).unwrap();
        std::os::unix::fs::symlink("loop", base.join("loop")).unwrap();
        let look = AsProcess::new(std::process::id());
        let at = |name: &str| base.join(name).to_str().unwrap().to_owned();
        assert_eq!(look.real_path(&at("link/again")), Some(at("real/file")));
        assert_eq!(look.read(&at("link/again"), 3), Some("tex".to_owned()));
        assert_eq!(look.real_path(&at("missing")), None);
        assert_eq!(look.read(&at("real"), 10), None);
    }
}
