//! Looking at files of users from the engine, without ever waiting for them.
//!
//! A user decides what a path under their control does: a file system in user space can hold a `stat` for ever. So
//! whatever touches a path that a process named runs on a worker thread with a deadline; a worker that does not
//! come back is left to its fate and replaced, a few times.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use kams_host::userfile::{HostUser, Limits, UserFiles};

use crate::clients::UserReader;
use crate::discover::identity::{Blind, Look};
use crate::discover::tracker::ExeKey;

/// How long the engine waits for an answer.
const DEADLINE: Duration = Duration::from_millis(100);
/// Workers that may be stuck at once; beyond it nothing outside is looked at.
const STUCK: usize = 8;
/// Users that are remembered.
const PEOPLE: usize = 4_096;

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on a thread of their own and waits for them at most [`DEADLINE`].
#[derive(Debug, Default)]
pub struct Outside {
    worker: Option<SyncSender<Job>>,
    stuck: Arc<AtomicUsize>,
    people: HashMap<u32, Option<Arc<HostUser>>>,
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

    /// Login name of a user, or the uid in digits.
    pub fn user(&mut self, uid: u32) -> Arc<str> {
        self.person(uid)
            .map_or_else(|| uid.to_string().into(), |user| user.name.as_str().into())
    }

    /// Home directory of a user; empty where unknown.
    pub fn home(&mut self, uid: u32) -> String {
        self.person(uid)
            .map(|user| user.home.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// A user with their groups. Remembered: name services may be slow.
    pub fn person(&mut self, uid: u32) -> Option<Arc<HostUser>> {
        if let Some(known) = self.people.get(&uid) {
            return known.clone();
        }
        // A name service that was too slow once may answer next time; that there is no such user is an answer.
        let found = self.ask(move || HostUser::by_uid(uid).ok())?.map(Arc::new);
        if self.people.len() < PEOPLE {
            self.people.insert(uid, found.clone());
        }
        found
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

/// Whether a process sees the same file systems as the daemon: only then do its paths mean the same here.
pub fn same_mounts(pid: u32) -> bool {
    let of = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/mnt")).ok();
    of("self").is_some_and(|own| of(&pid.to_string()) == Some(own))
}

/// Looks at files with the rights of the user whose process named them, and not at all where the process has other
/// mounts. Root's rights would let a user have files read that they may not read.
pub fn look_as<T>(user: Option<&HostUser>, pid: u32, job: impl FnOnce(&dyn Look) -> T) -> T {
    let limits = Limits {
        time: DEADLINE / 2,
        ..Limits::default()
    };
    let files = user
        .filter(|_| same_mounts(pid))
        .and_then(|user| UserFiles::open(user, limits).ok());
    match &files {
        Some(files) => job(&UserReader(files)),
        None => job(&Blind),
    }
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
}
