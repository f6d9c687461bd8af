//! Putting a relay between an agent and a server that has just been started, without either taking notice.
//!
//! The exec program holds the new process before its first instruction ([`crate::Marks::ARMED`]). The injector traces
//! it, has it make new pipes or sockets itself, put them in place of its standard input and output, and close the rest;
//! then it lets it go. What comes out are four ends ([`Ends`]): two towards the agent, two towards the server.
//!
//! One thread owns ptrace. It is an event loop with a deadline per target: a target that does not move holds up no other.
//! Until the first of the target's descriptors is replaced, every failure leaves the target as it was and lets it run
//! ([`Outcome::Refused`]); from then on the kernel kills it when this process dies ("half-done" below), because a server
//! with half its streams replaced helps nobody.

#[cfg_attr(target_arch = "x86_64", path = "inject/x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "inject/unsupported.rs")]
mod arch;
mod calls;
mod confine;
mod descriptors;
mod image;
mod limit;
mod ptrace;
mod status;
mod target;
mod thread;
mod wake;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::control::SensorControl;
use crate::filter::Filter;
use crate::options::SensorError;

/// A held process, and what is to be done to it: a relay put before it, a filter put on it, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Process id.
    pub pid: u32,
    /// Start of the process, CLOCK_BOOTTIME ns, as the exec report has it.
    pub start_ns: u64,
    /// The process whose child it is; its own standard input must not be the target's.
    pub parent: u32,
    /// Inode numbers of the agent's ends, where they are sockets of their own ([`crate::FdShape::far_ino`] of descriptors
    /// 0 and 1; 0 for unknown): copies of them in the target are replaced too.
    pub far_ino: [u64; 2],
    /// Put a relay before it. Without this and without a filter there is nothing to ask for.
    pub relay: bool,
    /// Put a filter on it, after the relay.
    pub confine: Option<Confine>,
    /// It launches the server: what it and its forks run next is held too ([`crate::Marks::ARMED`]). Otherwise a filter
    /// ends that.
    pub follow: bool,
}

/// A filter of system calls for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confine {
    /// The filter.
    pub filter: Filter,
    /// Where it cannot be installed, the process is killed before it runs.
    pub required: bool,
}

/// What became of a filter.
#[derive(Debug)]
pub enum Confined {
    /// It holds, for this process and all that it starts.
    Filtered {
        /// The only descriptor by which its questions are answered, of a filter that asks. Closed, every question is
        /// answered with ENOSYS.
        listener: Option<OwnedFd>,
        /// `no_new_privs` had to be set: set-user-id programs and file capabilities have no effect below this process.
        no_new_privs: bool,
    },
    /// The kernel refused; the error number. EBUSY: there is a listener already, in a container for example.
    Failed(i32),
}

/// Kind of a server's stream; the relay keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A pipe or FIFO.
    Pipe,
    /// An AF_UNIX stream socket.
    Socket,
}

/// The four ends between which a relay stands. All are closed on exec.
///
/// Pipes are descriptions of their own, non-blocking: nobody else's `O_NONBLOCK` changes with them. The sockets
/// `from_agent` and `to_agent` share their description with whoever else inherited the server's: use `MSG_DONTWAIT` and
/// never set `O_NONBLOCK` on them.
#[derive(Debug)]
pub struct Ends {
    /// The server's process.
    pub pid: u32,
    /// Its start, CLOCK_BOOTTIME ns.
    pub start_ns: u64,
    /// Its parent at the exec.
    pub parent: u32,
    /// Its executable.
    pub exe: PathBuf,
    /// Kind of standard input.
    pub stdin: Kind,
    /// Kind of standard output.
    pub stdout: Kind,
    /// Standard input and output were one socket: `from_agent` and `to_agent` are copies of it, `to_server` and
    /// `from_server` of its replacement. Half-close with `shutdown`.
    pub one_socket: bool,
    /// What the agent writes: read it. The server's original descriptor 0.
    pub from_agent: OwnedFd,
    /// What the agent reads: write to it. The server's original descriptor 1.
    pub to_agent: OwnedFd,
    /// What the server reads: write to it.
    pub to_server: OwnedFd,
    /// What the server writes: read it.
    pub from_server: OwnedFd,
    /// Inode numbers of the server's new standard input and output, by which those that inherit them are known; 0 for
    /// unknown.
    pub server_ino: [u64; 2],
    /// What became of the filter, where one was asked for.
    pub confined: Option<Confined>,
    /// Standard error was the same file as standard output, and was replaced with it: what the server writes there
    /// comes through `from_server` too.
    pub stderr_shared: bool,
    /// Further descriptors of the server that were copies of its standard input or output and were replaced.
    pub copies: usize,
}

/// Why a target runs without a relay, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It was not at its first instruction any more: somebody else had continued it.
    Moved,
    /// A 32-bit image, or one of another architecture.
    Foreign,
    /// Somebody else traces it.
    Traced,
    /// The kernel does not let us trace it (ptrace restrictions, or another security module).
    Forbidden,
    /// Its standard input is its parent's own.
    StdinOfParent,
    /// Its standard input or output is no pipe and no AF_UNIX stream socket, or is open in both directions.
    Shape,
    /// It is under a seccomp filter that cannot be suspended here.
    Seccomp,
    /// It did not stop, or did not move, in time.
    Late,
    /// The kernel refused one of the steps before the first replacement; the error number.
    Failed(i32),
    /// A step failed after the first replacement: the process was killed.
    Killed,
    /// A filter that was required could not be installed: the process was killed.
    Unfiltered,
    /// Nobody had said in time what is to become of it.
    Unclaimed,
    /// This machine's architecture is not supported.
    Unsupported,
}

impl Refusal {
    /// Stable word for logs and metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Foreign => "foreign",
            Self::Traced => "traced",
            Self::Forbidden => "forbidden",
            Self::StdinOfParent => "stdin_of_parent",
            Self::Shape => "shape",
            Self::Seccomp => "seccomp",
            Self::Late => "late",
            Self::Failed(_) => "failed",
            Self::Killed => "killed",
            Self::Unfiltered => "unfiltered",
            Self::Unclaimed => "unclaimed",
            Self::Unsupported => "unsupported",
        }
    }

    /// Whether the process was killed; else it runs, without a relay.
    pub const fn is_fatal(self) -> bool {
        matches!(self, Self::Killed | Self::Unfiltered)
    }
}

/// What became of a held process.
#[derive(Debug)]
pub enum Outcome {
    /// It runs, and its streams are ours.
    Injected(Box<Ends>),
    /// It runs, and only a filter had been asked for.
    Confined {
        /// Process id.
        pid: u32,
        /// Its start, CLOCK_BOOTTIME ns.
        start_ns: u64,
        /// What became of the filter.
        confined: Confined,
    },
    /// There is no relay before it.
    Refused {
        /// Process id.
        pid: u32,
        /// Its start, CLOCK_BOOTTIME ns.
        start_ns: u64,
        /// Why.
        reason: Refusal,
    },
    /// It ended meanwhile.
    Died {
        /// Process id.
        pid: u32,
        /// Its start, CLOCK_BOOTTIME ns.
        start_ns: u64,
    },
}

/// Limits of the injector.
#[derive(Clone, Copy, Debug)]
pub struct InjectorOptions {
    /// How long a target may take from the request to its first stop, and again from there to its end.
    pub deadline: Duration,
    /// How long a process may be held before somebody says what is to become of it.
    pub unclaimed: Duration,
}

impl Default for InjectorOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(2),
            unclaimed: Duration::from_secs(2),
        }
    }
}

/// The thread that owns ptrace. While it lives, armed processes' children are held at their exec; dropping it lets
/// everything go and ends the holding.
#[derive(Debug)]
pub struct Injector {
    requests: thread::Requests,
    thread: Option<std::thread::JoinHandle<()>>,
    control: SensorControl,
}

impl Injector {
    /// Starts the thread. `outcome` is called on it for every target, once; it must not block.
    pub fn start(
        control: &SensorControl,
        options: InjectorOptions,
        outcome: impl FnMut(Outcome) + Send + 'static,
    ) -> Result<Self, SensorError> {
        let failed = |what| move |source| SensorError::Io { what, source };
        wake::install_handler().map_err(failed("cannot install a signal handler"))?;
        let (requests, inbox) = thread::requests().map_err(failed("cannot make an event descriptor"))?;
        let shared = thread::Shared {
            holds: Arc::clone(&control.0.holds),
            heartbeat: Arc::clone(&control.0.heartbeat),
            marks: Arc::clone(&control.0.marks),
        };
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let run = move || thread::run(&inbox, &shared, options, Box::new(outcome), &ready);
        let thread = std::thread::Builder::new()
            .name("kams-inject".to_owned())
            .spawn(run)
            .map_err(failed("cannot start a thread"))?;
        // From here on what is armed is held.
        let ended = |_| Err(std::io::ErrorKind::Other.into());
        started
            .recv()
            .unwrap_or_else(ended)
            .map_err(failed("cannot make a timer"))?;
        Ok(Self {
            requests,
            thread: Some(thread),
            control: control.clone(),
        })
    }

    /// Puts a relay before a held process, or a filter on it. The answer comes as an [`Outcome`].
    pub fn inject(&self, target: Target) {
        self.requests.send(thread::Request::Inject(target));
    }

    /// Lets a held process run as it is. No [`Outcome`] follows.
    pub fn release(&self, pid: u32, start_ns: u64) {
        self.requests.send(thread::Request::Release { pid, start_ns });
    }

    /// Time since the thread last said that it lives, ns. Over a second it holds nothing any more; a process in which it
    /// stays so is best ended, so that the kernel lets go what the thread traces.
    pub fn silent_ns(&self) -> u64 {
        self.control.0.heartbeat.age_ns().unwrap_or(u64::MAX)
    }
}

impl Drop for Injector {
    fn drop(&mut self) {
        self.control.0.heartbeat.stop();
        self.requests.send(thread::Request::Stop);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has told so; what it traced the kernel has let go.
            let _panicked = thread.join();
        }
        self.control.0.holds.let_all_go();
    }
}
