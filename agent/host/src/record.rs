//! Ring records to events.

use aya::Pod;
use bytes::Bytes;
use kams_sensor_abi::record::{
    CHUNK_CALL_LOSSY, CHUNK_LAST, CHUNK_UNREADABLE, ChunkHeader, EXEC_ARGV_CUT, EXEC_ARGV_UNREADABLE,
    EXEC_CANDIDATE, EXEC_FILENAME_CUT, EXEC_HELD, EXEC_HOLD_FAILED, EXEC_STDIN_INHERITED, EXEC_WATCH_FAILED,
    EXEC_WATCHED, EofRecord, ExecRecord, ExitRecord, FD_CHR, FD_NONE, FD_PIPE, FD_REGULAR, FD_SOCKET_OTHER,
    FD_UNIX_OTHER, FD_UNIX_STREAM, FdFacts, ForkRecord, GapRecord, HeldRecord, KIND_CHUNK, KIND_EOF,
    KIND_EXEC, KIND_EXIT, KIND_FORK, KIND_GAP, KIND_HELD, KIND_URING, RecordHeader, UringRecord,
};

use kams_sensor_abi::stream::OP_READ;

use crate::event::{Chunk, ExecReport, FdKind, FdShape, Marks, Object, SensorEvent, StreamId};
use crate::streams::key_of;

/// A stream's running totals of what was lost, as each payload record carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostTotals {
    pub(crate) bytes: u64,
    pub(crate) reasons: u32,
    pub(crate) count: u32,
}

/// One understood ring record.
#[derive(Debug)]
pub(crate) enum Record {
    /// Not payload.
    Event(SensorEvent),
    /// Payload; `data` is empty when the caller's memory was unreadable (its bytes are in `lost` then).
    Chunk { chunk: Chunk, lost: LostTotals },
    /// A loss without a chunk.
    Gap {
        object: u64,
        op: u32,
        stream: StreamId,
        lost: LostTotals,
    },
}

/// Copies a `T` from the start of `bytes`.
pub(crate) fn read<T: Pod>(bytes: &[u8]) -> Option<T> {
    let source = bytes.get(..size_of::<T>())?;
    // SAFETY: `source` is exactly as long as `T`, and `Pod` promises that every byte pattern is a valid `T`.
    Some(unsafe { source.as_ptr().cast::<T>().read_unaligned() })
}

/// Understands one ring record; `None` if it is none of ours (too short or of unknown kind).
pub(crate) fn parse(bytes: &[u8]) -> Option<Record> {
    let header: RecordHeader = read(bytes)?;
    match header.kind {
        KIND_EXEC => exec(bytes).map(|report| Record::Event(SensorEvent::Exec(Box::new(report)))),
        KIND_FORK => {
            let record: ForkRecord = read(bytes)?;
            Some(Record::Event(SensorEvent::Fork {
                pid: record.child,
                ppid: header.pid,
                marks: low_marks(record.mark),
                start_ns: record.child_start_ns,
                time_ns: header.time_ns,
            }))
        }
        KIND_EXIT => {
            let record: ExitRecord = read(bytes)?;
            Some(Record::Event(SensorEvent::Exit {
                pid: header.pid,
                start_ns: record.start_ns,
                marks: low_marks(record.mark),
                time_ns: header.time_ns,
            }))
        }
        KIND_CHUNK => chunk(bytes),
        KIND_GAP => {
            let record: GapRecord = read(bytes)?;
            Some(Record::Gap {
                object: record.object,
                op: record.op,
                stream: StreamId(record.stream),
                lost: LostTotals {
                    bytes: record.lost_bytes,
                    reasons: record.reasons,
                    count: record.lost_count,
                },
            })
        }
        KIND_EOF => {
            let record: EofRecord = read(bytes)?;
            Some(Record::Event(SensorEvent::StreamEof {
                key: key_of(record.object, OP_READ),
                stream: StreamId(record.stream),
                pid: header.pid,
                time_ns: header.time_ns,
            }))
        }
        KIND_HELD => {
            let record: HeldRecord = read(bytes)?;
            Some(Record::Event(SensorEvent::Held {
                pid: record.header.pid,
                start_ns: record.start_ns,
                time_ns: record.header.time_ns,
            }))
        }
        KIND_URING => {
            let record: UringRecord = read(bytes)?;
            let RecordHeader { pid, time_ns, .. } = record.header;
            Some(Record::Event(SensorEvent::IoUring { pid, time_ns }))
        }
        _ => None,
    }
}

const fn low_marks(value: u32) -> Marks {
    Marks(value.to_le_bytes()[0])
}

fn chunk(bytes: &[u8]) -> Option<Record> {
    let header: ChunkHeader = read(bytes)?;
    let data = bytes
        .get(size_of::<ChunkHeader>()..)?
        .get(..usize::try_from(header.data_len).ok()?)?;
    let chunk = Chunk {
        key: key_of(header.object, header.op),
        stream: StreamId(header.stream),
        pid: header.header.pid,
        tid: header.tid,
        call: header.call,
        offset: header.offset,
        total: header.total,
        time_ns: header.header.time_ns,
        last: header.flags & CHUNK_LAST != 0,
        call_lossy: header.flags & (CHUNK_CALL_LOSSY | CHUNK_UNREADABLE) != 0,
        syscall: header.syscall,
        data: Bytes::copy_from_slice(data),
    };
    let lost = LostTotals {
        bytes: header.lost_bytes,
        reasons: header.lost_reasons,
        count: header.lost_count,
    };
    Some(Record::Chunk { chunk, lost })
}

/// Descriptor facts in user-side types.
pub(crate) fn fd_shape(facts: &FdFacts) -> FdShape {
    let kind = match facts.kind {
        FD_NONE => FdKind::None,
        FD_PIPE => FdKind::Pipe,
        FD_UNIX_STREAM => FdKind::UnixStream,
        FD_UNIX_OTHER => FdKind::UnixOther,
        FD_SOCKET_OTHER => FdKind::SocketOther,
        FD_CHR => FdKind::Chr,
        FD_REGULAR => FdKind::Regular,
        _ => FdKind::Other,
    };
    let object = |address: u64| (address != 0).then_some(Object(address));
    FdShape {
        kind,
        readable: facts.mode & 1 != 0,
        writable: facts.mode & 2 != 0,
        object: object(facts.object),
        ino: facts.ino,
        peer: object(facts.peer),
        peer_ino: facts.peer_ino,
    }
}

fn exec(bytes: &[u8]) -> Option<ExecReport> {
    // The record ends after the valid part of `argv`.
    let mut whole = [0u8; size_of::<ExecRecord>()];
    let fixed = std::mem::offset_of!(ExecRecord, argv);
    if bytes.len() < fixed {
        return None;
    }
    let len = bytes.len().min(whole.len());
    whole[..len].copy_from_slice(&bytes[..len]);
    let record: ExecRecord = read(&whole)?;
    let filename = record.filename.get(..usize::from(record.filename_len))?;
    let argv = record.argv.get(..usize::from(record.argv_len))?;
    let comm_len = record
        .comm
        .iter()
        .position(|&b| b == 0)
        .unwrap_or(record.comm.len());
    let flag = |bit: u32| record.flags & bit != 0;
    Some(ExecReport {
        pid: record.header.pid,
        ppid: record.ppid,
        uid: record.uid,
        gid: record.gid,
        time_ns: record.header.time_ns,
        start_ns: record.start_ns,
        parent_start_ns: record.parent_start_ns,
        cgroup_id: record.cgroup_id,
        marks: Marks(record.mark),
        marks_before: Marks(record.mark_before),
        parent_marks: Marks(record.parent_mark),
        comm: Bytes::copy_from_slice(record.comm.get(..comm_len)?),
        filename: Bytes::copy_from_slice(filename),
        filename_cut: flag(EXEC_FILENAME_CUT),
        argv: Bytes::copy_from_slice(argv),
        argv_cut: flag(EXEC_ARGV_CUT | EXEC_ARGV_UNREADABLE),
        fds: [
            fd_shape(&record.fds[0]),
            fd_shape(&record.fds[1]),
            fd_shape(&record.fds[2]),
        ],
        candidate: flag(EXEC_CANDIDATE),
        stdin_inherited: flag(EXEC_STDIN_INHERITED),
        watched: flag(EXEC_WATCHED),
        watch_failed: flag(EXEC_WATCH_FAILED),
        held: flag(EXEC_HELD),
        hold_failed: flag(EXEC_HOLD_FAILED),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..2048), kind in 0u32..10) {
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&kind.to_le_bytes());
            }
            if let Some(Record::Chunk { chunk, .. }) = parse(&bytes) {
                prop_assert!(chunk.data.len() + size_of::<ChunkHeader>() <= bytes.len());
            }
        }
    }
}
