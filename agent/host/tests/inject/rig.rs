//! One sensor and one injector for the tests of this process, which is the agent. Every server that it starts is held;
//! its first argument (`argv[0]`) can say that something else than an injection is to follow.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use kams_host::filter::{Filter, Network};
use kams_host::inject::{Confine, Confined, Ends, Injector, InjectorOptions, Outcome, Refusal, Target};
use kams_host::{ExecReport, Marks, Sensor, SensorControl, SensorEvent, SensorOptions};

use crate::relay::{Passed, Relay};

/// Nothing takes longer, however busy the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// As `argv[0]`: the process is let go without an injection.
pub(crate) const RELEASE: &str = "test-release";
/// As `argv[0]`: the same, and the process is an agent from its first instruction on.
pub(crate) const AGENT: &str = "test-agent";
/// As `argv[0]`: nobody answers.
pub(crate) const IGNORE: &str = "test-ignore";
/// As `argv[0]`: the request names the process itself as the parent, so that it has its parent's standard input.
pub(crate) const OWN_PARENT: &str = "test-own-parent";

/// `argv[0]` of what another sensor starts to prove its programs: let go as well.
const SELF_TEST: &str = "kams-selftest";

/// Among the arguments: the process gets a filter that refuses.
pub(crate) const DENY: &str = "test-filter-deny";
/// Among the arguments: the process gets a filter that asks.
pub(crate) const ASK: &str = "test-filter-ask";
/// Among the arguments: the process launches the server; what it runs is held, too.
pub(crate) const FOLLOW: &str = "test-follow";

/// Whether the tests can run here; a skipped test is a failure where the environment says so.
pub(crate) fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return true;
    }
    let required = ["CI", "KAMS_REQUIRE_ROOT"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    assert!(
        !required,
        "this test needs root, and CI or KAMS_REQUIRE_ROOT forbids skipping it"
    );
    println!("skipped: needs root");
    false
}

/// Whether a program is on the path; that a test is skipped without it is said.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !there {
        println!("skipped: no {program}");
    }
    there
}

/// What became of a process, and when that was told; in words for one that ought to have been held and was not.
type Told = (Instant, Result<Outcome, String>);

/// By process.
#[derive(Default)]
struct Seen {
    outcomes: Mutex<HashMap<u32, Told>>,
    news: Condvar,
}

impl Seen {
    fn tell(&self, pid: u32, what: Result<Outcome, String>) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.insert(pid, (Instant::now(), what));
        self.news.notify_all();
    }
}

pub(crate) struct Rig {
    pub(crate) control: SensorControl,
    pub(crate) injector: Arc<Injector>,
    seen: Arc<Seen>,
    _sensor: Sensor,
}

/// The rig of all tests that need no other limits; this process is its agent. `None` when not root.
pub(crate) fn rig() -> Option<&'static Rig> {
    static RIG: OnceLock<Option<Rig>> = OnceLock::new();
    let start = || {
        let rig = Rig::start(InjectorOptions::default());
        arm(&rig.control, std::process::id());
        rig
    };
    RIG.get_or_init(|| is_root().then(start)).as_ref()
}

/// Makes a process an agent whose servers are held.
pub(crate) fn arm(control: &SensorControl, pid: u32) {
    let marks = Marks::TREE.with(Marks::ENDPOINT).with(Marks::ARMED);
    assert!(control.mark(pid, None, marks).expect("marked"), "it lives");
}

fn answer(control: &SensorControl, injector: &Injector, report: &ExecReport) {
    let first = report.args().into_iter().next().unwrap_or_default();
    let parent = if first == OWN_PARENT {
        report.pid
    } else {
        report.ppid
    };
    if first == AGENT {
        arm(control, report.pid);
    }
    let says = |word: &str| report.args().iter().any(|argument| argument == word);
    let confine = [(DENY, Network::Refused), (ASK, Network::Asked)]
        .into_iter()
        .find(|(word, _)| says(word))
        .map(|(_, network)| Confine {
            filter: Filter::new(network).expect("made"),
            required: true,
        });
    let before = report.marks_before;
    let followed = before.contains(Marks::ARMED) && !before.contains(Marks::ENDPOINT);
    if [RELEASE, AGENT, SELF_TEST].into_iter().any(|word| first == word) || (followed && confine.is_none()) {
        injector.release(report.pid, report.start_ns);
    } else if first != IGNORE {
        injector.inject(Target {
            relay: !followed,
            confine,
            follow: says(FOLLOW),
            ..target(report, parent)
        });
    }
}

pub(crate) fn target(report: &ExecReport, parent: u32) -> Target {
    Target {
        pid: report.pid,
        start_ns: report.start_ns,
        parent,
        far_ino: [report.fds[0].far_ino(), report.fds[1].far_ino()],
        relay: true,
        confine: None,
        follow: false,
    }
}

fn pid_of(outcome: &Outcome) -> u32 {
    match outcome {
        Outcome::Injected(ends) => ends.pid,
        Outcome::Confined { pid, .. } | Outcome::Refused { pid, .. } | Outcome::Died { pid, .. } => *pid,
    }
}

impl Rig {
    /// A sensor and an injector with these limits, and no agent yet.
    pub(crate) fn start(options: InjectorOptions) -> Self {
        let (sensor, mut events) = Sensor::start(SensorOptions::default()).expect("the sensor starts");
        let control = sensor.control();
        let seen = Arc::new(Seen::default());
        let of_injector = Arc::clone(&seen);
        let injector = Injector::start(&control, options, move |outcome| {
            of_injector.tell(pid_of(&outcome), Ok(outcome));
        })
        .expect("the injector starts");
        let injector = Arc::new(injector);
        let (of_events, answering) = (Arc::clone(&seen), (control.clone(), Arc::clone(&injector)));
        std::thread::spawn(move || {
            let (control, injector) = answering;
            while let Some(event) = events.blocking_recv() {
                let SensorEvent::Exec(report) = event else {
                    continue;
                };
                // No panic here: nobody would answer for what later tests start.
                if report.hold_failed {
                    of_events.tell(report.pid, Err(format!("not held: {report:?}")));
                } else if report.held {
                    answer(&control, &injector, &report);
                }
            }
        });
        Self {
            control,
            injector,
            seen,
            _sensor: sensor,
        }
    }

    /// What became of a process, and when that was told; `None` if that takes too long.
    pub(crate) fn try_outcome_at(&self, pid: u32) -> Option<(Instant, Outcome)> {
        let outcomes = self.seen.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut outcomes, _timeout) = self
            .seen
            .news
            .wait_timeout_while(outcomes, PATIENCE, |outcomes| !outcomes.contains_key(&pid))
            .unwrap_or_else(PoisonError::into_inner);
        let (at, what) = outcomes.remove(&pid)?;
        drop(outcomes);
        Some((at, what.unwrap_or_else(|words| panic!("{words}"))))
    }

    /// Whether anything is known already of what became of a process.
    pub(crate) fn knows(&self, pid: u32) -> bool {
        let outcomes = self.seen.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.contains_key(&pid)
    }

    /// The same; fails in place of `None`.
    pub(crate) fn outcome_at(&self, pid: u32) -> (Instant, Outcome) {
        self.try_outcome_at(pid)
            .unwrap_or_else(|| panic!("no outcome for {pid}; {:?}", kams_host::procs::stat(pid)))
    }

    pub(crate) fn outcome(&self, pid: u32) -> Outcome {
        self.outcome_at(pid).1
    }

    /// The ends of a process that must have been injected.
    pub(crate) fn ends(&self, pid: u32) -> Ends {
        match self.outcome(pid) {
            Outcome::Injected(ends) => *ends,
            other => panic!("not injected: {other:?}"),
        }
    }

    /// What became of the filter of a process without a relay of its own.
    pub(crate) fn confined(&self, pid: u32) -> Confined {
        match self.outcome(pid) {
            Outcome::Confined { confined, .. } => confined,
            other => panic!("not confined: {other:?}"),
        }
    }

    pub(crate) fn refusal(&self, pid: u32) -> Refusal {
        match self.outcome(pid) {
            Outcome::Refused { reason, .. } => reason,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Puts a copying relay before a server, sends it `input`, and returns what it answered until its end.
    pub(crate) fn converse(&self, child: Child, input: &[u8]) -> Conversation {
        let relay = Relay::start(self.ends(child.id()));
        let (answer, status) = exchange(child, input);
        Conversation {
            answer,
            status,
            passed: relay.join(),
        }
    }
}

/// What the agent saw, and what the relay did.
pub(crate) struct Conversation {
    pub(crate) answer: Vec<u8>,
    pub(crate) status: ExitStatus,
    pub(crate) passed: Passed,
}

/// Sends `input`, closes, and reads to the end.
pub(crate) fn exchange(mut child: Child, input: &[u8]) -> (Vec<u8>, ExitStatus) {
    use std::io::{Read, Write};
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A server that reads nothing closes early; what it answers is what counts.
        let _closed_early = stdin.write_all(&input);
    });
    let mut answer = Vec::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_end(&mut answer)
        .expect("readable");
    writer.join().expect("no panic");
    let status = ended(child);
    (answer, status)
}

/// Has a child make system calls between its fork and its exec: `calls` allocates nothing, and is true when all went
/// well.
pub(crate) fn before_exec(command: &mut Command, calls: fn() -> bool) {
    let run = move || {
        if calls() {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: by the promise about `calls`.
    unsafe { command.pre_exec(run) };
}

/// Waits for the end of a child, with a limit: a process that stays stopped is what these tests look for.
pub(crate) fn ended(mut child: Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("own child") {
            return status;
        }
        if Instant::now() >= deadline {
            let state = kams_host::procs::stat(child.id());
            child.kill().expect("own child");
            panic!("did not end: {state:?}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
