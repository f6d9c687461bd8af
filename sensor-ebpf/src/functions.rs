//! The same as `payload` at the ends of the functions that move bytes on pipes and AF_UNIX streams.
//!
//! Only a process that reads or writes a pipe or such a socket comes here: other system calls cost nobody anything.
//! The loader chooses the functions by name (`pipe_read` was renamed to `anon_pipe_read` in 6.16) and attaches a
//! program here only after it has seen it work.
//!
//! There are no programs at the functions' begin, which would double the cost for everyone. At the end the iterator
//! over the caller's buffers has moved on, by what a socket's call says it was asked for and has left, and on a pipe
//! by the bytes that moved: the walk goes back by as much. On a pipe it must come to the start of a buffer. Where it
//! does not (the caller's memory ran out in the middle of a call, and more was copied than counted; or io_uring
//! tried a call again), the call is told as lost.

use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_get_current_task};
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use kams_sensor_abi::function::{
    DUTY_CALLS, DUTY_PIPE_READ, DUTY_PIPE_WRITE, DUTY_UNIX_READ, DUTY_UNIX_WRITE, Iterators,
};
use kams_sensor_abi::loss::Loss;
use kams_sensor_abi::stream::{OP_READ, OP_WRITE, StreamValue};

use crate::arch::Regs;
use crate::carry::{self, Moved};
use crate::files;
use crate::kernel::{count, pointer, read, word};
use crate::maps::offset;
use crate::marks::{endpoint, is_endpoint};
use crate::payload;
use crate::preempt;
use crate::rescue;

const MSG_OOB: u32 = 0x1;
const MSG_PEEK: u64 = 0x2;

/// Offsets; the loader overwrites them before the programs are verified.
#[unsafe(no_mangle)]
pub static ITERATORS: Iterators = Iterators::UNRESOLVED;

/// Duties (`DUTY_`) that programs at functions have taken over from the program at the exit of system calls.
#[map]
pub static DUTIES: Array<u64> = Array::with_max_entries(1, 0);

macro_rules! iterator {
    ($member:ident) => {
        // SAFETY: a valid, aligned address of a static; volatile as in `offset!`.
        unsafe { core::ptr::read_volatile(&raw const ITERATORS.$member) }
    };
}

/// Whether programs at functions have taken over one of these duties.
#[inline(always)]
fn has(duty: u64) -> bool {
    DUTIES.get(0).is_some_and(|duties| *duties & duty != 0)
}

/// Whether a program at a function carries what passes on this file in this direction.
#[inline(always)]
pub fn carries(file: u64, op: u32) -> bool {
    let (pipe, socket) = if op == OP_READ {
        (DUTY_PIPE_READ, DUTY_UNIX_READ)
    } else {
        (DUTY_PIPE_WRITE, DUTY_UNIX_WRITE)
    };
    has(pipe | socket) && has(if files::is_pipe(file) { pipe } else { socket })
}

/// Whether programs at functions do what is to be done at calls that move no bytes through the caller's memory.
#[inline(always)]
pub fn have_calls() -> bool {
    has(DUTY_CALLS)
}

/// What a function was called with, and what it returned: the tracing context as a plain array.
type Arguments = [u64; 5];

/// Reads the context as memory, so that the verifier sees numbers and not pointers of many types.
#[inline(always)]
fn arguments(ctx: *const u64) -> Arguments {
    read(ctx as u64).unwrap_or([0; 5])
}

/// `pipe_read` and `pipe_write`: `ssize_t f(struct kiocb *, struct iov_iter *)`.
#[inline(never)]
fn pipe(ctx: *const u64, slot: u32, op: u32) -> u32 {
    let [kiocb, iterator, result, ..] = arguments(ctx);
    // SAFETY: no arguments, no effect.
    let id = unsafe { bpf_get_current_pid_tgid() };
    let result = result as i64;
    if result < 0 {
        return 0;
    }
    let file = pointer(kiocb, iterator!(kiocb_file));
    let object = files::object(file);
    let Some(value) = payload::entry(object, op, file) else {
        return 0;
    };
    if result == 0 {
        if op == OP_READ && pointer(iterator, iterator!(iter_count)) > 0 {
            payload::end_of_file(object, value, id);
        }
        return 0;
    }
    let moved = Moved {
        id,
        object,
        op,
        number: 0,
        bytes: result as u64,
    };
    u32::from(start(&moved, value, slot, iterator, None))
}

/// `int unix_stream_sendmsg(struct socket *, struct msghdr *, size_t)`.
#[inline(never)]
fn send(ctx: *const u64, slot: u32) -> u32 {
    let [socket, message, asked, result, _] = arguments(ctx);
    socket_call(socket, message, asked, result, OP_WRITE, slot)
}

/// `int unix_stream_recvmsg(struct socket *, struct msghdr *, size_t, int)`.
#[inline(never)]
fn receive(ctx: *const u64, slot: u32) -> u32 {
    let [socket, message, asked, flags, result] = arguments(ctx);
    if flags & MSG_PEEK != 0 {
        return 0;
    }
    socket_call(socket, message, asked, result, OP_READ, slot)
}

#[inline(always)]
fn socket_call(socket: u64, message: u64, asked: u64, result: u64, op: u32, slot: u32) -> u32 {
    // SAFETY: no arguments, no effect.
    let id = unsafe { bpf_get_current_pid_tgid() };
    let result = result as i32;
    if result < 0 {
        return 0;
    }
    let file = pointer(socket, offset!(socket_file));
    let Some(value) = payload::entry(socket, op, file) else {
        return 0;
    };
    if result == 0 {
        if op == OP_READ && asked > 0 {
            payload::end_of_file(socket, value, id);
        }
        return 0;
    }
    let moved = Moved {
        id,
        object: socket,
        op,
        number: 0,
        bytes: result as u64,
    };
    // On return a receiver finds its own bits in the flags: what it asked for stands in the call's argument.
    if op == OP_WRITE && word(message, iterator!(msghdr_flags)) & MSG_OOB != 0 {
        payload::gap(&moved, value, Loss::UnsupportedOob);
        return 0;
    }
    let iterator = message + u64::from(iterator!(msghdr_iter));
    u32::from(start(&moved, value, slot, iterator, Some(asked)))
}

/// Prepares the walk over the iterator's buffers. `asked` is what the call was to move, where that is known.
#[inline(always)]
fn start(moved: &Moved, value: *mut StreamValue, slot: u32, iterator: u64, asked: Option<u64>) -> bool {
    let Some(carry) = carry::state(slot) else {
        return false;
    };
    let kind = read::<u8>(iterator + u64::from(iterator!(iter_type))).unwrap_or(0);
    let kind = u32::from(kind) & iterator!(type_mask);
    let skip = pointer(iterator, iterator!(iter_offset));
    let back = match asked {
        // A call is never asked for less than it moved, and has moved what it no longer has to do.
        Some(asked) => asked.wrapping_sub(pointer(iterator, iterator!(iter_count))),
        None => moved.bytes,
    };
    if kind == iterator!(type_buffer) {
        if skip < back || (asked.is_none() && skip != back) {
            payload::gap(moved, value, Loss::ReadVector);
            return false;
        }
        carry::begin(carry, moved, value);
        carry.walk.base = pointer(iterator, iterator!(iter_buffer)) + (skip - back);
        carry.walk.base_left = moved.bytes;
        return true;
    }
    if kind == iterator!(type_vector) {
        carry::begin(carry, moved, value);
        let walk = &mut carry.walk;
        walk.vector = pointer(iterator, iterator!(iter_vector));
        // How many there are is not needed: the bytes that moved end the walk.
        walk.vector_left = u64::from(u32::MAX);
        walk.vector_in_kernel = 1;
        walk.rewind = back;
        walk.skip = skip;
        walk.begins_element = u64::from(asked.is_none());
        return true;
    }
    // Pages: of splice and sendfile, which are told at their calls, or of io_uring, whose use is told.
    false
}

macro_rules! programs {
    ($($looping:ident, $bounded:ident, $rescue:ident, $slot:literal, $section:literal, |$ctx:ident| $body:expr;)+) => {
        $(
            /// With `bpf_loop` (5.17 and later).
            #[unsafe(no_mangle)]
            #[unsafe(link_section = concat!("fexit/", $section))]
            pub extern "C" fn $looping($ctx: *const u64) -> i32 {
                // A function of its own: the program itself is what everyone pays for, and saves few registers then.
                #[inline(never)]
                fn work($ctx: *const u64) {
                    preempt::disable();
                    rescue::done();
                    if $body != 0 {
                        carry::run_loop($slot);
                    }
                    preempt::enable();
                }
                if is_endpoint() {
                    work($ctx);
                }
                0
            }

            /// Runs after the first and does its work where the kernel skipped it; see `rescue`.
            #[unsafe(no_mangle)]
            #[unsafe(link_section = concat!("fexit/", $section))]
            pub extern "C" fn $rescue($ctx: *const u64) -> i32 {
                #[inline(never)]
                fn work($ctx: *const u64) {
                    preempt::disable();
                    if rescue::is_needed() && $body != 0 {
                        carry::run_loop($slot);
                    }
                    preempt::enable();
                }
                if is_endpoint() {
                    work($ctx);
                }
                0
            }

            /// With a bounded loop.
            #[unsafe(no_mangle)]
            #[unsafe(link_section = concat!("fexit/", $section))]
            pub extern "C" fn $bounded($ctx: *const u64) -> i32 {
                #[inline(never)]
                fn work($ctx: *const u64) {
                    preempt::disable();
                    if $body != 0 {
                        carry::run_bounded($slot);
                    }
                    preempt::enable();
                }
                if is_endpoint() {
                    work($ctx);
                }
                0
            }
        )+
    };
}

programs! {
    pipe_read_loop, pipe_read_bounded, pipe_read_rescue, 1, "pipe_read", |ctx| pipe(ctx, 1, OP_READ);
    pipe_write_loop, pipe_write_bounded, pipe_write_rescue, 2, "pipe_write", |ctx| pipe(ctx, 2, OP_WRITE);
    fifo_read_loop, fifo_read_bounded, fifo_read_rescue, 3, "fifo_pipe_read", |ctx| pipe(ctx, 3, OP_READ);
    fifo_write_loop, fifo_write_bounded, fifo_write_rescue, 4, "fifo_pipe_write", |ctx| pipe(ctx, 4, OP_WRITE);
    unix_read_loop, unix_read_bounded, unix_read_rescue, 5, "unix_stream_recvmsg", |ctx| receive(ctx, 5);
    unix_write_loop, unix_write_bounded, unix_write_rescue, 6, "unix_stream_sendmsg", |ctx| send(ctx, 6);
}

macro_rules! calls {
    ($($name:ident, $section:literal;)+) => {
        $(
            /// The end of a system call's function.
            #[unsafe(no_mangle)]
            #[unsafe(link_section = concat!("fexit/", $section))]
            pub extern "C" fn $name(ctx: *const u64) -> i32 {
                if let Some((id, mark)) = endpoint() {
                    preempt::disable();
                    call(ctx, id, mark);
                    preempt::enable();
                }
                0
            }
        )+
    };
}

calls! {
    call_splice, "__x64_sys_splice";
    call_tee, "__x64_sys_tee";
    call_vmsplice, "__x64_sys_vmsplice";
    call_sendfile, "__x64_sys_sendfile64";
    call_uring_setup, "__x64_sys_io_uring_setup";
    call_uring_enter, "__x64_sys_io_uring_enter";
    call_dup2, "__x64_sys_dup2";
    call_dup3, "__x64_sys_dup3";
}

/// `long f(const struct pt_regs *)`.
#[inline(never)]
fn call(ctx: *const u64, id: u64, mark: *mut u8) {
    let [regs, result, ..] = arguments(ctx);
    if (result as i64) < 0 {
        return;
    }
    let Some(regs) = read::<Regs>(regs) else {
        count(Loss::ReadKernel);
        return;
    };
    // SAFETY: no arguments, no effect.
    let task = unsafe { bpf_get_current_task() };
    payload::without_bytes(&regs, result, task, id, mark);
}
