//! The thread that owns ptrace: requests in, outcomes out.
//!
//! While nothing is traced it sleeps in `poll`; while something is, in `waitpid`, interrupted by requests and by a tick
//! that bounds every delay.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::{Duration, Instant};

use super::ptrace;
use super::target::Tracee;
use super::wake::{self, Ticker};
use super::{InjectorOptions, Outcome, Refusal, Target};
use crate::clock;
use crate::heartbeat::Heartbeat;
use crate::hold::{self, HoldTable};
use crate::marks::MarkTable;

/// Time between two signs of life, and between two looks for processes that nobody answers for.
const BEAT: Duration = Duration::from_millis(100);

/// What the thread is asked.
#[derive(Debug)]
pub(super) enum Request {
    Inject(Target),
    Release { pid: u32, start_ns: u64 },
    Stop,
}

/// The asking side.
#[derive(Debug)]
pub(super) struct Requests {
    sender: Sender<Request>,
    wake: Arc<OwnedFd>,
    thread: Arc<AtomicI32>,
}

/// The thread's side.
#[derive(Debug)]
pub(super) struct Inbox {
    receiver: Receiver<Request>,
    wake: Arc<OwnedFd>,
    thread: Arc<AtomicI32>,
}

/// Tables of the sensor that the thread works with.
pub(super) struct Shared {
    pub(super) holds: Arc<HoldTable>,
    pub(super) heartbeat: Arc<Heartbeat>,
    pub(super) marks: Arc<MarkTable>,
}

pub(super) fn requests() -> io::Result<(Requests, Inbox)> {
    let (sender, receiver) = mpsc::channel();
    let wake = Arc::new(nix_eventfd()?);
    let thread = Arc::new(AtomicI32::new(0));
    let requests = Requests {
        sender,
        wake: Arc::clone(&wake),
        thread: Arc::clone(&thread),
    };
    Ok((
        requests,
        Inbox {
            receiver,
            wake,
            thread,
        },
    ))
}

fn nix_eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    crate::procs::new_fd(libc::c_long::from(fd)).ok_or_else(io::Error::last_os_error)
}

impl Requests {
    pub(super) fn send(&self, request: Request) {
        if self.sender.send(request).is_err() {
            // The thread has ended, and let go what it held.
            return;
        }
        let one = 1u64;
        // SAFETY: writes eight bytes from a local to our own eventfd. A full counter (EAGAIN) means it is awake.
        let _written = unsafe { libc::write(self.wake.as_raw_fd(), (&raw const one).cast(), 8) };
        let thread = self.thread.load(Ordering::Acquire);
        if thread != 0 {
            wake::interrupt(thread);
        }
    }
}

struct Loop<'a> {
    shared: &'a Shared,
    options: InjectorOptions,
    outcome: Box<dyn FnMut(Outcome) + Send>,
    tracees: HashMap<i32, Tracee>,
}

/// Runs until it is told to stop, or nobody asks any more.
pub(super) fn run(
    inbox: &Inbox,
    shared: &Shared,
    options: InjectorOptions,
    outcome: Box<dyn FnMut(Outcome) + Send>,
    ready: &SyncSender<io::Result<()>>,
) {
    let (mut ticker, told) = match Ticker::new() {
        Ok(ticker) => (ticker, Ok(())),
        Err(error) => {
            // Whoever started this thread is told, and does not wait any more.
            let _gone = ready.send(Err(error));
            return;
        }
    };
    inbox.thread.store(wake::own_thread(), Ordering::Release);
    let mut this = Loop {
        shared,
        options,
        outcome,
        tracees: HashMap::new(),
    };
    let mut beaten = Instant::now();
    shared.heartbeat.beat();
    let _gone = ready.send(told);
    loop {
        loop {
            match inbox.receiver.try_recv() {
                Ok(Request::Inject(target)) => this.inject(target),
                Ok(Request::Release { pid, start_ns }) => this.release(pid, start_ns),
                Ok(Request::Stop) | Err(mpsc::TryRecvError::Disconnected) => {
                    inbox.thread.store(0, Ordering::Release);
                    this.end(&mut ticker);
                    return;
                }
                Err(mpsc::TryRecvError::Empty) => break,
            }
        }
        if beaten.elapsed() >= BEAT {
            shared.heartbeat.beat();
            this.look_for_unclaimed();
            beaten = Instant::now();
        }
        ticker.set(!this.tracees.is_empty());
        if this.tracees.is_empty() {
            sleep(&inbox.wake, BEAT);
        } else {
            drained(&inbox.wake);
            this.wait();
        }
    }
}

impl Loop<'_> {
    fn inject(&mut self, target: Target) {
        let (pid, start_ns) = (target.pid, target.start_ns);
        match Tracee::seize(target, self.options.deadline, &self.shared.marks) {
            Ok(tracee) => {
                if let Ok(pid) = i32::try_from(pid) {
                    self.tracees.insert(pid, tracee);
                }
            }
            Err(outcome) => {
                self.shared.holds.remove(pid, start_ns);
                (self.outcome)(outcome);
            }
        }
    }

    fn release(&mut self, pid: u32, start_ns: u64) {
        let hold = hold::Hold {
            pid,
            start_ns,
            since_ns: 0,
        };
        self.shared.holds.let_go(hold);
    }

    /// Waits for stops and handles what is there.
    fn wait(&mut self) {
        let mut block = true;
        loop {
            match ptrace::wait(block) {
                Ok(Some((pid, stop))) => {
                    self.stopped(pid, stop);
                    // Whatever else is there; then requests come first again.
                    block = false;
                }
                Ok(None) => break,
                Err(error) => {
                    // Nothing is traced: they ended without a report.
                    tracing::debug!(%error, "no target is left");
                    for (_, tracee) in std::mem::take(&mut self.tracees) {
                        self.report(
                            &tracee.target,
                            Outcome::Died {
                                pid: tracee.target.pid,
                                start_ns: tracee.target.start_ns,
                            },
                        );
                    }
                    return;
                }
            }
        }
        let now = Instant::now();
        let mut late = Vec::new();
        for tracee in self.tracees.values_mut() {
            if let Some(outcome) = tracee.overdue(now) {
                late.push((tracee.target.clone(), outcome));
            }
        }
        for (target, outcome) in late {
            self.report(&target, outcome);
        }
    }

    fn stopped(&mut self, pid: i32, stop: ptrace::Stop) {
        let Some(tracee) = self.tracees.get_mut(&pid) else {
            return;
        };
        let step = tracee.stopped(stop);
        if let Some(outcome) = step.outcome {
            let target = tracee.target.clone();
            self.report(&target, outcome);
        }
        if step.gone {
            self.tracees.remove(&pid);
        }
    }

    fn report(&mut self, target: &Target, outcome: Outcome) {
        self.shared.holds.remove(target.pid, target.start_ns);
        (self.outcome)(outcome);
    }

    /// Lets go what was held and never asked for: its report was lost, or its asker is stuck.
    fn look_for_unclaimed(&mut self) {
        let limit = u64::try_from(self.options.unclaimed.as_nanos()).unwrap_or(u64::MAX);
        let now = clock::boot_ns();
        for hold in self.shared.holds.all() {
            let claimed = i32::try_from(hold.pid).is_ok_and(|pid| self.tracees.contains_key(&pid));
            if claimed || now.saturating_sub(hold.since_ns) < limit {
                continue;
            }
            if self.shared.holds.let_go(hold) {
                (self.outcome)(Outcome::Refused {
                    pid: hold.pid,
                    start_ns: hold.start_ns,
                    reason: Refusal::Unclaimed,
                });
            }
        }
    }

    /// Finishes what is begun, within the deadline; the rest the kernel lets go with this thread.
    fn end(&mut self, ticker: &mut Ticker) {
        self.shared.heartbeat.stop();
        let until = Instant::now() + self.options.deadline;
        ticker.set(true);
        while !self.tracees.is_empty() && Instant::now() < until {
            self.wait();
            self.tracees.retain(|_, tracee| !tracee.is_given_up());
        }
    }
}

fn sleep(wake: &OwnedFd, at_most: Duration) {
    let mut poll = libc::pollfd {
        fd: wake.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let timeout = libc::c_int::try_from(at_most.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one valid entry whose descriptor is open; poll writes only `revents`.
    let ready = unsafe { libc::poll(&raw mut poll, 1, timeout) };
    if ready > 0 {
        drained(wake);
    }
}

fn drained(wake: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: reads at most eight bytes into a u64 from our own eventfd, which is non-blocking.
    let _drained = unsafe { libc::read(wake.as_raw_fd(), (&raw mut count).cast(), 8) };
}
