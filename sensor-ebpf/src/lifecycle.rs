//! Exec, fork and exit of every process of the host.

use aya_ebpf::helpers::generated::{
    bpf_get_current_cgroup_id, bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_uid_gid,
    bpf_probe_read_kernel_str, bpf_probe_read_user,
};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use kams_sensor_abi::marks::{ARMED, ENDPOINT, INHERITED_ON_FORK, KEPT_ON_EXEC, RELAYED, SERVER};
use kams_sensor_abi::record::{
    ARGV_MAX, COMM_LEN, EXEC_ARGV_CUT, EXEC_ARGV_UNREADABLE, EXEC_CANDIDATE, EXEC_FILENAME_CUT, EXEC_HELD,
    EXEC_HOLD_FAILED, EXEC_STDIN_INHERITED, EXEC_WATCH_FAILED, EXEC_WATCHED, ExecRecord, ExitRecord, FD_PIPE,
    FD_UNIX_STREAM, FILENAME_MAX, FdFacts, ForkRecord, HeldRecord, KIND_EXEC, KIND_EXIT, KIND_FORK,
    KIND_HELD, RecordHeader,
};
use kams_sensor_abi::stream::{OP_READ, OP_WRITE};

use crate::emit;
use crate::files;
use crate::hold;
use crate::kernel::{now, pointer, word};
use crate::maps::{EVENTS, EXEC_SCRATCH, offset};
use crate::marks::{mark, mark_of};
use crate::preempt;
use crate::streams;

#[inline(always)]
fn start_of(task: u64) -> u64 {
    pointer(
        pointer(task, offset!(task_group_leader)),
        offset!(task_start_boottime),
    )
}

/// `sched_prepare_exec(struct task_struct *task, struct linux_binprm *bprm)` (6.10 and later): the old image is still
/// there, and so are descriptors to be closed on exec.
///
/// An agent that waits for the closing of such a descriptor, or for the end of vfork, goes on *before*
/// `sched_process_exec` fires and can write its first line then: the streams must be watched here already. The
/// payload program does the same at dup2 for kernels without this tracepoint.
#[raw_tracepoint(tracepoint = "sched_prepare_exec")]
pub fn prepare_exec(ctx: RawTracePointContext) -> i32 {
    preempt::disable();
    watch_early(ctx.arg::<u64>(0));
    preempt::enable();
    0
}

/// Watches the streams of a process that an endpoint started, before its exec.
#[inline(always)]
pub fn watch_early(task: u64) {
    let parent = pointer(task, offset!(task_real_parent));
    let ppid = word(parent, offset!(task_tgid));
    if mark(ppid) & ENDPOINT == 0 {
        return;
    }
    let pid = word(task, offset!(task_tgid));
    if pid == ppid || mark(pid) & RELAYED != 0 {
        return;
    }
    let mut input = FdFacts::NONE;
    let mut output = FdFacts::NONE;
    files::describe(files::file(task, 0), &mut input);
    files::describe(files::file(task, 1), &mut output);
    let inherited = input.object == files::object(files::file(parent, 0))
        || output.object == files::object(files::file(parent, 1));
    if inherited || !is_candidate(&input, &output) {
        return;
    }
    if !watch(&input, &output, pid, ppid) {
        return;
    }
    let byte = mark_of(pid);
    // SAFETY: a valid byte of the table. See the user side's `marks.rs` for the race with its writes.
    unsafe { byte.write_volatile(byte.read_volatile() | SERVER) };
}

/// `sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`: the new image is in place,
/// close-on-exec is done, no instruction of it has run.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn process_exec(ctx: RawTracePointContext) -> i32 {
    let Some(record) = EXEC_SCRATCH.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: this CPU's scratch value; the program does not interrupt itself.
    let record = unsafe { &mut *record };
    preempt::disable();
    exec(ctx.arg::<u64>(0), ctx.arg::<u64>(2), record);
    preempt::enable();
    #[cfg(feature = "log")]
    aya_log_ebpf::debug!(
        &ctx,
        "exec of {} by {}: flags {:x}",
        record.header.pid,
        record.ppid,
        record.flags
    );
    0
}

#[inline(always)]
fn exec(task: u64, bprm: u64, record: &mut ExecRecord) {
    // SAFETY: no arguments, no effect.
    let pid = (unsafe { bpf_get_current_pid_tgid() } >> 32) as u32;
    let parent = pointer(task, offset!(task_real_parent));
    record.ppid = word(parent, offset!(task_tgid));
    record.header.kind = KIND_EXEC;
    record.header.pid = pid;
    record.header.time_ns = now();
    // SAFETY: no arguments, no effect.
    let ids = unsafe { bpf_get_current_uid_gid() };
    record.uid = ids as u32;
    record.gid = (ids >> 32) as u32;
    record.start_ns = start_of(task);
    record.parent_start_ns = start_of(parent);
    // SAFETY: no arguments, no effect.
    record.cgroup_id = unsafe { bpf_get_current_cgroup_id() };
    record.pad = 0;
    // SAFETY: the destination is as long as said.
    unsafe { bpf_get_current_comm(record.comm.as_mut_ptr().cast(), COMM_LEN as u32) };
    files::describe(files::file(task, 0), &mut record.fds[0]);
    files::describe(files::file(task, 1), &mut record.fds[1]);
    files::describe(files::file(task, 2), &mut record.fds[2]);

    let mut flags = 0;
    let same = |facts: &FdFacts, fd: u32| {
        facts.object != 0 && facts.object == files::object(files::file(parent, fd))
    };
    let inherited = same(&record.fds[0], 0);
    if inherited {
        flags |= EXEC_STDIN_INHERITED;
    }
    let inherited = inherited || same(&record.fds[1], 1);
    record.parent_mark = mark(record.ppid);
    let byte = mark_of(pid);
    // SAFETY: a valid byte of the table. See the user side's `marks.rs` for the race with its writes.
    let before = unsafe { byte.read_volatile() };
    record.mark_before = before;
    let mut kept = before & KEPT_ON_EXEC;
    // Kept until the user side takes it away: a report that is lost or late must not end the following.
    let followed = before & (ENDPOINT | ARMED) == ARMED;
    if followed {
        kept |= ARMED;
    }
    if is_candidate(&record.fds[0], &record.fds[1]) && !inherited {
        flags |= EXEC_CANDIDATE;
        if record.parent_mark & ENDPOINT != 0 && before & RELAYED == 0 {
            if watch(&record.fds[0], &record.fds[1], pid, record.ppid) {
                flags |= EXEC_WATCHED;
                kept |= SERVER;
            } else {
                flags |= EXEC_WATCH_FAILED;
            }
        }
    }
    if kept != before {
        // SAFETY: as above.
        unsafe { byte.write_volatile(kept) };
    }
    record.mark = kept;

    flags |= copy_filename(bprm, record);
    flags |= copy_argv(task, record);
    record.flags = flags;
    let armed = record.parent_mark & (ENDPOINT | ARMED) == ENDPOINT | ARMED;
    if followed || (armed && flags & EXEC_CANDIDATE != 0 && record.mark & RELAYED == 0) {
        tell_held(record);
    } else {
        tell(record);
    }
}

#[inline(always)]
fn tell(record: &ExecRecord) -> bool {
    let len = core::mem::offset_of!(ExecRecord, argv) + (record.argv_len as usize).min(ARGV_MAX);
    emit::lifecycle(&raw const *record, len as u64)
}

/// Holds the process and tells of it. Room in the ring is taken first: a process is never stopped that nobody is told
/// of.
#[inline(always)]
fn tell_held(record: &mut ExecRecord) {
    let Some(mut token) = EVENTS.reserve::<HeldRecord>(0) else {
        record.flags |= EXEC_HOLD_FAILED;
        tell(record);
        return;
    };
    token.write(HeldRecord {
        header: RecordHeader {
            kind: KIND_HELD,
            pid: record.header.pid,
            time_ns: record.header.time_ns,
        },
        start_ns: record.start_ns,
    });
    let held = hold::hold(record.header.pid, record.start_ns);
    record.flags |= if held { EXEC_HELD } else { EXEC_HOLD_FAILED };
    if !tell(record) && held {
        token.submit(0);
    } else {
        token.discard(0);
    }
}

#[inline(always)]
fn far(facts: &FdFacts) -> (u64, u64) {
    if facts.kind == FD_PIPE {
        (facts.object, facts.ino)
    } else {
        (facts.peer, facts.peer_ino)
    }
}

/// DESIGN section 5: each a pipe or a connected AF_UNIX stream, open in the right direction; two different objects, or
/// one socket for both.
#[inline(always)]
fn is_candidate(input: &FdFacts, output: &FdFacts) -> bool {
    let carries =
        |facts: &FdFacts| facts.kind == FD_PIPE || (facts.kind == FD_UNIX_STREAM && facts.peer != 0);
    let distinct = input.object != output.object || input.kind == FD_UNIX_STREAM;
    carries(input) && carries(output) && distinct && input.mode & 1 != 0 && output.mode & 2 != 0
}

#[inline(always)]
fn watch(input: &FdFacts, output: &FdFacts, server: u32, agent: u32) -> bool {
    let (to_server, to_server_ino) = far(input);
    let (from_server, from_server_ino) = far(output);
    let first = streams::insert(to_server, OP_WRITE, to_server_ino, server, agent);
    let second = streams::insert(from_server, OP_READ, from_server_ino, server, agent);
    first && second
}

#[inline(always)]
fn copy_filename(bprm: u64, record: &mut ExecRecord) -> u32 {
    let name = pointer(bprm, offset!(bprm_filename));
    // SAFETY: the destination is as long as said; the helper checks the source.
    let copied = unsafe {
        bpf_probe_read_kernel_str(
            record.filename.as_mut_ptr().cast(),
            FILENAME_MAX as u32,
            name as *const _,
        )
    };
    if copied <= 0 {
        record.filename_len = 0;
        return EXEC_FILENAME_CUT;
    }
    // The count includes the closing NUL, which a cut name has too.
    record.filename_len = (copied - 1) as u16;
    if copied as usize >= FILENAME_MAX {
        EXEC_FILENAME_CUT
    } else {
        0
    }
}

#[inline(always)]
fn copy_argv(task: u64, record: &mut ExecRecord) -> u32 {
    let memory = pointer(task, offset!(task_mm));
    let start = pointer(memory, offset!(mm_arg_start));
    let end = pointer(memory, offset!(mm_arg_end));
    record.argv_len = 0;
    if start == 0 || end <= start {
        return EXEC_ARGV_UNREADABLE;
    }
    let mut len = end - start;
    let mut flags = 0;
    if len > ARGV_MAX as u64 {
        len = ARGV_MAX as u64;
        flags = EXEC_ARGV_CUT;
    }
    // SAFETY: the destination is at least as long as said; the helper checks the source.
    let failed =
        unsafe { bpf_probe_read_user(record.argv.as_mut_ptr().cast(), len as u32, start as *const _) };
    if failed != 0 {
        return EXEC_ARGV_UNREADABLE;
    }
    record.argv_len = len as u16;
    flags
}

/// `sched_process_fork(struct task_struct *parent, struct task_struct *child)`: the child has not run yet. Fires for
/// threads too.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn process_fork(ctx: RawTracePointContext) -> i32 {
    preempt::disable();
    fork(ctx.arg::<u64>(1));
    preempt::enable();
    0
}

#[inline(always)]
fn fork(child: u64) {
    // SAFETY: no arguments, no effect.
    let pid = (unsafe { bpf_get_current_pid_tgid() } >> 32) as u32;
    let child_pid = word(child, offset!(task_tgid));
    if child_pid == pid || child_pid == 0 {
        return;
    }
    let inherited = mark(pid) & INHERITED_ON_FORK;
    let byte = mark_of(child_pid);
    // SAFETY: a valid byte of the table; nobody knows the child's id yet, so nobody else writes it.
    unsafe {
        // Read first: the common case leaves the byte's cache line shared.
        if byte.read_volatile() != inherited {
            byte.write_volatile(inherited);
        }
    }
    if inherited == 0 {
        return;
    }
    let record = ForkRecord {
        header: RecordHeader {
            kind: KIND_FORK,
            pid,
            time_ns: now(),
        },
        child: child_pid,
        mark: u32::from(inherited),
        child_start_ns: pointer(child, offset!(task_start_boottime)),
    };
    emit::lifecycle(&raw const record, size_of::<ForkRecord>() as u64);
}

/// `sched_process_exit(struct task_struct *p)`: fires for each thread.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn process_exit(ctx: RawTracePointContext) -> i32 {
    preempt::disable();
    exit(ctx.arg::<u64>(0));
    preempt::enable();
    0
}

#[inline(always)]
fn exit(task: u64) {
    // SAFETY: no arguments, no effect.
    let pid = (unsafe { bpf_get_current_pid_tgid() } >> 32) as u32;
    let byte = mark_of(pid);
    // SAFETY: a valid byte of the table.
    let mark = unsafe { byte.read_volatile() };
    if mark == 0 {
        return;
    }
    let signal = pointer(task, offset!(task_signal));
    // Threads of the group that have not begun to exit: the last one sees 0. Two that exit at the same moment can
    // both see it; the second finds the mark cleared.
    if word(signal, offset!(signal_live)) != 0 {
        return;
    }
    // SAFETY: as above.
    unsafe { byte.write_volatile(0) };
    hold::forget(pid);
    let record = ExitRecord {
        header: RecordHeader {
            kind: KIND_EXIT,
            pid,
            time_ns: now(),
        },
        start_ns: start_of(task),
        mark: u32::from(mark),
        group_exit_code: word(signal, offset!(signal_group_exit_code)),
    };
    emit::lifecycle(&raw const record, size_of::<ExitRecord>() as u64);
}
