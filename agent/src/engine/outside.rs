//! Looking at files of users from the engine, without ever waiting for them.
//!
//! A user decides what a path under their control does: a file system in user space can hold a `stat` for ever. So
//! whatever touches a path that a process named runs on a worker thread with a deadline; a worker that does not
//! come back is left to its fate and replaced, a few times.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use kams_host::userfile::{HostUser, Limits, UserFileError, UserFiles};

use crate::clients::UserReader;
use crate::discover::identity::{Blind, Look};
use crate::discover::tracker::ExeKey;

/// How long the engine waits for an answer.
const DEADLINE: Duration = Duration::from_millis(100);
/// Workers that may be stuck at once; beyond it nothing outside is looked at.
const STUCK: usize = 8;
/// Users that are remembered.
const REMEMBERED: usize = 4_096;
/// Users by id; none: there is no such user. One memory for the whole process, and a name service that answers too late
/// for the one who asked has answered for the next.
static PEOPLE: Mutex<BTreeMap<u32, Option<Arc<HostUser>>>> = Mutex::new(BTreeMap::new());

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on a thread of their own and waits for them at most [`DEADLINE`].
#[derive(Debug, Default)]
pub struct Outside {
    worker: Option<SyncSender<Job>>,
    stuck: Arc<AtomicUsize>,
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

    /// Login name of a user, or the uid in digits. Policy goes by this name, so for users of this host it never
    /// depends on how soon somebody answers.
    pub fn user(&mut self, uid: u32) -> Arc<str> {
        if let Some(known) = remembered(uid) {
            return known.map_or_else(|| uid.to_string().into(), |user| user.name.as_str().into());
        }
        let local = std::fs::read_to_string(PASSWD)
            .ok()
            .and_then(|table| local_name(&table, uid).map(Arc::from));
        local
            .or_else(|| self.person(uid).map(|user| user.name.as_str().into()))
            .unwrap_or_else(|| uid.to_string().into())
    }

    /// Home directory of a user; empty where unknown.
    pub fn home(&mut self, uid: u32) -> String {
        self.person(uid)
            .map(|user| user.home.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// A user with their groups. Remembered: name services may be slow.
    pub fn person(&mut self, uid: u32) -> Option<Arc<HostUser>> {
        match remembered(uid) {
            Some(known) => known,
            None => self.ask(move || look_up(uid))?,
        }
    }
}

/// The user database of this host; root's own file.
const PASSWD: &str = "/etc/passwd";

/// The name of a user in a table like [`PASSWD`]. Entries that take in other databases (`+`) are none.
fn local_name(table: &str, uid: u32) -> Option<&str> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields
            .next()
            .filter(|name| !name.is_empty() && !name.starts_with(['+', '-', '#']))?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

/// A user, or that there is none.
type Person = Option<Arc<HostUser>>;

fn remembered(uid: u32) -> Option<Person> {
    PEOPLE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&uid)
        .cloned()
}

/// Asks the name service and remembers its answer. That there is no such user is an answer; an error is none.
fn look_up(uid: u32) -> Option<Arc<HostUser>> {
    let found = match HostUser::by_uid(uid) {
        Ok(user) => Some(Arc::new(user)),
        Err(UserFileError::NoUser(_) | UserFileError::BadUser(..)) => None,
        Err(_) => return None,
    };
    let mut people = PEOPLE.lock().unwrap_or_else(PoisonError::into_inner);
    if people.len() < REMEMBERED || people.contains_key(&uid) {
        people.insert(uid, found.clone());
    }
    found
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
    fn a_users_name_does_not_wait_for_a_name_service() {
        // No worker may be asked.
        let mut outside = Outside::default();
        outside.stuck.store(STUCK, Ordering::Relaxed);
        assert_eq!(&*outside.user(0), "root");
        assert_eq!(&*outside.user(u32::MAX - 9), (u32::MAX - 9).to_string());
        // What no table knows is asked again later; what was said is kept, and shared.
        assert_eq!(remembered(u32::MAX - 9), None);
        let mut other = Outside::default();
        assert!(other.person(u32::MAX - 9).is_none());
        assert_eq!(remembered(u32::MAX - 9), Some(None));
        assert_eq!(&*outside.user(u32::MAX - 9), (u32::MAX - 9).to_string());
    }

    #[test]
    fn names_in_a_table() {
        let table = "root:x:0:0:root:/root:/bin/sh\n# ci:x:7:7::/:\n+::::::\n+@all:x:7:7::/:\nshort:x\n:x:7:7::/:\nci:x:7:7::/home/ci:/bin/sh\nsecond:x:7:8::/:\nbad:x:seven:8::/:\n";
        assert_eq!(local_name(table, 0), Some("root"));
        assert_eq!(local_name(table, 7), Some("ci"));
        assert_eq!(local_name(table, 8), None);
        assert_eq!(local_name("", 0), None);
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
