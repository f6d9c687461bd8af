//! Records that pass from the kernel side to the user side through the ring buffer and the descriptor iterator.

/// [`RecordHeader::kind`] of an [`ExecRecord`].
pub const KIND_EXEC: u32 = 1;
/// [`RecordHeader::kind`] of a [`ForkRecord`].
pub const KIND_FORK: u32 = 2;
/// [`RecordHeader::kind`] of an [`ExitRecord`].
pub const KIND_EXIT: u32 = 3;
/// [`RecordHeader::kind`] of a [`ChunkHeader`] and its data.
pub const KIND_CHUNK: u32 = 4;
/// [`RecordHeader::kind`] of a [`GapRecord`].
pub const KIND_GAP: u32 = 5;
/// [`RecordHeader::kind`] of a [`UringRecord`].
pub const KIND_URING: u32 = 6;
/// [`RecordHeader::kind`] of an [`EofRecord`].
pub const KIND_EOF: u32 = 7;
/// [`RecordHeader::kind`] of a [`HeldRecord`].
pub const KIND_HELD: u32 = 8;

/// Most payload bytes in one chunk.
pub const CHUNK_DATA: usize = 16 * 1024;
/// Most bytes of an exec's file name that are reported.
pub const FILENAME_MAX: usize = 512;
/// Most bytes of an exec's argument area that are reported.
pub const ARGV_MAX: usize = 1024;
/// Length of a task's short name.
pub const COMM_LEN: usize = 16;

/// First member of every record.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RecordHeader {
    /// One of the `KIND_` values.
    pub kind: u32,
    /// Process id (thread group id) in the initial pid namespace.
    pub pid: u32,
    /// CLOCK_BOOTTIME, ns.
    pub time_ns: u64,
}

/// Descriptor is closed.
pub const FD_NONE: u32 = 0;
/// Pipe or FIFO.
pub const FD_PIPE: u32 = 1;
/// AF_UNIX SOCK_STREAM socket.
pub const FD_UNIX_STREAM: u32 = 2;
/// AF_UNIX socket of another type.
pub const FD_UNIX_OTHER: u32 = 3;
/// Socket of another family.
pub const FD_SOCKET_OTHER: u32 = 4;
/// Character device.
pub const FD_CHR: u32 = 5;
/// Regular file, memfd included.
pub const FD_REGULAR: u32 = 6;
/// Anything else: directory, block device, anonymous inode.
pub const FD_OTHER: u32 = 7;

/// Facts about one open descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FdFacts {
    /// One of the `FD_` values.
    pub kind: u32,
    /// `file.f_mode`; bit 0 readable, bit 1 writable.
    pub mode: u32,
    /// `pipe_inode_info` or `socket` address; 0 for other kinds.
    pub object: u64,
    /// Inode number, as `/proc/PID/fd` shows it for pipes and sockets.
    pub ino: u64,
    /// Address of the connected peer's `socket`; 0 unless AF_UNIX and connected.
    pub peer: u64,
    /// Inode number of the peer's socket; 0 if unknown.
    pub peer_ino: u64,
}

impl FdFacts {
    /// A closed descriptor.
    pub const NONE: Self = Self {
        kind: FD_NONE,
        mode: 0,
        object: 0,
        ino: 0,
        peer: 0,
        peer_ino: 0,
    };
}

/// Descriptors 0 and 1 have the shape of an MCP server's standard input and output, and neither is the parent's own.
pub const EXEC_CANDIDATE: u32 = 1 << 0;
/// The kernel side began to watch the two streams.
pub const EXEC_WATCHED: u32 = 1 << 1;
/// The stream table had no room: the streams are not watched.
pub const EXEC_WATCH_FAILED: u32 = 1 << 2;
/// Descriptor 0 is the parent's own descriptor 0.
pub const EXEC_STDIN_INHERITED: u32 = 1 << 3;
/// The file name was longer than [`FILENAME_MAX`].
pub const EXEC_FILENAME_CUT: u32 = 1 << 4;
/// The arguments were longer than [`ARGV_MAX`].
pub const EXEC_ARGV_CUT: u32 = 1 << 5;
/// The arguments could not be read.
pub const EXEC_ARGV_UNREADABLE: u32 = 1 << 6;
/// The process is stopped before its first instruction, and is in the map of held processes.
pub const EXEC_HELD: u32 = 1 << 7;
/// The process was to be held and is not: stale heartbeat, no room in the ring or the map, or the signal was refused.
pub const EXEC_HOLD_FAILED: u32 = 1 << 8;

/// A process runs a new image. Followed in the ring by `argv_len` bytes of `argv`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ExecRecord {
    /// Kind, process, time.
    pub header: RecordHeader,
    /// Thread group id of the real parent.
    pub ppid: u32,
    /// Real user id in the initial user namespace.
    pub uid: u32,
    /// Real group id.
    pub gid: u32,
    /// An OR of the `EXEC_` values.
    pub flags: u32,
    /// Start of the process, CLOCK_BOOTTIME ns.
    pub start_ns: u64,
    /// Start of the parent process, CLOCK_BOOTTIME ns.
    pub parent_start_ns: u64,
    /// Id of the process's cgroup (version 2 hierarchy).
    pub cgroup_id: u64,
    /// Marks before the exec.
    pub mark_before: u8,
    /// Marks now.
    pub mark: u8,
    /// Marks of the parent.
    pub parent_mark: u8,
    /// Always 0.
    pub pad: u8,
    /// Valid bytes in `filename`.
    pub filename_len: u16,
    /// Valid bytes in `argv`.
    pub argv_len: u16,
    /// Short name.
    pub comm: [u8; COMM_LEN],
    /// Descriptors 0, 1, 2.
    pub fds: [FdFacts; 3],
    /// Path given to exec, as given, without the closing NUL.
    pub filename: [u8; FILENAME_MAX],
    /// Arguments, each closed by NUL.
    pub argv: [u8; ARGV_MAX],
}

/// A marked process forked.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ForkRecord {
    /// Kind, parent process, time.
    pub header: RecordHeader,
    /// The new process.
    pub child: u32,
    /// Marks of the child; low byte only.
    pub mark: u32,
    /// Start of the child, CLOCK_BOOTTIME ns.
    pub child_start_ns: u64,
}

/// A marked process ended with its last thread.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ExitRecord {
    /// Kind, process, time.
    pub header: RecordHeader,
    /// Start of the process, CLOCK_BOOTTIME ns.
    pub start_ns: u64,
    /// Marks it had; low byte only.
    pub mark: u32,
    /// Exit code as in `waitpid` status, where the kernel had set it for the group; else 0.
    pub group_exit_code: u32,
}

/// First chunk of its call.
pub const CHUNK_FIRST: u32 = 1 << 0;
/// Last chunk of its call.
pub const CHUNK_LAST: u32 = 1 << 1;
/// The caller's memory could not be read; the chunk stands for `covered` bytes and has no data.
pub const CHUNK_UNREADABLE: u32 = 1 << 2;
/// Something of this call was lost before this chunk.
pub const CHUNK_CALL_LOSSY: u32 = 1 << 3;

/// Header of one piece of a call's payload. Followed in the ring by `data_len` bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ChunkHeader {
    /// Kind, process, time of the call's return.
    pub header: RecordHeader,
    /// Thread that made the call.
    pub tid: u32,
    /// [`crate::stream::OP_READ`] or [`crate::stream::OP_WRITE`].
    pub op: u32,
    /// Object of the stream's key.
    pub object: u64,
    /// [`crate::stream::StreamValue::id`].
    pub stream: u64,
    /// Number of the call: unique while the sensor runs.
    pub call: u64,
    /// Position of this chunk in the call, bytes.
    pub offset: u64,
    /// Bytes the call moved.
    pub total: u64,
    /// [`crate::stream::StreamValue::lost_bytes`] at this time.
    pub lost_bytes: u64,
    /// [`crate::stream::StreamValue::lost_reasons`] at this time.
    pub lost_reasons: u32,
    /// [`crate::stream::StreamValue::lost_count`] at this time.
    pub lost_count: u32,
    /// An OR of the `CHUNK_` values.
    pub flags: u32,
    /// Bytes of the call this chunk stands for.
    pub covered: u32,
    /// Bytes that follow: `covered`, or 0 with [`CHUNK_UNREADABLE`].
    pub data_len: u32,
    /// System call number.
    pub syscall: u32,
}

/// Bytes passed on a stream that no chunk carries.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct GapRecord {
    /// Kind, process, time.
    pub header: RecordHeader,
    /// Object of the stream's key.
    pub object: u64,
    /// [`crate::stream::StreamValue::id`].
    pub stream: u64,
    /// [`crate::stream::StreamValue::lost_bytes`] after this loss.
    pub lost_bytes: u64,
    /// Bytes lost here.
    pub bytes: u64,
    /// [`crate::stream::OP_READ`] or [`crate::stream::OP_WRITE`].
    pub op: u32,
    /// An OR of [`crate::loss::Loss::bit`].
    pub reasons: u32,
    /// [`crate::stream::StreamValue::lost_count`] after this loss.
    pub lost_count: u32,
    /// System call number.
    pub syscall: u32,
}

/// An endpoint's read on a watched stream returned 0: the other side is closed.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct EofRecord {
    /// Kind, process, time.
    pub header: RecordHeader,
    /// Object of the stream's key.
    pub object: u64,
    /// [`crate::stream::StreamValue::id`].
    pub stream: u64,
}

/// A process is held whose exec record found no room.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct HeldRecord {
    /// Kind, process, time.
    pub header: RecordHeader,
    /// Start of the process, CLOCK_BOOTTIME ns.
    pub start_ns: u64,
}

/// An endpoint used io_uring for the first time.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct UringRecord {
    /// Kind, process, time.
    pub header: RecordHeader,
}

/// One open descriptor of one process, as the descriptor iterator writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FdRecord {
    /// Process id (thread group id).
    pub pid: u32,
    /// Descriptor number.
    pub fd: u32,
    /// What is open.
    pub facts: FdFacts,
}

#[cfg(feature = "user")]
mod user {
    use super::{
        ChunkHeader, EofRecord, ExecRecord, ExitRecord, FdFacts, FdRecord, ForkRecord, GapRecord, HeldRecord,
        RecordHeader, UringRecord,
    };

    macro_rules! pod {
        ($($record:ty),+) => {
            $(
                // SAFETY: repr(C), only integers, integer arrays and other such records, ordered so that there is
                // no padding (checked by `tests::no_padding`), no pointers.
                unsafe impl aya::Pod for $record {}
            )+
        };
    }
    pod!(
        EofRecord,
        RecordHeader,
        FdFacts,
        ExecRecord,
        ForkRecord,
        ExitRecord,
        ChunkHeader,
        GapRecord,
        HeldRecord,
        UringRecord,
        FdRecord
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_padding() {
        // Sums of the members' sizes: a difference would be padding, which the kernel side would leave unset.
        assert_eq!(size_of::<RecordHeader>(), 16);
        assert_eq!(size_of::<FdFacts>(), 40);
        assert_eq!(
            size_of::<ExecRecord>(),
            16 + 16 + 24 + 8 + COMM_LEN + 3 * 40 + FILENAME_MAX + ARGV_MAX
        );
        assert_eq!(size_of::<ForkRecord>(), 16 + 16);
        assert_eq!(size_of::<ExitRecord>(), 16 + 16);
        assert_eq!(size_of::<ChunkHeader>(), 16 + 8 + 6 * 8 + 6 * 4);
        assert_eq!(size_of::<GapRecord>(), 16 + 4 * 8 + 4 * 4);
        assert_eq!(size_of::<EofRecord>(), 16 + 16);
        assert_eq!(size_of::<FdRecord>(), 48);
        assert_eq!(size_of::<HeldRecord>(), 16 + 8);
    }

    #[test]
    fn chunk_data_follows_aligned() {
        assert_eq!(size_of::<ChunkHeader>() % 8, 0);
        assert_eq!(CHUNK_DATA % 8, 0);
    }
}
