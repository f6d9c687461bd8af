//! What outlives an instance: programs that turned out to be agents, or not, and servers seen before.
//!
//! Everything is bounded and forgets the least recently used entry first.

use std::num::NonZeroUsize;

use lru::LruCache;

use super::instance::Nanos;
use crate::discover::identity::ServerIdentity;

/// An executable file as it is now: replaced or rebuilt, it is another one.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ExeKey {
    /// Real path.
    pub path: String,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Modification time, nanoseconds since the epoch.
    pub mtime: i64,
}

/// A program: an executable, and for interpreters what it runs.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ProgramKey {
    /// The executable.
    pub exe: ExeKey,
    /// For an interpreter the identity of its script; else none.
    pub script: Option<ServerIdentity>,
}

impl ProgramKey {
    /// What an agent that runs it is called: its script's identity, or its executable's name.
    pub fn name(&self) -> String {
        match &self.script {
            Some(script) => script.to_string(),
            None => self.exe.path.rsplit('/').next().unwrap_or_default().to_owned(),
        }
    }
}

impl ProgramKey {
    /// Whether the key stands for one program: `python` with no script, or with inline code, does not, and learning
    /// it would mark every such process of the host.
    pub fn is_learnable(&self) -> bool {
        match &self.script {
            Some(script) => script.is_specific(),
            None => !super::super::agents::is_interpreter(&self.exe.path) && !is_shell(&self.exe.path),
        }
    }
}

fn is_shell(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(
        name,
        "sh" | "bash" | "dash" | "zsh" | "fish" | "ksh" | "ash" | "busybox" | "env" | "sudo" | "su"
    )
}

#[derive(Clone, Copy, Debug)]
struct Doubt {
    rejections: u32,
    last: Nanos,
}

/// The three memories.
#[derive(Debug)]
pub(super) struct Memory {
    learned: LruCache<ProgramKey, ()>,
    doubts: LruCache<ProgramKey, Doubt>,
    fingerprints: LruCache<(u32, ServerIdentity), ()>,
}

impl Memory {
    pub(super) fn new(learned: usize, doubts: usize, fingerprints: usize) -> Self {
        let size = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        Self {
            learned: LruCache::new(size(learned)),
            doubts: LruCache::new(size(doubts)),
            fingerprints: LruCache::new(size(fingerprints)),
        }
    }

    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.learned.len(), self.doubts.len(), self.fingerprints.len()]
    }

    /// Remembers an agent. Returns whether it is news.
    pub(super) fn learn(&mut self, program: &ProgramKey) -> bool {
        self.doubts.pop(program);
        program.is_learnable() && self.learned.put(program.clone(), ()).is_none()
    }

    pub(super) fn is_learned(&self, program: &ProgramKey) -> bool {
        self.learned.contains(program)
    }

    /// Uses the entry, so that it is not the next to be forgotten.
    pub(super) fn recall_agent(&mut self, program: &ProgramKey) -> bool {
        self.learned.get(program).is_some()
    }

    /// A candidate of this program was no server.
    pub(super) fn doubt(&mut self, program: &ProgramKey, time: Nanos) {
        if !program.is_learnable() {
            return;
        }
        let doubt = self.doubts.get_or_insert_mut(program.clone(), || Doubt {
            rejections: 0,
            last: time,
        });
        doubt.rejections = doubt.rejections.saturating_add(1);
        doubt.last = time;
    }

    /// Whether the program was wrongly suspected so often that it is left alone for now.
    pub(super) fn is_doubted(
        &mut self,
        program: &ProgramKey,
        time: Nanos,
        limit: u32,
        forget_after: Nanos,
    ) -> bool {
        let Some(doubt) = self.doubts.get(program) else {
            return false;
        };
        if time.saturating_sub(doubt.last) > forget_after {
            self.doubts.pop(program);
            return false;
        }
        doubt.rejections >= limit
    }

    /// Remembers a server. Returns whether it is news.
    pub(super) fn remember_server(&mut self, uid: u32, identity: &ServerIdentity) -> bool {
        identity.is_specific() && self.fingerprints.put((uid, identity.clone()), ()).is_none()
    }

    pub(super) fn knows_server(&mut self, uid: u32, identity: &ServerIdentity) -> bool {
        self.fingerprints.get(&(uid, identity.clone())).is_some()
    }
}
