//! Execs, forks and exits: who is an agent, who may be a server.

use kams_host::netblock::Process;
use kams_host::{ExecReport, FdKind, FdShape, Marks, clock, procs};

use super::early::{self, Early};
use super::{Engine, outside, own};
use crate::config;
use crate::discover::agents::{AgentName, is_interpreter};
use crate::discover::candidate::{self, ExecShape, FarEnd};
use crate::discover::identity::{Blind, Launch, Resolved, identify};
use crate::discover::tracker::{ExeKey, Exec, Holder, ProcKey, ProgramKey, Seen};

/// Ancestors looked at for one that holds the agent's end.
const ANCESTORS: usize = 16;

/// How a possible server came to be known.
enum Joined {
    /// By its exec, with what its agent wrote before it was watched.
    AtExec(Option<Early>),
    /// It ran already.
    Running,
}

/// A process image as far as it matters here.
struct Image {
    exe: String,
    argv: Vec<String>,
    cwd: String,
}

impl Engine {
    pub(super) fn on_exec(&mut self, report: &ExecReport) {
        let proc = ProcKey {
            pid: report.pid,
            start: report.start_ns,
        };
        let parent = ProcKey {
            pid: report.ppid,
            start: report.parent_start_ns,
        };
        // Before anything else is looked up: an agent may write its first line at once.
        let shape = self.shape_of(report);
        let early = match candidate::judge(&shape) {
            Ok(candidate) => self.watch_early(report, candidate.holder, parent),
            Err(_) => None,
        };
        let image = Self::image_of(report);
        let agent = self.recognise(report.pid, report.uid, &image);
        match &agent {
            Some(name) => self.agent_started(proc, report.uid, name, report.time_ns),
            // The kernel side cleared the mark: the new image is another program.
            None => self.agent_ended(report.pid, report.time_ns),
        }
        let related = report.candidate || !report.marks_before.is_empty() || !report.parent_marks.is_empty();
        if !related {
            return;
        }
        if !report.marks.is_empty() {
            self.starts.insert(report.pid, report.start_ns);
        }
        self.consider(report, &image, shape, (proc, parent), Joined::AtExec(early));
    }

    /// Hands an exec, or a process that runs already, to the tracker.
    fn consider(
        &mut self,
        report: &ExecReport,
        image: &Image,
        shape: ExecShape,
        (proc, parent): (ProcKey, ProcKey),
        joined: Joined,
    ) {
        let judged = candidate::judge(&shape);
        let (adopted, early) = match joined {
            Joined::AtExec(early) => (false, early),
            Joined::Running => {
                if let Ok(candidate) = &judged {
                    // What lies there may begin in the middle of a line.
                    self.watch_early(report, candidate.holder, parent);
                }
                (true, None)
            }
        };
        let holder = judged.ok().and_then(|c| self.holder(c.holder, parent));
        let resolved = self.resolve(report.pid, report.uid, image);
        if report.held {
            self.filters.looked_at(proc, resolved.launcher.is_some());
        }
        let exec = Exec {
            time: report.time_ns,
            proc,
            parent,
            uid: report.uid,
            configured: self.configured.names(report.uid, &image.argv, &resolved.identity),
            resolved,
            stdio: candidate::stdio(&shape),
            shape: judged,
            holder,
            // Streams that the kernel side did not watch from the exec on may have begun without us.
            adopted: adopted || !report.watched,
        };
        let mut actions = Vec::new();
        let seen = self.tracker.exec(&exec, &mut actions);
        self.act(actions, report.time_ns);
        tracing::trace!(pid = report.pid, ?seen, "exec");
        match seen {
            Seen::Candidate(id) => {
                self.open_server(id, report, adopted, early);
                // What is held runs once it is decided on.
                if !report.held {
                    self.see_from_start(id, report);
                }
            }
            _ if judged.is_ok() => self.unwatch_early(report, judged.map_or(0, |c| c.holder)),
            _ => {}
        }
        if matches!(seen, Seen::Candidate(_) | Seen::SameChain(_)) {
            self.follow_network();
        }
    }

    /// Watches a candidate that the kernel side did not; gives what its agent wrote before.
    fn watch_early(&mut self, report: &ExecReport, holder: u32, parent: ProcKey) -> Option<Early> {
        if report.watched {
            return None;
        }
        // A child of who is no agent, where such are not looked at, brings nothing onto the host: else every program that
        // talks to its children would. Should its parent turn out to be known, `see_from_start` follows.
        let ignored = self.config.watch.unknown_agents == config::UnknownAgents::Ignore
            && !self.endpoints.contains_key(&holder);
        if !ignored {
            self.attach_payload();
        }
        if !self.endpoints.contains_key(&holder) {
            let start = if parent.pid == holder && parent.start != 0 {
                Some(parent.start)
            } else {
                self.start_of(holder)
            };
            if let Some(start) = start {
                self.mark(
                    ProcKey { pid: holder, start },
                    Marks::ENDPOINT.with(Marks::PROBATION),
                );
            }
        }
        if let Some(running) = &self.running
            && let Err(error) = running.control.watch_server(&report.fds, report.pid, holder)
        {
            tracing::error!(%error, pid = report.pid, "a server's streams cannot be watched");
        }
        let late_us = clock::boot_ns().saturating_sub(report.time_ns) / 1_000;
        tracing::debug!(
            pid = report.pid,
            late_us,
            "watching a candidate of an unwatched parent"
        );
        // After the watch has begun: what comes from now on is captured, and what came before lies there. Most programs
        // that are started like this are no servers: of what is no JSON only one byte is looked at.
        if ignored {
            return None;
        }
        let stdin = &report.fds[0];
        let peek = |most| procs::peek(report.pid, 0, stdin.kind, stdin.ino, most);
        let first = peek(1)?;
        let json = |byte: &u8| matches!(byte, b'{' | b'[') || byte.is_ascii_whitespace();
        if !first.first().is_some_and(json) {
            return None;
        }
        peek(early::MOST).and_then(Early::new)
    }

    fn unwatch_early(&mut self, report: &ExecReport, holder: u32) {
        let Some(running) = &self.running else { return };
        if !self.endpoints.contains_key(&holder) {
            running
                .control
                .unmark(holder, Marks::ENDPOINT.with(Marks::PROBATION));
        }
        if !report.watched
            && let Some((to_stdin, from_stdout)) = report.far_keys()
        {
            for key in [to_stdin, from_stdout]
                .into_iter()
                .filter(|key| !self.keys.contains_key(key))
            {
                running.control.unwatch(key, None);
            }
        }
    }

    pub(super) fn on_fork(&mut self, parent: u32, child: u32, start: u64) {
        self.starts.insert(child, start);
        let forked = Process {
            pid: child,
            start_ns: start,
        };
        self.network.lineage.fork(parent, forked);
        let Some(parent_start) = self.start_of(parent) else {
            return;
        };
        let mut actions = Vec::new();
        let parent = ProcKey {
            pid: parent,
            start: parent_start,
        };
        self.tracker
            .fork(parent, ProcKey { pid: child, start }, &mut actions);
        self.act(actions, clock::boot_ns());
    }

    pub(super) fn on_exit(&mut self, pid: u32, start: u64, time: u64) {
        self.starts.remove(&pid);
        self.network.lineage.exit(pid);
        let mut actions = Vec::new();
        self.tracker.exit(ProcKey { pid, start }, &mut actions);
        self.act(actions, time);
        self.agent_ended(pid, time);
        self.end_lingering_of(pid);
    }

    /// Enters what runs already: agents, the trees below them, and their servers.
    pub(super) fn adopt(&mut self) {
        let Some(running) = &self.running else { return };
        let control = running.control.clone();
        let now = clock::boot_ns();
        for pid in procs::pids() {
            if self.endpoints.contains_key(&pid) {
                continue;
            }
            let Some(facts) = procs::facts(pid) else { continue };
            let image = image(&facts);
            if let Some(name) = self.recognise(pid, facts.uid, &image) {
                let proc = ProcKey {
                    pid,
                    start: ticks(&facts.stat),
                };
                self.agent_started(proc, facts.uid, &name, now);
            }
        }
        self.mark_trees();
        let descriptors = match control.adopt() {
            Ok(descriptors) => descriptors,
            Err(error) => {
                tracing::warn!(%error, "running servers cannot be adopted; they are seen from their next start on");
                return;
            }
        };
        // Parents first, so that the processes of a launcher chain join the instance of the first one.
        let mut found: Vec<_> = descriptors
            .candidates()
            .into_iter()
            .filter_map(|(pid, agents)| Some((procs::facts(pid)?, agents)))
            .collect();
        found.sort_by_key(|(facts, _)| (facts.stat.start_ticks, facts.pid));
        for (facts, holders) in found {
            let agent = holders.iter().find(|pid| self.endpoints.contains_key(pid));
            let Some(&agent) = agent.or_else(|| holders.iter().find(|pid| **pid == facts.stat.ppid)) else {
                continue;
            };
            let fds = descriptors.stdio(facts.pid);
            let parent_fd0 = descriptors.stdio(facts.stat.ppid)[0].object;
            let proc = ProcKey {
                pid: facts.pid,
                start: ticks(&facts.stat),
            };
            if self.tracker.by_member(proc).is_some() {
                continue;
            }
            let parent_start = self.start_of(facts.stat.ppid).unwrap_or_default();
            let parent = ProcKey {
                pid: facts.stat.ppid,
                start: parent_start,
            };
            let held = |_: &FdShape| FarEnd::Held(agent);
            let mut shape = exec_shape(&fds, facts.stat.ppid, held);
            shape.parent_fd0 = parent_fd0.map_or(0, |o| o.0);
            let report = as_report(&facts, fds, now);
            let image = image(&facts);
            self.consider(&report, &image, shape, (proc, parent), Joined::Running);
        }
    }

    /// Marks everything below an agent: exec reports and exits of it matter.
    fn mark_trees(&mut self) {
        let mut parents: Vec<(u32, u32, u64)> = procs::pids()
            .into_iter()
            .filter_map(|pid| procs::stat(pid).map(|s| (pid, s.ppid, ticks(&s))))
            .collect();
        parents.sort_by_key(|(_, _, start)| *start);
        let mut tree: std::collections::HashSet<u32> = self.endpoints.keys().copied().collect();
        for (pid, parent, start) in parents {
            if tree.contains(&parent) && tree.insert(pid) {
                self.mark(ProcKey { pid, start }, Marks::TREE);
            }
        }
    }

    fn image_of(report: &ExecReport) -> Image {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let exe = procs::exe(report.pid)
            .map_or_else(|| text(&report.filename), |p| p.to_string_lossy().into_owned());
        let mut argv: Vec<String> = report.args().iter().map(|a| text(a)).collect();
        if report.argv_cut
            && let Some(whole) = procs::argv(report.pid)
        {
            argv = whole.iter().map(|a| text(a)).collect();
        }
        Image {
            exe,
            argv,
            cwd: String::new(),
        }
    }

    fn recognise(&mut self, pid: u32, uid: u32, image: &Image) -> Option<AgentName> {
        let exe = image.exe.strip_suffix(" (deleted)").unwrap_or(&image.exe);
        if let Some(name) = self.agents.recognise(exe, &image.argv, &image.cwd, &Blind) {
            return Some(name.clone());
        }
        if is_interpreter(exe) {
            // Only here may the script's links have to be followed.
            let (table, argv, exe) = (self.agents.clone(), image.argv.clone(), exe.to_owned());
            let user = self.outside.person(uid);
            let found = self.outside.ask(move || {
                let cwd = procs::cwd(pid).unwrap_or_default().to_string_lossy().into_owned();
                outside::look_as(user.as_deref(), pid, |look| {
                    table.recognise(&exe, &argv, &cwd, look).cloned()
                })
            });
            if let Some(Some(name)) = found {
                return Some(name);
            }
        }
        if !self.learned_paths.contains(exe) {
            return None;
        }
        let program = self.program(pid, uid, image)?;
        self.tracker.is_learned(&program).then(|| AgentName {
            name: program.name(),
            kind: crate::discover::agents::AgentKind::Learned,
        })
    }

    /// What a process runs, as a key under which it can be recognised again.
    fn program(&mut self, pid: u32, uid: u32, image: &Image) -> Option<ProgramKey> {
        let path = image.exe.clone();
        let exe = self.outside.ask(move || outside::exe_key(pid, path)).flatten()?;
        let script = is_interpreter(&image.exe).then(|| self.resolve(pid, uid, image).identity);
        Some(ProgramKey { exe, script })
    }

    fn resolve(&mut self, pid: u32, uid: u32, image: &Image) -> Resolved {
        let user = self.outside.person(uid);
        let home = self.outside.home(uid);
        let answer = self.outside.ask({
            let (exe, argv, cwd, home) = (
                image.exe.clone(),
                image.argv.clone(),
                image.cwd.clone(),
                home.clone(),
            );
            move || {
                let cwd = if cwd.is_empty() {
                    procs::cwd(pid).unwrap_or_default().to_string_lossy().into_owned()
                } else {
                    cwd
                };
                let launch = Launch {
                    exe: &exe,
                    argv: &argv,
                    cwd: &cwd,
                    home: &home,
                };
                outside::look_as(user.as_deref(), pid, |look| identify(&launch, look))
            }
        });
        answer.unwrap_or_else(|| {
            let Image { exe, argv, cwd } = image;
            identify(
                &Launch {
                    exe,
                    argv,
                    cwd,
                    home: &home,
                },
                &Blind,
            )
        })
    }

    fn holder(&mut self, pid: u32, parent: ProcKey) -> Option<Holder> {
        let start = if parent.pid == pid && parent.start != 0 {
            parent.start
        } else {
            self.start_of(pid)?
        };
        let proc = ProcKey { pid, start };
        let endpoint = self.endpoints.get(&pid).filter(|endpoint| endpoint.is(proc));
        let agent = endpoint
            .and_then(|e| e.agent.as_ref())
            .map(|known| known.name.clone());
        let program = procs::facts(pid).and_then(|facts| self.program(pid, facts.uid, &image(&facts)));
        let program = match (program, &agent) {
            (Some(program), None) if own::is_own(&program.exe) => return None,
            (Some(program), _) => program,
            // An agent that has ended since: what it ran no longer matters, nothing has to be learned.
            (None, Some(agent)) => ProgramKey {
                exe: ExeKey {
                    path: agent.name.clone(),
                    device: 0,
                    inode: 0,
                    mtime: 0,
                },
                script: None,
            },
            (None, None) => return None,
        };
        Some(Holder { proc, agent, program })
    }

    pub(super) fn start_of(&self, pid: u32) -> Option<u64> {
        let known = self
            .starts
            .get(&pid)
            .copied()
            .or_else(|| self.endpoints.get(&pid).map(|e| e.start));
        known.or_else(|| procs::stat(pid).map(|s| ticks(&s)))
    }

    /// The descriptors of an exec, with who holds their other ends.
    fn shape_of(&self, report: &ExecReport) -> ExecShape {
        let mut shape = exec_shape(&report.fds, report.ppid, |_| FarEnd::NotHeld);
        if report.stdin_inherited {
            shape.parent_fd0 = shape.fds[0].object;
        }
        if !report.candidate {
            return shape;
        }
        let held_by = |pid: u32, at: usize| procs::holds_far_end(pid, &report.fds[at]);
        // Read once: this stands between an unknown agent's first line and us.
        let of_parent = procs::fd_links(report.ppid);
        for at in [0, 1] {
            if procs::has_far_end(&of_parent, &report.fds[at]) {
                shape.fds[at].far_end = FarEnd::Held(report.ppid);
                continue;
            }
            if report.watched {
                // The parent is an agent, and what it held it may have closed since: a session can be over before
                // its exec is looked at.
                shape.fds[at].far_end = FarEnd::Unknown;
                continue;
            }
            let mut above = report.ppid;
            for _ in 0..ANCESTORS {
                let Some(stat) = procs::stat(above) else { break };
                above = stat.ppid;
                if above <= 1 {
                    break;
                }
                if self.endpoints.contains_key(&above) && held_by(above, at) {
                    shape.fds[at].far_end = FarEnd::Held(above);
                    break;
                }
            }
        }
        shape
    }
}

fn exec_shape(fds: &[FdShape; 3], parent: u32, far_end: impl Fn(&FdShape) -> FarEnd) -> ExecShape {
    let one = |fd: &FdShape| candidate::FdShape {
        kind: match fd.kind {
            FdKind::None => candidate::FdKind::Closed,
            FdKind::Pipe => candidate::FdKind::Pipe,
            FdKind::UnixStream => candidate::FdKind::UnixStream,
            FdKind::UnixOther | FdKind::SocketOther => candidate::FdKind::OtherSocket,
            FdKind::Chr => candidate::FdKind::Device,
            FdKind::Regular => candidate::FdKind::File,
            FdKind::Other => candidate::FdKind::Other,
        },
        object: fd.object.map_or(0, |o| o.0),
        peer: fd.peer.map_or(0, |o| o.0),
        far_end: far_end(fd),
    };
    ExecShape {
        fds: [one(&fds[0]), one(&fds[1]), one(&fds[2])],
        parent,
        parent_fd0: 0,
    }
}

fn image(facts: &procs::ProcessFacts) -> Image {
    let path = |p: &Option<std::path::PathBuf>| {
        p.as_ref()
            .map(|p| p.to_string_lossy().into_owned())
            .unwrap_or_default()
    };
    Image {
        exe: path(&facts.exe),
        argv: facts
            .argv
            .iter()
            .map(|a| String::from_utf8_lossy(a).into_owned())
            .collect(),
        cwd: path(&facts.cwd),
    }
}

/// Start in nanoseconds since boot, as exactly as procfs tells.
fn ticks(stat: &procs::Stat) -> u64 {
    stat.start_ticks.saturating_mul(clock::NS_PER_TICK)
}

/// A process that runs already, in the form of the report that its exec would have given.
fn as_report(facts: &procs::ProcessFacts, fds: [FdShape; 3], now: u64) -> ExecReport {
    ExecReport {
        pid: facts.pid,
        ppid: facts.stat.ppid,
        uid: facts.uid,
        gid: facts.gid,
        time_ns: now,
        start_ns: ticks(&facts.stat),
        parent_start_ns: 0,
        cgroup_id: 0,
        marks: Marks::NONE,
        marks_before: Marks::NONE,
        parent_marks: Marks::NONE,
        comm: bytes::Bytes::new(),
        filename: bytes::Bytes::new(),
        filename_cut: false,
        argv: bytes::Bytes::new(),
        argv_cut: false,
        fds,
        candidate: true,
        stdin_inherited: false,
        watched: false,
        watch_failed: false,
        held: false,
        hold_failed: false,
    }
}
