//! What the sensor tells: owned events with plain types.

use bytes::Bytes;

/// Address of a kernel object (a pipe, or an AF_UNIX socket), used as an opaque name.
///
/// Two descriptors of any processes lead to the same pipe or socket exactly when their objects are equal.
/// Addresses are reused after the object is freed; an inode number beside it tells two users of one address
/// apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Object(pub u64);

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object({:#x})", self.0)
    }
}

/// What the agent does with its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// The agent reads: the server's standard output.
    Read,
    /// The agent writes: the server's standard input.
    Write,
}

/// Name of a watched stream, seen from the agent's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// The agent's pipe or its own socket of the pair.
    pub object: Object,
    /// Direction.
    pub op: Op,
}

/// Number of one watch of a stream; never used twice by one sensor. Tells a reused [`Object`] apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// Marks of a process (DESIGN section 4: two marks, never one).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks(pub(crate) u8);

impl Marks {
    /// No mark.
    pub const NONE: Self = Self(0);
    /// In an agent's tree.
    pub const TREE: Self = Self(kams_sensor_abi::marks::TREE);
    /// Holds the agent's end: its calls are captured.
    pub const ENDPOINT: Self = Self(kams_sensor_abi::marks::ENDPOINT);
    /// The endpoint mark is a trial.
    pub const PROBATION: Self = Self(kams_sensor_abi::marks::PROBATION);

    /// What this endpoint starts is held at its exec, while an [`crate::inject::Injector`] runs. Of a process that is no
    /// endpoint (a launcher): so is each image that it or a fork of it runs, until the mark is taken away.
    pub const ARMED: Self = Self(kams_sensor_abi::marks::ARMED);
    /// A relay stands between this process and the agent; set by the injector.
    pub const RELAYED: Self = Self(kams_sensor_abi::marks::RELAYED);

    /// The server of a watched stream; set by the sensor so that its end is reported.
    pub const SERVER: Self = Self(kams_sensor_abi::marks::SERVER);

    /// Whether every mark of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether no mark is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Kind of file behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FdKind {
    /// Descriptor is closed.
    None,
    /// Pipe or FIFO.
    Pipe,
    /// AF_UNIX SOCK_STREAM socket.
    UnixStream,
    /// AF_UNIX socket of another type.
    UnixOther,
    /// Socket of another family.
    SocketOther,
    /// Character device, `/dev/null` included.
    Chr,
    /// Regular file or memfd.
    Regular,
    /// Anything else.
    Other,
}

impl FdKind {
    /// Whether MCP over standard input and output can use this kind.
    pub const fn can_carry_mcp(self) -> bool {
        matches!(self, Self::Pipe | Self::UnixStream)
    }
}

/// What is open at a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdShape {
    /// Kind of file.
    pub kind: FdKind,
    /// Opened for reading.
    pub readable: bool,
    /// Opened for writing.
    pub writable: bool,
    /// Pipe or socket behind it.
    pub object: Option<Object>,
    /// Inode number, as `/proc/PID/fd` shows it for pipes and sockets; 0 when closed.
    pub ino: u64,
    /// The connected AF_UNIX peer.
    pub peer: Option<Object>,
    /// Inode number of the peer, 0 if unknown.
    pub peer_ino: u64,
}

impl FdShape {
    /// A closed descriptor.
    pub const CLOSED: Self = Self {
        kind: FdKind::None,
        readable: false,
        writable: false,
        object: None,
        ino: 0,
        peer: None,
        peer_ino: 0,
    };

    /// Object of the far end: the pipe itself, or the socket's peer.
    pub fn far_object(&self) -> Option<Object> {
        match self.kind {
            FdKind::Pipe => self.object,
            FdKind::UnixStream => self.peer,
            _ => None,
        }
    }

    /// Inode number of the far end: that of the pipe itself, or of the socket's peer; 0 if unknown.
    pub fn far_ino(&self) -> u64 {
        match self.kind {
            FdKind::Pipe => self.ino,
            FdKind::UnixStream => self.peer_ino,
            _ => 0,
        }
    }
}

/// A process runs a new image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecReport {
    /// Process id (thread group) in the host's pid namespace.
    pub pid: u32,
    /// Parent process.
    pub ppid: u32,
    /// Real user id.
    pub uid: u32,
    /// Real group id.
    pub gid: u32,
    /// Time of the exec, CLOCK_BOOTTIME ns.
    pub time_ns: u64,
    /// Start of the process (its fork), CLOCK_BOOTTIME ns. With `pid` this names a process for good.
    pub start_ns: u64,
    /// Start of the parent process, CLOCK_BOOTTIME ns.
    pub parent_start_ns: u64,
    /// Cgroup id (version 2 hierarchy).
    pub cgroup_id: u64,
    /// Marks of this process after the exec.
    pub marks: Marks,
    /// Marks it had before.
    pub marks_before: Marks,
    /// Marks of the parent.
    pub parent_marks: Marks,
    /// Short name, at most 15 bytes.
    pub comm: Bytes,
    /// Path as given to exec (a script's own path for scripts), cut at 512 bytes.
    pub filename: Bytes,
    /// `filename` is incomplete.
    pub filename_cut: bool,
    /// First KiB of the arguments, each closed by NUL; empty if unreadable.
    pub argv: Bytes,
    /// `argv` is incomplete or unreadable.
    pub argv_cut: bool,
    /// Descriptors 0, 1, 2.
    pub fds: [FdShape; 3],
    /// Descriptors 0 and 1 have the shape of an MCP server's, and neither is the parent's own.
    pub candidate: bool,
    /// Descriptor 0 is the parent's own descriptor 0.
    pub stdin_inherited: bool,
    /// The parent is an endpoint and both streams are in the stream table already.
    pub watched: bool,
    /// As `watched`, but the table had no room.
    pub watch_failed: bool,
    /// The process is stopped before its first instruction: whoever arms a process answers each of these with
    /// [`crate::inject::Injector::inject`] or [`crate::inject::Injector::release`].
    pub held: bool,
    /// The process was to be held, and runs: no fresh heartbeat, or no room in the ring or the map.
    pub hold_failed: bool,
}

impl ExecReport {
    /// The arguments, split. The last one may be incomplete when `argv_cut` is set.
    pub fn args(&self) -> Vec<Bytes> {
        split_args(&self.argv)
    }

    /// Keys of the agent's end of this process's standard input and output.
    pub fn far_keys(&self) -> Option<(StreamKey, StreamKey)> {
        far_keys(&self.fds)
    }
}

/// Keys of the agent's end for a server with these descriptors 0 and 1: (to standard input, from standard output).
pub fn far_keys(fds: &[FdShape; 3]) -> Option<(StreamKey, StreamKey)> {
    let to_stdin = StreamKey {
        object: fds[0].far_object()?,
        op: Op::Write,
    };
    let from_stdout = StreamKey {
        object: fds[1].far_object()?,
        op: Op::Read,
    };
    Some((to_stdin, from_stdout))
}

pub(crate) fn split_args(argv: &Bytes) -> Vec<Bytes> {
    let mut args = Vec::new();
    let mut rest = argv.clone();
    while !rest.is_empty() {
        let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
        args.push(rest.split_to(end));
        if !rest.is_empty() {
            bytes::Buf::advance(&mut rest, 1);
        }
    }
    args
}

/// A piece of what one call moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The stream.
    pub key: StreamKey,
    /// The watch of that stream.
    pub stream: StreamId,
    /// Process that made the call.
    pub pid: u32,
    /// Thread that made the call.
    pub tid: u32,
    /// Number of the call; unique while the sensor runs.
    pub call: u64,
    /// Position of `data` in the call, bytes.
    pub offset: u64,
    /// Bytes the call moved in total.
    pub total: u64,
    /// Return of the call, CLOCK_BOOTTIME ns; see [`crate::clock`].
    pub time_ns: u64,
    /// Last chunk of the call.
    pub last: bool,
    /// Something of this call was lost before this chunk (a [`SensorEvent::StreamGap`] came first).
    pub call_lossy: bool,
    /// System call number, for diagnosis.
    pub syscall: u32,
    /// The bytes.
    pub data: Bytes,
}

/// Stage in which something was lost. The words are label values of `kams_sensor_lost_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossStage {
    /// Ring buffer between kernel and user side.
    Ring,
    /// A kernel map.
    Map,
    /// Reading memory in the kernel.
    Read,
    /// Bounds of the kernel program.
    Cut,
    /// A call form that cannot be read.
    Unsupported,
    /// The kernel did not run a program.
    Program,
    /// The queue towards the engine.
    Queue,
}

impl LossStage {
    /// Label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Map => "map",
            Self::Read => "read",
            Self::Cut => "cut",
            Self::Unsupported => "unsupported",
            Self::Program => "program",
            Self::Queue => "queue",
        }
    }
}

/// Why something was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LossReason {
    /// Stage.
    pub stage: LossStage,
    /// Reason within the stage, a label value: lower case, no spaces.
    pub reason: &'static str,
}

/// Something the sensor saw.
///
/// Events come in the order in which the kernel side wrote them, but a server's exec report always before the payload
/// of its streams. A process's exit comes after all payload that it moved; the agent may still read afterwards what a
/// server that ended has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SensorEvent {
    /// Any process of the host runs a new image.
    Exec(Box<ExecReport>),
    /// A process is held whose exec report was lost (a [`SensorEvent::LifecycleLost`] comes too).
    Held {
        /// The process.
        pid: u32,
        /// Its start, CLOCK_BOOTTIME ns.
        start_ns: u64,
        /// CLOCK_BOOTTIME ns.
        time_ns: u64,
    },
    /// A marked process forked.
    Fork {
        /// The child.
        pid: u32,
        /// The process that forked.
        ppid: u32,
        /// Marks of the child.
        marks: Marks,
        /// Start of the child, CLOCK_BOOTTIME ns.
        start_ns: u64,
        /// CLOCK_BOOTTIME ns.
        time_ns: u64,
    },
    /// A marked process ended with its last thread; its marks are cleared.
    Exit {
        /// The process.
        pid: u32,
        /// Its start, CLOCK_BOOTTIME ns.
        start_ns: u64,
        /// Marks it had.
        marks: Marks,
        /// CLOCK_BOOTTIME ns.
        time_ns: u64,
    },
    /// Bytes on a watched stream.
    Payload(Chunk),
    /// Bytes passed on a watched stream that are not delivered. Comes at its place in the order of the stream,
    /// or as soon as known.
    StreamGap {
        /// The stream.
        key: StreamKey,
        /// The watch of that stream.
        stream: StreamId,
        /// Bytes lost; 0 when the number is not known.
        lost_bytes: u64,
        /// Reasons, at least one.
        reasons: Vec<LossReason>,
        /// CLOCK_BOOTTIME ns.
        time_ns: u64,
    },
    /// An endpoint's read on a watched stream returned 0: the server's side is closed.
    StreamEof {
        /// The stream.
        key: StreamKey,
        /// The watch of that stream.
        stream: StreamId,
        /// Process that read.
        pid: u32,
        /// CLOCK_BOOTTIME ns.
        time_ns: u64,
    },
    /// An endpoint used io_uring for the first time: what it moves that way is not seen.
    IoUring {
        /// The process.
        pid: u32,
        /// CLOCK_BOOTTIME ns.
        time_ns: u64,
    },
    /// Exec, fork or exit records were lost: rescan with [`crate::SensorControl::adopt`].
    LifecycleLost {
        /// Records lost since the last such event.
        records: u64,
        /// Where.
        reason: LossReason,
    },
}
