//! Proof at start: each probe is provoked once and must report what is known to be true.
//!
//! A child runs a one-byte echo with an AF_UNIX socket as standard input and a pipe as standard output, both watched.
//! That proves the fork, exec, exit and payload probes and every offset they read with. Before that, programs at
//! functions are proved by echoes of every shape; what one of them does not report is left to the program at the exit
//! of system calls. Events of other processes that arrive meanwhile are delivered.

mod echo;

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kams_sensor_abi::function::{
    DUTY_ALL, DUTY_CALLS, DUTY_PIPE_READ, DUTY_PIPE_WRITE, DUTY_UNIX_READ, DUTY_UNIX_WRITE,
};

use crate::clock::{self, NS_PER_TICK};
use crate::control::SensorControl;
use crate::event::{ExecReport, FdKind, Marks, Op, SensorEvent};
use crate::options::SensorError;
use crate::procs;
use crate::record::Record;
use crate::ring::Reader;
use echo::{Echo, Shape};

/// How long a provoked event may take; on a busy machine a scheduled child can need a second.
const PATIENCE: Duration = Duration::from_secs(5);
/// The byte that is sent around.
const BYTE: u8 = b'k';

/// What came back.
#[derive(Default)]
struct Seen {
    exec: Option<ExecReport>,
    forked: bool,
    exited: bool,
    written: Option<Vec<u8>>,
    read: Option<Vec<u8>>,
    /// Losses told on a stream: of calls that do not take bytes from memory.
    gaps: u32,
}

impl Seen {
    const fn complete(&self) -> bool {
        self.exec.is_some() && self.forked && self.exited && self.written.is_some() && self.read.is_some()
    }

    fn first_missing(&self) -> &'static str {
        if self.exec.is_none() {
            "process_exec"
        } else if !self.forked {
            "process_fork"
        } else if self.written.is_none() || self.read.is_none() {
            "payload"
        } else {
            "process_exit"
        }
    }

    fn carried(bytes: Option<&Vec<u8>>) -> bool {
        bytes.is_some_and(|bytes| bytes == &[BYTE])
    }
}

/// Provokes one exec, fork, exit and payload event of our own and checks each against what is known.
pub(crate) fn prove(control: &SensorControl, reader: &mut Reader) -> Result<(), SensorError> {
    let own = std::process::id();
    let borrowed = Marks::TREE.with(Marks::ENDPOINT);
    control.mark(own, None, borrowed)?;
    let result = prove_functions(control, reader, own).and_then(|()| {
        control.attach_payload()?;
        provoke(control, reader, own)
    });
    control.unmark(own, borrowed);
    control.detach_payload()?;
    result
}

/// Proves the programs at functions, one duty after the other, and does without those that report nothing.
fn prove_functions(control: &SensorControl, reader: &mut Reader, own: u32) -> Result<(), SensorError> {
    let programs = &control.0.programs;
    let possible = programs.function_duties();
    if possible == 0 {
        return Ok(());
    }
    if let Err(error) = programs.attach_functions(false) {
        programs.detach_functions()?;
        return programs.refuse_functions(DUTY_ALL, &error.to_string());
    }
    if programs.have_fifos() {
        prove_fifos(control, reader, own)?;
    }
    let shapes = [
        (Shape::SocketThenPipe, DUTY_UNIX_WRITE, DUTY_PIPE_READ, false),
        (
            Shape::PipeThenSocket,
            DUTY_PIPE_WRITE,
            DUTY_UNIX_READ,
            possible & DUTY_CALLS != 0,
        ),
    ];
    for (shape, writing, reading, with_calls) in shapes {
        let (seen, calls) = echo(control, reader, own, shape, with_calls)?;
        let reported = |what: &str, right: bool| {
            (!right).then(|| format!("a program at a function that {what} did not report what was provoked"))
        };
        let told = format!("tells of {calls} calls (told: {})", seen.gaps);
        let missing = [
            (
                writing,
                reported("carries writing", Seen::carried(seen.written.as_ref())),
            ),
            (
                reading,
                reported("carries reading", Seen::carried(seen.read.as_ref())),
            ),
            (DUTY_CALLS, reported(&told, seen.gaps == calls)),
        ];
        for (duty, why) in missing {
            if let Some(why) = why.filter(|_| possible & duty != 0) {
                programs.refuse_functions(duty, &why)?;
            }
        }
    }
    programs.detach_functions()
}

/// Whether the programs for pipes see what passes on named pipes; if not, those for named pipes are to.
fn prove_fifos(control: &SensorControl, reader: &mut Reader, own: u32) -> Result<(), SensorError> {
    let programs = &control.0.programs;
    let Ok((seen, _)) = echo(control, reader, own, Shape::NamedPipes, false) else {
        // Where no named pipe can be made, none is a server's.
        programs.drop_fifos();
        return Ok(());
    };
    if Seen::carried(seen.written.as_ref()) && Seen::carried(seen.read.as_ref()) {
        programs.drop_fifos();
        return Ok(());
    }
    programs.attach_functions(true)?;
    let (seen, _) = echo(control, reader, own, Shape::NamedPipes, false)?;
    if !(Seen::carried(seen.written.as_ref()) && Seen::carried(seen.read.as_ref())) {
        let why = "the programs for named pipes reported nothing when they were provoked";
        programs.refuse_functions(DUTY_PIPE_READ | DUTY_PIPE_WRITE, why)?;
    }
    Ok(())
}

/// Runs an echo and collects what is reported of it, and how many calls moved a byte otherwise.
fn echo(
    control: &SensorControl,
    reader: &mut Reader,
    own: u32,
    shape: Shape,
    with_calls: bool,
) -> Result<(Seen, u32), SensorError> {
    let nonce = nonce(own);
    let mut echo = Echo::start(&nonce, shape).map_err(io_error)?;
    let child = echo.child.id();
    let calls = if with_calls {
        echo.move_in().map_err(io_error)?
    } else {
        0
    };
    let sent = echo.send_around();
    let seen = collect(reader, own, child, &nonce);
    finish(control, &mut echo, own)?;
    sent.map_err(io_error)?;
    control
        .0
        .provoked
        .fetch_add(u64::from(seen.gaps), Ordering::Relaxed);
    Ok((seen, calls))
}

fn nonce(own: u32) -> String {
    format!("kams-selftest-{own}-{}", clock::boot_ns())
}

/// Ends the child and the watches of its streams.
fn finish(control: &SensorControl, echo: &mut Echo, own: u32) -> Result<(), SensorError> {
    // The child has ended by itself when its exit was seen; if not, it must not be left behind.
    let _already_ended = echo.child.kill();
    echo.child.wait().map_err(|source| SensorError::Io {
        what: "cannot wait for the self-test",
        source,
    })?;
    let child = echo.child.id();
    for stream in control.streams() {
        if stream.watch.server == child && stream.watch.agent == own {
            control.unwatch(stream.watch.key, Some(stream.id));
        }
    }
    Ok(())
}

fn provoke(control: &SensorControl, reader: &mut Reader, own: u32) -> Result<(), SensorError> {
    let nonce = nonce(own);
    let mut echo = Echo::start(&nonce, Shape::SocketThenPipe).map_err(io_error)?;
    let child = echo.child.id();
    let sent = echo.send_around();
    let start_ticks = procs::stat(child).map(|stat| stat.start_ticks);
    let seen = collect(reader, own, child, &nonce);
    let verdict = check(&seen, own, child, start_ticks, &echo);
    finish(control, &mut echo, own)?;
    sent.map_err(io_error)?;
    verdict
}

fn io_error(source: std::io::Error) -> SensorError {
    SensorError::Io {
        what: "cannot run the self-test",
        source,
    }
}

/// Reads the ring until everything was seen or patience ends.
fn collect(reader: &mut Reader, own: u32, child: u32, nonce: &str) -> Seen {
    let deadline = Instant::now() + PATIENCE;
    let mut seen = Seen::default();
    while !seen.complete() {
        let Some(record) = reader.next_record() else {
            if Instant::now() >= deadline {
                break;
            }
            reader.wait(Duration::from_millis(20));
            continue;
        };
        match record {
            Record::Event(SensorEvent::Exec(exec)) if exec.args().iter().any(|arg| arg == nonce) => {
                seen.exec = Some(*exec);
            }
            Record::Event(SensorEvent::Fork { pid, .. }) if pid == child => seen.forked = true,
            Record::Event(SensorEvent::Exit { pid, .. }) if pid == child => seen.exited = true,
            Record::Chunk { chunk, .. } if chunk.pid == own => match chunk.key.op {
                // Twice is as wrong as never.
                Op::Write => seen
                    .written
                    .get_or_insert_default()
                    .extend_from_slice(&chunk.data),
                Op::Read => seen.read.get_or_insert_default().extend_from_slice(&chunk.data),
            },
            // Nothing else is watched yet.
            Record::Gap { lost, .. } => seen.gaps = seen.gaps.max(lost.count),
            other => reader.deliver(other),
        }
    }
    seen
}

fn check(
    seen: &Seen,
    own: u32,
    child: u32,
    start_ticks: Option<u64>,
    ends: &Echo,
) -> Result<(), SensorError> {
    // An exec report with another process id explains everything else that is missing.
    if let Some(exec) = &seen.exec
        && exec.pid != child
    {
        return Err(SensorError::PidNamespace {
            own: child,
            host: exec.pid,
        });
    }
    let Some(exec) = seen.exec.as_ref().filter(|_| seen.complete()) else {
        let waited_ms = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
        return Err(SensorError::ProbeSilent {
            probe: seen.first_missing(),
            waited_ms,
        });
    };
    let wrong = |probe, what: String| Err(SensorError::ProbeWrong { probe, what });
    if exec.ppid != own {
        return wrong(
            "process_exec",
            format!("parent {} where {own} is right", exec.ppid),
        );
    }
    if start_ticks.is_some_and(|ticks| exec.start_ns / NS_PER_TICK != ticks) {
        return wrong(
            "process_exec",
            format!("start {} where {start_ticks:?} is right", exec.start_ns),
        );
    }
    // SAFETY: no arguments, cannot fail.
    let uid = unsafe { libc::getuid() };
    if exec.uid != uid {
        return wrong("process_exec", format!("user {} where {uid} is right", exec.uid));
    }
    let [input, output, error] = &exec.fds;
    let kinds = [input.kind, output.kind, error.kind];
    if kinds != [FdKind::UnixStream, FdKind::Pipe, FdKind::Chr] {
        return wrong("process_exec", format!("descriptors {kinds:?}"));
    }
    let far = [inode(&ends.to_child)?, inode(&ends.from_child)?];
    if [input.far_ino(), output.far_ino()] != far {
        return wrong(
            "process_exec",
            format!("far ends {} and {}", input.far_ino(), output.far_ino()),
        );
    }
    if !exec.watched {
        return wrong("process_exec", "streams that are not watched".into());
    }
    let bytes = Some(vec![BYTE]);
    if seen.written != bytes || seen.read != bytes {
        return wrong("payload", format!("{:?} and {:?}", seen.written, seen.read));
    }
    Ok(())
}

fn inode(end: &impl AsRawFd) -> Result<u64, SensorError> {
    let path = format!("/proc/self/fd/{}", end.as_raw_fd());
    Ok(std::fs::metadata(path).map_err(io_error)?.ino())
}
