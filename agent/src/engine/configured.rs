//! What users' clients are configured to start, read beside the engine.
//!
//! A reading takes as long as a user's files take, so each runs on a thread of its own and comes back as a message.
//! Until the first one is there, nothing counts as configured: the servers are still found by their shape.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::thread;

use kams_host::userfile::{HostUser, Limits, UserFiles};
use tokio::sync::mpsc;

use crate::clients::{self, ENVIRONMENT, Places, ServerList, UserReader};
use crate::discover::identity::ServerIdentity;

/// Users whose configuration is kept, and project folders of one user that are looked at.
const USERS: usize = 1_024;
const PROJECTS: usize = 64;
/// Readings under way at once.
const READINGS: usize = 4;

/// One reading.
#[derive(Debug)]
pub struct Reading {
    uid: u32,
    list: ServerList,
    problems: Vec<clients::Problem>,
}

impl Reading {
    /// Whose configuration it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }
}

/// The configurations of all users with agents.
#[derive(Debug)]
pub struct Configured {
    users: HashMap<u32, User>,
    results: mpsc::UnboundedSender<Reading>,
    under_way: usize,
}

#[derive(Debug, Default)]
struct User {
    projects: BTreeSet<String>,
    environment: BTreeMap<String, String>,
    list: ServerList,
    reading: bool,
    again: bool,
    told: Vec<clients::Problem>,
}

impl Configured {
    /// An empty table, and where its readings will come in.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Reading>) {
        let (results, readings) = mpsc::unbounded_channel();
        (
            Self {
                users: HashMap::new(),
                results,
                under_way: 0,
            },
            readings,
        )
    }

    /// An agent of this user started: read what it reads.
    pub fn agent_started(&mut self, person: Option<Arc<HostUser>>, pid: u32) {
        let Some(person) = person else { return };
        if self.users.len() >= USERS && !self.users.contains_key(&person.uid) {
            return;
        }
        let user = self.users.entry(person.uid).or_default();
        if let Some(cwd) = kams_host::procs::cwd(pid).and_then(|dir| dir.into_os_string().into_string().ok())
            && user.projects.len() < PROJECTS
        {
            user.projects.insert(cwd);
        }
        user.environment.extend(environment(pid));
        if user.reading || self.under_way >= READINGS {
            user.again = true;
            return;
        }
        self.read(&person);
    }

    /// Takes a finished reading; starts the next one where an agent started meanwhile.
    pub fn take(&mut self, reading: Reading, person: Option<Arc<HostUser>>) {
        self.under_way = self.under_way.saturating_sub(1);
        let Some(user) = self.users.get_mut(&reading.uid) else {
            return;
        };
        user.reading = false;
        for problem in reading
            .problems
            .iter()
            .filter(|problem| !user.told.contains(problem))
        {
            tracing::warn!(uid = reading.uid, client = problem.client, "{problem}");
        }
        user.told = reading.problems;
        user.list = reading.list;
        if std::mem::take(&mut user.again)
            && let Some(person) = person
        {
            self.read(&person);
        }
    }

    /// Whether a configuration of this user names what is being started.
    pub fn names(&self, uid: u32, argv: &[String], identity: &ServerIdentity) -> bool {
        self.users
            .get(&uid)
            .is_some_and(|user| user.list.known_at_exec(argv, identity).is_some())
    }

    /// Remote servers that are configured and enabled, by user: known, and not watched.
    pub fn remote(&self) -> impl Iterator<Item = (u32, &clients::ConfiguredServer)> {
        self.users.iter().flat_map(|(uid, user)| {
            user.list
                .servers()
                .iter()
                .filter(|s| s.url.is_some() && s.enabled)
                .map(move |s| (*uid, s))
        })
    }

    fn read(&mut self, person: &Arc<HostUser>) {
        let Some(user) = self.users.get_mut(&person.uid) else {
            return;
        };
        let places = Places {
            home: person.home.to_string_lossy().into_owned(),
            projects: user.projects.iter().cloned().collect(),
            environment: user.environment.clone(),
        };
        let (person, results) = (Arc::clone(person), self.results.clone());
        let uid = person.uid;
        let work = move || {
            let found = match UserFiles::open(&person, Limits::default()) {
                Ok(files) => clients::read(&places, &UserReader(&files)),
                Err(error) => {
                    tracing::warn!(uid, %error, "client configurations of this user cannot be read");
                    clients::Configuration::default()
                }
            };
            let reading = Reading {
                uid,
                list: ServerList::new(&found),
                problems: found.problems,
            };
            // The engine has ended: nobody wants it any more.
            drop(results.send(reading));
        };
        if thread::Builder::new()
            .name("client-files".to_owned())
            .spawn(work)
            .is_ok()
        {
            user.reading = true;
            self.under_way += 1;
        }
    }
}

/// The variables of a process that move configuration files; nothing else of its environment is looked at.
fn environment(pid: u32) -> BTreeMap<String, String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(format!("/proc/{pid}/environ"));
    if opened
        .and_then(|file| file.take(256 << 10).read_to_end(&mut bytes))
        .is_err()
    {
        return BTreeMap::new();
    }
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='))
        .filter(|(name, _)| ENVIRONMENT.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
