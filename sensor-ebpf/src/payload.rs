//! What an endpoint reads and writes on watched streams: one program at the exit of every system call.
//!
//! At exit the registers still hold the arguments and the result is known, so no program at entry and no map of
//! calls under way is needed. For a process without the endpoint mark nothing is looked at but its mark byte.
//!
//! Limits that follow from looking at the exit: a descriptor that another thread closed or replaced during the call
//! leads to nothing or to the other file; memory that another thread changed during the call is carried as it is now;
//! bytes that io_uring moves are not seen (its use is told).

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use kams_sensor_abi::loss::Loss;
use kams_sensor_abi::marks::URING_SEEN;
use kams_sensor_abi::record::{
    EofRecord, GapRecord, KIND_EOF, KIND_GAP, KIND_URING, RecordHeader, UringRecord,
};
use kams_sensor_abi::stream::{OP_READ, OP_WRITE, StreamKey, StreamValue};

use crate::arch::{self, Regs};
use crate::carry::{self, MessageHeader, Moved, SLOT_SYSTEM_CALL};
use crate::emit;
use crate::files;
use crate::functions;
use crate::kernel::{count, now, read, read_user, word};
use crate::lifecycle::watch_early;
use crate::maps::{STREAMS, offset};
use crate::marks::{endpoint, is_endpoint};
use crate::preempt;
use crate::rescue;
use crate::streams;

const MSG_OOB: u64 = 0x1;
const MSG_PEEK: u64 = 0x2;
/// `IORING_SETUP_SQPOLL`: the kernel takes submissions without a further call.
const SETUP_SQPOLL: u32 = 2;
/// Position of `flags` in `struct io_uring_params`.
const URING_FLAGS_AT: u64 = 8;

/// The call that just returned.
struct Call {
    /// The calling task.
    task: u64,
    /// Thread group id and thread id.
    id: u64,
    /// System call number.
    number: u64,
    /// Bytes it says it moved.
    bytes: u64,
}

/// What a call did on a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Duty {
    /// Moved bytes in a way that a program at a function sees as well, if there is one.
    Bytes,
    /// Moved bytes in another way.
    Moves,
}

/// Where a call's bytes are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One buffer: address.
    Buffer,
    /// A vector: address, number of elements.
    Vector,
    /// A message header: address.
    Message,
    /// Several message headers: address; the result is their number.
    Messages,
    /// Bytes that are not in the caller's memory.
    Opaque(Loss),
}

/// `sys_exit(struct pt_regs *regs, long ret)`, with `bpf_loop` (5.17 and later).
#[raw_tracepoint(tracepoint = "sys_exit")]
pub fn payload_loop(ctx: RawTracePointContext) -> i32 {
    // A function of its own: the program itself is what everyone pays for, and saves few registers then.
    #[inline(never)]
    fn work(ctx: *const u64) {
        preempt::disable();
        rescue::done();
        if prepare(ctx) {
            carry::run_loop(SLOT_SYSTEM_CALL);
        }
        preempt::enable();
    }
    if is_endpoint() {
        work(ctx.as_ptr().cast());
    }
    0
}

/// Runs after the first and does its work where the kernel skipped it; see `rescue`.
#[raw_tracepoint(tracepoint = "sys_exit")]
pub fn payload_rescue(ctx: RawTracePointContext) -> i32 {
    #[inline(never)]
    fn work(ctx: *const u64) {
        preempt::disable();
        if rescue::is_needed() && prepare(ctx) {
            carry::run_loop(SLOT_SYSTEM_CALL);
        }
        preempt::enable();
    }
    if is_endpoint() {
        work(ctx.as_ptr().cast());
    }
    0
}

/// The same with a bounded loop.
#[raw_tracepoint(tracepoint = "sys_exit")]
pub fn payload_bounded(ctx: RawTracePointContext) -> i32 {
    #[inline(never)]
    fn work(ctx: *const u64) {
        preempt::disable();
        if prepare(ctx) {
            carry::run_bounded(SLOT_SYSTEM_CALL);
        }
        preempt::enable();
    }
    if is_endpoint() {
        work(ctx.as_ptr().cast());
    }
    0
}

/// Looks at the call; `true` when the walk in the per-CPU state is ready to be carried.
#[inline(always)]
fn prepare(ctx: *const u64) -> bool {
    let Some((id, mark)) = endpoint() else {
        return false;
    };
    // SAFETY: a raw tracepoint's context begins with the two arguments.
    let (regs, result) = unsafe { (ctx.read(), ctx.add(1).read()) };
    look(regs, result as i64, id, mark)
}

#[inline(always)]
fn look(regs: u64, result: i64, id: u64, mark: *mut u8) -> bool {
    if result < 0 {
        return false;
    }
    let Some(regs) = read::<Regs>(regs) else {
        count(Loss::ReadKernel);
        return false;
    };
    // SAFETY: no arguments, no effect.
    let task = unsafe { bpf_get_current_task() };
    let number = regs.number();
    let call = Call {
        task,
        id,
        number,
        bytes: result as u64,
    };
    if word(task, offset!(task_ti_status)) & arch::TS_COMPAT != 0 {
        if let Some(writes) = arch::compat_direction(number) {
            let op = if writes { OP_WRITE } else { OP_READ };
            opaque(&call, regs.compat_arg0() as u32, op, Loss::UnsupportedCompat);
        }
        return false;
    }
    let plain = number & !arch::X32_BIT;
    let mut forced_form = None;
    if number & arch::X32_BIT != 0 && plain >= arch::X32_FIRST {
        forced_form = Some(Form::Opaque(Loss::UnsupportedCompat));
    }
    let (op, form, flags) = match plain {
        arch::SYS_READ => (OP_READ, Form::Buffer, 0),
        arch::SYS_WRITE => (OP_WRITE, Form::Buffer, 0),
        arch::SYS_READV | arch::SYS_PREADV2 => (OP_READ, Form::Vector, 0),
        arch::SYS_WRITEV | arch::SYS_PWRITEV2 => (OP_WRITE, Form::Vector, 0),
        arch::SYS_RECVFROM => (OP_READ, Form::Buffer, regs.arg3()),
        arch::SYS_SENDTO => (OP_WRITE, Form::Buffer, regs.arg3()),
        arch::SYS_RECVMSG => (OP_READ, Form::Message, regs.arg2()),
        arch::SYS_SENDMSG => (OP_WRITE, Form::Message, regs.arg2()),
        arch::SYS_RECVMMSG => (OP_READ, Form::Messages, regs.arg3()),
        arch::SYS_SENDMMSG => (OP_WRITE, Form::Messages, regs.arg3()),
        _ => {
            if !functions::have_calls() {
                without_bytes(&regs, result as u64, task, id, mark);
            }
            return false;
        }
    };
    let form = forced_form.unwrap_or(form);
    if flags & MSG_PEEK != 0 {
        return false;
    }
    let form = if flags & MSG_OOB != 0 {
        Form::Opaque(Loss::UnsupportedOob)
    } else {
        form
    };
    if let Form::Opaque(loss) = form {
        opaque(&call, regs.arg0() as u32, op, loss);
        return false;
    }
    let Some((object, value)) = watched(task, regs.arg0() as u32, op, Duty::Bytes) else {
        return false;
    };
    if result == 0 {
        if op == OP_READ && form == Form::Buffer && regs.arg2() > 0 {
            end_of_file(object, value, id);
        }
        return false;
    }
    let moved = Moved {
        id,
        object,
        op,
        number: number as u32,
        bytes: result as u64,
    };
    start(&regs, form, &moved, value)
}

/// Calls that move no bytes through the caller's memory. The call has not failed.
#[inline(always)]
pub fn without_bytes(regs: &Regs, result: u64, task: u64, id: u64, mark: *mut u8) {
    let number = regs.number();
    let call = Call {
        task,
        id,
        number,
        bytes: result,
    };
    match number & !arch::X32_BIT {
        arch::SYS_DUP2 | arch::SYS_DUP3 => {
            // A child on its way to exec sets up its standard input and output; see `prepare_exec`.
            if result <= 1 {
                watch_early(task);
            }
        }
        arch::SYS_SPLICE => {
            opaque(&call, regs.arg0() as u32, OP_READ, Loss::UnsupportedSplice);
            opaque(&call, regs.arg2() as u32, OP_WRITE, Loss::UnsupportedSplice);
        }
        arch::SYS_TEE => {
            opaque(&call, regs.arg0() as u32, OP_READ, Loss::UnsupportedSplice);
            opaque(&call, regs.arg1() as u32, OP_WRITE, Loss::UnsupportedSplice);
        }
        arch::SYS_SENDFILE => {
            opaque(&call, regs.arg0() as u32, OP_WRITE, Loss::UnsupportedSplice);
        }
        arch::SYS_VMSPLICE => {
            opaque(&call, regs.arg0() as u32, OP_WRITE, Loss::UnsupportedSplice);
            opaque(&call, regs.arg0() as u32, OP_READ, Loss::UnsupportedSplice);
        }
        arch::SYS_IO_URING_ENTER => uring(id, mark),
        arch::SYS_IO_URING_SETUP => {
            let setup = read_user::<u32>(regs.arg1() + URING_FLAGS_AT).unwrap_or(0);
            if setup & SETUP_SQPOLL != 0 {
                uring(id, mark);
            }
        }
        _ => {}
    }
}

/// The entry of the stream behind a descriptor, if it is watched and no function probe carries it.
#[inline(always)]
fn watched(task: u64, fd: u32, op: u32, duty: Duty) -> Option<(u64, *mut StreamValue)> {
    let file = files::file(task, fd);
    let object = files::object(file);
    if duty == Duty::Bytes && functions::carries(file, op) {
        return None;
    }
    Some((object, entry(object, op, file)?))
}

/// The entry of a stream, if it is watched. `file` is any open file of the object.
#[inline(always)]
pub fn entry(object: u64, op: u32, file: u64) -> Option<*mut StreamValue> {
    if object == 0 {
        return None;
    }
    let key = StreamKey { object, op, pad: 0 };
    let value = STREAMS.get_ptr_mut(key)?;
    // SAFETY: a valid entry of the table; it is not freed while this program runs.
    let expected = unsafe { (*value).ino };
    if expected != 0 && expected != files::inode_number(file) {
        // The object that was watched is gone and its address serves another one.
        count(Loss::MapStale);
        let _gone_already = STREAMS.remove(key);
        return None;
    }
    // SAFETY: as above; two CPUs may race, and either time is right.
    unsafe { (*value).used_ns = now() };
    Some(value)
}

#[inline(always)]
fn start(regs: &Regs, form: Form, moved: &Moved, value: *mut StreamValue) -> bool {
    let Some(carry) = carry::state(SLOT_SYSTEM_CALL) else {
        return false;
    };
    let result = moved.bytes;
    carry::begin(carry, moved, value);
    let walk = &mut carry.walk;
    match form {
        Form::Buffer => {
            walk.base = regs.arg1();
            walk.base_left = result;
        }
        Form::Vector => {
            walk.vector = regs.arg1();
            walk.vector_left = regs.arg2();
        }
        Form::Message => {
            // An unreadable header leaves no vector: the walk counts the bytes as lost.
            if let Some(message) = read_user::<MessageHeader>(regs.arg1()) {
                walk.vector = message.vector;
                walk.vector_left = message.vector_len;
            }
        }
        Form::Messages => {
            walk.left = 0;
            walk.message = regs.arg1();
            walk.message_left = result;
        }
        Form::Opaque(_) => return false,
    }
    true
}

/// Bytes moved that cannot be read: a loss and a record, if the descriptor is a watched stream.
#[inline(never)]
fn opaque(call: &Call, fd: u32, op: u32, loss: Loss) {
    let bytes = call.bytes;
    if bytes == 0 {
        return;
    }
    // Function probes read what 32-bit and out-of-band calls move, or tell it themselves.
    let duty = if matches!(loss, Loss::UnsupportedCompat | Loss::UnsupportedOob) {
        Duty::Bytes
    } else {
        Duty::Moves
    };
    let Some((object, value)) = watched(call.task, fd, op, duty) else {
        return;
    };
    let moved = Moved {
        id: call.id,
        object,
        op,
        number: call.number as u32,
        bytes,
    };
    gap(&moved, value, loss);
}

/// A loss on a stream, and its record.
#[inline(always)]
pub fn gap(moved: &Moved, value: *mut StreamValue, loss: Loss) {
    let bytes = moved.bytes;
    streams::lose(value, loss, bytes);
    // SAFETY: a valid entry, see `watched`.
    let (stream, lost_bytes, reasons, lost_count) = unsafe {
        (
            (*value).id,
            (*value).lost_bytes,
            (*value).lost_reasons,
            (*value).lost_count,
        )
    };
    let record = GapRecord {
        header: RecordHeader {
            kind: KIND_GAP,
            pid: (moved.id >> 32) as u32,
            time_ns: now(),
        },
        object: moved.object,
        stream,
        lost_bytes,
        bytes,
        op: moved.op,
        reasons,
        lost_count,
        syscall: moved.number,
    };
    // If this record is lost, the next chunk of the stream or the reader's look at the table tells the gap.
    emit::payload::<_, { size_of::<GapRecord>() as i32 }>(&raw const record, size_of::<GapRecord>() as u64);
}

#[inline(always)]
pub fn end_of_file(object: u64, value: *mut StreamValue, id: u64) {
    // SAFETY: a valid entry, see `watched`.
    let stream = unsafe { (*value).id };
    let record = EofRecord {
        header: RecordHeader {
            kind: KIND_EOF,
            pid: (id >> 32) as u32,
            time_ns: now(),
        },
        object,
        stream,
    };
    emit::lifecycle(&raw const record, size_of::<EofRecord>() as u64);
}

/// Counts every use of io_uring by an endpoint and tells the first of each process.
#[inline(always)]
pub fn uring(id: u64, mark: *mut u8) {
    count(Loss::UnsupportedUring);
    // SAFETY: a valid byte of the array. See the user side's `marks.rs` for the race with its writes.
    unsafe {
        let now = mark.read_volatile();
        if now & URING_SEEN != 0 {
            return;
        }
        mark.write_volatile(now | URING_SEEN);
    }
    let record = UringRecord {
        header: RecordHeader {
            kind: KIND_URING,
            pid: (id >> 32) as u32,
            time_ns: now(),
        },
    };
    emit::lifecycle(&raw const record, size_of::<UringRecord>() as u64);
}
