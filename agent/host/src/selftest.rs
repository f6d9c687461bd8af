//! Proof at start: each probe is provoked once and must report what is known to be true.
//!
//! A child runs a one-byte echo with an AF_UNIX socket as standard input and a pipe as standard output, both watched.
//! That proves the fork, exec, exit and payload probes and every offset they read with. Events of other processes
//! that arrive meanwhile are delivered.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::arch::ONE_BYTE_ECHO;
use crate::clock::{self, NS_PER_TICK};
use crate::control::SensorControl;
use crate::event::{ExecReport, FdKind, Marks, Op, SensorEvent};
use crate::options::SensorError;
use crate::procs;
use crate::record::Record;
use crate::ring::Reader;

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
}

/// Ends of the child's standard input and output on our side.
struct Ends {
    to_child: UnixStream,
    from_child: std::io::PipeReader,
}

/// Provokes one exec, fork, exit and payload event of our own and checks each against what is known.
pub(crate) fn prove(control: &SensorControl, reader: &mut Reader) -> Result<(), SensorError> {
    let own = std::process::id();
    let borrowed = Marks::TREE.with(Marks::ENDPOINT);
    control.mark(own, None, borrowed)?;
    control.attach_payload()?;
    let result = provoke(control, reader, own);
    control.unmark(own, borrowed);
    control.detach_payload()?;
    result
}

fn provoke(control: &SensorControl, reader: &mut Reader, own: u32) -> Result<(), SensorError> {
    let nonce = format!("kams-selftest-{own}-{}", clock::boot_ns());
    let (mut child, mut ends) = start_echo(&nonce)?;
    let child_pid = child.id();
    let echo = send_byte_around(&mut ends);
    let start_ticks = procs::stat(child_pid).map(|stat| stat.start_ticks);
    let seen = collect(reader, own, child_pid, &nonce);
    // The child has ended by itself when its exit was seen; if not, it must not be left behind.
    let _already_ended = child.kill();
    child.wait().map_err(|source| SensorError::Io {
        what: "cannot wait for the self-test",
        source,
    })?;
    echo?;
    let verdict = check(&seen, own, child_pid, start_ticks, &ends);
    for stream in control.streams() {
        if stream.watch.server == child_pid && stream.watch.agent == own {
            control.unwatch(stream.watch.key, Some(stream.id));
        }
    }
    verdict
}

fn io_error(source: std::io::Error) -> SensorError {
    SensorError::Io {
        what: "cannot run the self-test",
        source,
    }
}

fn start_echo(nonce: &str) -> Result<(Child, Ends), SensorError> {
    let (to_child, child_input) = UnixStream::pair().map_err(io_error)?;
    let (from_child, child_output) = std::io::pipe().map_err(io_error)?;
    let image = ONE_BYTE_ECHO.and_then(|image| memory_file(image).ok());
    if let Some(image) = &image {
        let path = format!("/proc/self/fd/{}", image.as_raw_fd());
        let attempt = Command::new(path)
            .arg0("kams-selftest")
            .arg(nonce)
            .stdin(OwnedFd::from(child_input.try_clone().map_err(io_error)?))
            .stdout(child_output.try_clone().map_err(io_error)?)
            .stderr(Stdio::null())
            .spawn();
        // Where memory files may not be executed, `cat` does.
        if let Ok(child) = attempt {
            return Ok((child, Ends { to_child, from_child }));
        }
    }
    let child = Command::new("sh")
        .args(["-c", "exec head -c 1", nonce])
        .stdin(OwnedFd::from(child_input))
        .stdout(child_output)
        .stderr(Stdio::null())
        .spawn()
        .map_err(io_error)?;
    Ok((child, Ends { to_child, from_child }))
}

fn memory_file(image: &[u8]) -> std::io::Result<File> {
    const MFD_EXEC: libc::c_uint = 0x10;
    let create = |flags: libc::c_uint| {
        // SAFETY: the name is a valid C string; a non-negative result is a new descriptor that nobody else owns.
        unsafe { libc::memfd_create(c"kams-selftest".as_ptr(), flags) }
    };
    let mut fd = create(libc::MFD_CLOEXEC | MFD_EXEC);
    if fd < 0 {
        // Before 6.3 there is no such flag, and every memory file may be executed.
        fd = create(libc::MFD_CLOEXEC);
    }
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: `fd` was just created and is owned by nobody else.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(image)?;
    // A file that is open for writing cannot be executed: open it again.
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn send_byte_around(ends: &mut Ends) -> Result<(), SensorError> {
    ends.to_child.write_all(&[BYTE]).map_err(io_error)?;
    let mut byte = [0];
    ends.from_child.read_exact(&mut byte).map_err(io_error)
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
                Op::Write => seen.written = Some(chunk.data.to_vec()),
                Op::Read => seen.read = Some(chunk.data.to_vec()),
            },
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
    ends: &Ends,
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
