//! One target on its way: from the seizure to the moment it runs again.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::arch::Registers;
use super::calls::{Calls, Next};
use super::confine::Filtering;
use super::descriptors::{self, Plan};
use super::ptrace::{self, Stop};
use super::{Confine, Confined, Ends, Kind, Outcome, Refusal, Target, image, limit, status};
use crate::event::Marks;
use crate::hold::{pidfd_open, pidfd_signal};
use crate::marks::MarkTable;
use crate::stops::Waiting;
use crate::{procs, stops};

/// Bytes below the stack pointer that calls may write to: further than any red zone, on the page or the next, which the
/// kernel has mapped for a new program.
const SCRATCH: u64 = 512;

/// A seized process.
#[derive(Debug)]
pub(super) struct Tracee {
    pub(super) target: Target,
    pid: i32,
    pidfd: OwnedFd,
    deadline: Instant,
    patience: Duration,
    phase: Phase,
    suspended_seccomp: bool,
    /// Signals that others sent meanwhile; the target gets them when it runs.
    signals: Vec<i32>,
    /// Our own stop signal was seen and withheld.
    stop_seen: bool,
    marks: Arc<MarkTable>,
}

enum Phase {
    /// Seized, and not seen stopped yet.
    Seized,
    /// Making calls.
    Calling(Box<Calling>),
    /// Given up while it did not stop; it is let go as soon as it does.
    GivenUp,
}

impl std::fmt::Debug for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Seized => "Seized",
            Self::Calling(_) => "Calling",
            Self::GivenUp => "GivenUp",
        })
    }
}

struct Calling {
    /// For a relay.
    calls: Option<Calls>,
    /// A filter that is still to come, after the relay.
    confine: Option<Confine>,
    filtering: Option<Filtering>,
    /// The filter could not even be begun.
    unfiltered: Option<i32>,
    registers: Registers,
    syscall: u64,
    scratch: u64,
    scratch_was: u64,
    limit: Option<libc::rlimit>,
}

/// What is to happen to a target after one of its stops.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// What is to be told.
    pub(super) outcome: Option<Outcome>,
    /// It is traced no more. Else its next stop, or its end, is still to come.
    pub(super) gone: bool,
}

impl Tracee {
    /// Seizes a held process. On an error it is traced by nobody of us, and has been continued.
    pub(super) fn seize(target: Target, patience: Duration, marks: &Arc<MarkTable>) -> Result<Self, Outcome> {
        let (Ok(pid), Ok(pidfd)) = (i32::try_from(target.pid), pidfd_open(target.pid)) else {
            return Err(died(&target));
        };
        if !procs::is_alive(target.pid, Some(target.start_ns)) {
            return Err(died(&target));
        }
        let seized = match ptrace::seize(pid, ptrace::SUSPEND_SECCOMP) {
            Ok(()) => Ok(true),
            // The option may be missing or forbidden by itself; a traced or protected target fails without it too.
            Err(_) => ptrace::seize(pid, 0).map(|()| false),
        };
        let suspended_seccomp = match seized {
            Ok(suspended) => suspended,
            Err(error) => {
                let _ended_already = stops::continued(target.pid, &pidfd);
                return Err(match error.raw_os_error() {
                    Some(libc::ESRCH) => died(&target),
                    // What the kernel answers for one that has ended and was not waited for.
                    Some(libc::EPERM) if !procs::is_alive(target.pid, None) => died(&target),
                    _ => refused(&target, why_not(target.pid, &error)),
                });
            }
        };
        Ok(Self {
            target,
            pid,
            pidfd,
            deadline: Instant::now() + patience,
            patience,
            phase: Phase::Seized,
            suspended_seccomp,
            signals: Vec::new(),
            stop_seen: false,
            marks: Arc::clone(marks),
        })
    }

    /// Takes a stop that `waitpid` reported.
    pub(super) fn stopped(&mut self, stop: Stop) -> Step {
        if stop == Stop::Ended {
            return Step {
                outcome: (!self.is_given_up()).then(|| died(&self.target)),
                gone: true,
            };
        }
        let result = match self.phase {
            Phase::GivenUp => {
                self.keep_signal(stop);
                return Step {
                    outcome: None,
                    gone: self.let_go(),
                };
            }
            Phase::Seized => {
                if let Stop::Group(_) = stop {
                    // At once: were we to die from here on, the kernel would let the target run.
                    self.stop_seen = true;
                    self.go_on(&Waiting::of(self.target.pid).signals(true));
                } else {
                    self.keep_signal(stop);
                }
                self.begin()
            }
            Phase::Calling(_) => self.called(stop),
        };
        match result {
            Ok(step) => step,
            Err(reason) => self.refuse(reason),
        }
    }

    /// Looks at the stopped target, and starts the first call.
    fn begin(&mut self) -> Result<Step, Refusal> {
        let registers = Registers::of(self.pid).map_err(failed)?;
        if !registers.is_native() {
            return Err(Refusal::Foreign);
        }
        let Some(found) = image::of(self.pid).map_err(failed)? else {
            return Err(Refusal::Foreign);
        };
        if !registers.is_at(found.entry) {
            return Err(Refusal::Moved);
        }
        if !self.suspended_seccomp && is_filtered(self.target.pid) {
            return Err(Refusal::Seccomp);
        }
        let scratch = (registers.stack() - SCRATCH) & !7;
        let scratch_was = ptrace::peek(self.pid, scratch).map_err(failed)?;
        let (calls, limit) = if self.target.relay {
            let Target {
                pid, parent, far_ino, ..
            } = self.target;
            let plan = descriptors::plan(pid, parent, &self.pidfd, far_ino)?;
            let limit = limit::raise(self.pid, &plan)?;
            (Some(Calls::new(plan)), limit)
        } else {
            (None, None)
        };
        self.deadline = Instant::now() + self.patience;
        let relay = calls.is_some();
        self.phase = Phase::Calling(Box::new(Calling {
            calls,
            confine: self.target.confine.take(),
            filtering: None,
            unfiltered: None,
            registers,
            syscall: found.syscall,
            scratch,
            scratch_was,
            limit,
        }));
        // From here on its registers are not its own: it must not run on without us.
        self.options(ptrace::EXITKILL).map_err(failed)?;
        if relay { self.call() } else { self.filter() }
    }

    fn options(&self, more: u64) -> io::Result<()> {
        let suspend = if self.suspended_seccomp {
            ptrace::SUSPEND_SECCOMP
        } else {
            0
        };
        ptrace::set_options(self.pid, suspend | more)
    }

    /// The next call; of the filter, once one is begun.
    fn call(&mut self) -> Result<Step, Refusal> {
        let Phase::Calling(calling) = &mut self.phase else {
            return Ok(Step::default());
        };
        let call = match (&calling.filtering, &mut calling.calls) {
            (Some(filtering), _) => filtering.current(),
            (None, Some(calls)) => calls.current(calling.scratch),
            (None, None) => None,
        };
        let Some((number, arguments)) = call else {
            return Err(Refusal::Failed(libc::EPROTO));
        };
        let next = calling.registers.calling(calling.syscall, number, arguments);
        next.set(self.pid).map_err(failed)?;
        self.resume()
    }

    /// Begins with the filter, where there is to be one; the relay's part is done.
    fn filter(&mut self) -> Result<Step, Refusal> {
        let Phase::Calling(calling) = &mut self.phase else {
            return Ok(Step::default());
        };
        let Some(confine) = calling.confine.take() else {
            return self.done();
        };
        let required = confine.required;
        match Filtering::prepare(self.pid, confine, calling.scratch) {
            Ok(filtering) => {
                calling.filtering = Some(filtering);
                self.call()
            }
            Err(error) if required => {
                tracing::error!(pid = self.pid, %error, "a server's filter cannot be written");
                Err(Refusal::Unfiltered)
            }
            Err(error) => {
                calling.unfiltered = Some(error.raw_os_error().unwrap_or(libc::EIO));
                self.done()
            }
        }
    }

    fn resume(&self) -> Result<Step, Refusal> {
        ptrace::step(self.pid).map_err(failed)?;
        Ok(Step::default())
    }

    /// A stop while a call is made: its end, or a signal before it.
    fn called(&mut self, stop: Stop) -> Result<Step, Refusal> {
        let Phase::Calling(calling) = &mut self.phase else {
            return Ok(Step::default());
        };
        let result = if stop == Stop::Signal(libc::SIGTRAP) {
            Registers::of(self.pid).map_err(failed)?.returned(calling.syscall)
        } else {
            None
        };
        let Some(result) = result else {
            // Pending signals come before the step; the step is still to do.
            self.keep_signal(stop);
            return self.resume();
        };
        let (pid, scratch) = (self.pid, calling.scratch);
        let made = || {
            let word = ptrace::peek(pid, scratch)?.to_le_bytes();
            let half = |at: usize| [word[at], word[at + 1], word[at + 2], word[at + 3]];
            Ok([u32::from_le_bytes(half(0)), u32::from_le_bytes(half(4))])
        };
        if let Some(filtering) = &mut calling.filtering {
            return if filtering.finish(result, &self.pidfd) {
                self.call()
            } else if filtering.must_not_run() {
                Err(Refusal::Unfiltered)
            } else {
                self.done()
            };
        }
        let Some(calls) = &mut calling.calls else {
            return Err(Refusal::Failed(libc::EPROTO));
        };
        match calls.finish(result, &self.pidfd, made) {
            Next::Call => self.call(),
            Next::Done => self.filter(),
            Next::Undone(error) => Err(Refusal::Failed(error)),
            Next::Broken(error) => {
                tracing::error!(pid, error, "a server's streams could be replaced only in part");
                Err(Refusal::Killed)
            }
        }
    }

    /// Everything is in place: lets the target run, and collects the ends.
    #[expect(clippy::unnecessary_wraps, reason = "the last of steps that can fail")]
    fn done(&mut self) -> Result<Step, Refusal> {
        let Phase::Calling(calling) = std::mem::replace(&mut self.phase, Phase::GivenUp) else {
            return Ok(Step::default());
        };
        let exe = procs::exe(self.target.pid).unwrap_or_default();
        if let Err(error) = self.restore(&calling) {
            // Ended, by a signal that cannot be withheld: its end is still to be reported.
            tracing::debug!(pid = self.pid, %error, "a server ended under the injection");
        }
        let Calling {
            calls,
            filtering,
            unfiltered,
            ..
        } = *calling;
        let confined = filtering
            .map(Filtering::outcome)
            .or(unfiltered.map(Confined::Failed));
        // Before it runs: what it is at its next exec. A process id of ours is in the table.
        let (pid, marks) = (self.target.pid, &self.marks);
        if self.target.follow {
            let _in_range = marks.set(pid, Marks::ARMED);
        } else if matches!(confined, Some(Confined::Filtered { .. })) {
            marks.clear(pid, Marks::ARMED);
        }
        let mut ends = None;
        if let Some(calls) = calls {
            let Some((plan, to_server, from_server)) = calls.into_parts() else {
                return Ok(self.refuse(Refusal::Killed));
            };
            let _in_range = marks.set(pid, Marks::RELAYED);
            ends = Some(self.ends(plan, to_server, from_server, exe));
        }
        let gone = self.let_go();
        let outcome = match (ends, confined) {
            _ if !gone => died(&self.target),
            (Some(ends), confined) => Outcome::Injected(Box::new(Ends { confined, ..ends })),
            (None, confined) => Outcome::Confined {
                pid,
                start_ns: self.target.start_ns,
                confined: confined.unwrap_or(Confined::Failed(libc::EPROTO)),
            },
        };
        Ok(Step {
            outcome: Some(outcome),
            gone,
        })
    }

    fn ends(&self, plan: Plan, to_server: OwnedFd, from_server: OwnedFd, exe: std::path::PathBuf) -> Ends {
        let own = |fd: OwnedFd, kind: Kind, write: bool| match kind {
            Kind::Pipe => descriptors::own_description(fd, write),
            Kind::Socket => fd,
        };
        if plan.stdin.kind == Kind::Pipe {
            descriptors::same_size(&plan.stdin.fd, &to_server);
        }
        if plan.stdout.kind == Kind::Pipe {
            descriptors::same_size(&plan.stdout.fd, &from_server);
        }
        Ends {
            pid: self.target.pid,
            start_ns: self.target.start_ns,
            parent: self.target.parent,
            exe,
            stdin: plan.stdin.kind,
            stdout: plan.stdout.kind,
            one_socket: plan.one_socket,
            server_ino: [0, 1].map(|fd| procs::fd_link(self.target.pid, fd).map_or(0, |link| link.ino)),
            confined: None,
            stderr_shared: plan.stderr_shared(),
            copies: plan.copies(),
            from_agent: own(plan.stdin.fd, plan.stdin.kind, false),
            to_agent: own(plan.stdout.fd, plan.stdout.kind, true),
            to_server: own(to_server, plan.stdin.kind, true),
            from_server: own(from_server, plan.stdout.kind, false),
        }
    }

    /// Gives the target back what calls have changed besides descriptors.
    fn restore(&self, calling: &Calling) -> io::Result<()> {
        ptrace::poke(self.pid, calling.scratch, calling.scratch_was)?;
        if let Some(filtering) = &calling.filtering {
            filtering.restore()?;
        }
        if let Some(limit) = &calling.limit {
            limit::set(self.pid, limit)?;
        }
        calling.registers.set(self.pid)?;
        self.options(0)
    }

    /// Ends the attempt; the target runs as it was, or is killed where it cannot.
    fn refuse(&mut self, reason: Refusal) -> Step {
        let mut reason = reason;
        if let Phase::Calling(calling) = std::mem::replace(&mut self.phase, Phase::GivenUp)
            && (calling.calls.as_ref().is_some_and(Calls::replaced) || self.restore(&calling).is_err())
        {
            reason = if reason.is_fatal() {
                reason
            } else {
                Refusal::Killed
            };
        }
        if reason.is_fatal() {
            self.signal(libc::SIGKILL);
        }
        Step {
            gone: self.let_go(),
            outcome: Some(refused(&self.target, reason)),
        }
    }

    /// Detaches a stopped target and lets it run, with the signals it has missed. False when it was killed meanwhile: its
    /// end is still to be taken note of, or its parent never learns of it.
    fn let_go(&mut self) -> bool {
        let waiting = (!self.stop_seen).then(|| Waiting::of(self.target.pid).signals(false));
        let detached = ptrace::detach(self.pid).is_ok();
        if let Some(waiting) = waiting {
            self.go_on(&waiting);
        }
        for signal in std::mem::take(&mut self.signals) {
            self.signal(signal);
        }
        detached
    }

    /// Ends the group stop that is ours; the stops that others asked for meanwhile stay.
    fn go_on(&self, waiting: &[i32]) {
        // Fails only for a target that has ended.
        let _ended = stops::continued_with(&self.pidfd, waiting);
    }

    fn signal(&self, signal: i32) {
        // Fails only for a target that has ended.
        let _ended = pidfd_signal(&self.pidfd, signal);
    }

    /// Remembers a signal that was not ours.
    fn keep_signal(&mut self, stop: Stop) {
        match stop {
            Stop::Signal(libc::SIGSTOP) if !self.stop_seen => self.stop_seen = true,
            // It has had its effect: nothing is stopped any more, and no earlier stop counts.
            Stop::Signal(libc::SIGCONT) => self.signals.retain(|signal| !stops::stops(*signal)),
            Stop::Signal(signal) => self.signals.push(signal),
            Stop::Group(_) | Stop::Other | Stop::Ended => {}
        }
    }

    /// Whether it only waits for a chance to be detached.
    pub(super) const fn is_given_up(&self) -> bool {
        matches!(self.phase, Phase::GivenUp)
    }

    /// Gives up a target whose time is over. One that does not stop stays attached, without harm, until it does.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<Outcome> {
        if now < self.deadline || matches!(self.phase, Phase::GivenUp) {
            return None;
        }
        let reason = match std::mem::replace(&mut self.phase, Phase::GivenUp) {
            // It did not come back from a call that takes microseconds.
            Phase::Calling(_) => {
                self.signal(libc::SIGKILL);
                Refusal::Killed
            }
            _ => Refusal::Late,
        };
        self.go_on(&Waiting::of(self.target.pid).signals(self.stop_seen));
        self.stop_seen = true;
        // Fails only for a target that has ended.
        let _ended = ptrace::interrupt(self.pid);
        Some(refused(&self.target, reason))
    }
}

fn died(target: &Target) -> Outcome {
    Outcome::Died {
        pid: target.pid,
        start_ns: target.start_ns,
    }
}

fn refused(target: &Target, reason: Refusal) -> Outcome {
    Outcome::Refused {
        pid: target.pid,
        start_ns: target.start_ns,
        reason,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: io::Error) -> Refusal {
    Refusal::Failed(error.raw_os_error().unwrap_or(libc::EIO))
}

fn why_not(pid: u32, error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::EPERM) if status::number(pid, "TracerPid:", 10).is_some_and(|tracer| tracer != 0) => {
            Refusal::Traced
        }
        Some(libc::EPERM | libc::EACCES) => Refusal::Forbidden,
        other => Refusal::Failed(other.unwrap_or(libc::EIO)),
    }
}

fn is_filtered(pid: u32) -> bool {
    // Unknown counts as filtered: a call that a filter answers with death must not be tried.
    status::number(pid, "Seccomp:", 10) != Some(0)
}
