//! Iterator over the open descriptors of every process (`iter/task_file`, 5.8 and later).

use aya_ebpf::helpers::generated::bpf_seq_write;
use kams_sensor_abi::record::{FD_PIPE, FD_UNIX_STREAM, FdFacts, FdRecord};

use crate::files;
use crate::kernel::word;
use crate::maps::offset;

/// `struct bpf_iter__task_file`.
#[repr(C)]
pub struct TaskFile {
    meta: *const Meta,
    task: u64,
    fd: u32,
    pad: u32,
    file: u64,
}

/// `struct bpf_iter_meta`.
#[repr(C)]
struct Meta {
    seq: *mut aya_ebpf::bindings::seq_file,
}

/// Writes an [`FdRecord`] for descriptors 0 to 2 and for every pipe and AF_UNIX stream socket.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
pub extern "C" fn descriptors(ctx: *const TaskFile) -> i32 {
    // SAFETY: the kernel passes a valid context; `volatile` keeps the accesses at their declared widths, which the
    // verifier demands.
    let (meta, task, fd, file) = unsafe {
        (
            core::ptr::read_volatile(&raw const (*ctx).meta),
            core::ptr::read_volatile(&raw const (*ctx).task),
            core::ptr::read_volatile(&raw const (*ctx).fd),
            core::ptr::read_volatile(&raw const (*ctx).file),
        )
    };
    if task == 0 || file == 0 {
        return 0;
    }
    let mut record = FdRecord {
        pid: word(task, offset!(task_tgid)),
        fd,
        facts: FdFacts::NONE,
    };
    files::describe(file, &mut record.facts);
    if fd <= 2 || record.facts.kind == FD_PIPE || record.facts.kind == FD_UNIX_STREAM {
        // SAFETY: `meta.seq` is a valid sequence file; the record is a local of the size given.
        unsafe {
            let seq = core::ptr::read_volatile(&raw const (*meta).seq);
            bpf_seq_write(seq, (&raw const record).cast(), size_of::<FdRecord>() as u32);
        }
    }
    0
}
