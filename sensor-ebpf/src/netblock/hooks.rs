//! The programs at the root control group: 1 lets the call go on, 0 refuses it with EPERM.

use aya_ebpf::bindings::{bpf_sock, bpf_sock_addr};
use aya_ebpf::helpers::generated::{bpf_get_current_pid_tgid, bpf_get_socket_cookie, bpf_ktime_get_boot_ns};
use aya_ebpf::macros::{cgroup_sock, cgroup_sock_addr};
use aya_ebpf::programs::{SockAddrContext, SockContext};
use kams_sensor_abi::netblock::{Attempt, HOOK_CONNECT, HOOK_SEND, HOOK_SOCKET, PROBE};

use crate::maps::{NB_ATTEMPTS, NB_BLOCKS, NB_MEMBERS, NB_SOCKETS};

const LET: i32 = 1;
const REFUSE: i32 = 0;
/// `BPF_NOEXIST`: the first attempt stays until somebody takes it.
const IF_ABSENT: u64 = 1;

#[inline(always)]
fn current() -> u32 {
    // SAFETY: no arguments, no effect.
    (unsafe { bpf_get_current_pid_tgid() } >> 32) as u32
}

/// Adds one to a value that other CPUs add to as well.
///
/// # Safety
/// `target` must be valid and aligned.
#[inline(always)]
unsafe fn add_one(target: *mut u64) {
    // SAFETY: by the caller's promise.
    unsafe {
        core::arch::asm!("lock *(u64 *)({target} + 0) += {one}", target = in(reg) target, one = in(reg) 1u64);
    }
}

/// The block that refuses, counted; none where nothing does.
#[inline(always)]
fn refusing(block: Option<u64>, hook: u32) -> Option<u64> {
    let block = block?;
    let counts = NB_BLOCKS.get_ptr_mut(&block)?;
    // SAFETY: a valid value; `hook` is a constant below the number of hooks.
    unsafe { add_one((&raw mut (*counts).refused).cast::<u64>().add(hook as usize)) };
    (block != PROBE).then_some(block)
}

#[inline(always)]
fn of_process(pid: u32) -> Option<u64> {
    // SAFETY: the value is copied; an entry that is replaced meanwhile gives either value.
    unsafe { NB_MEMBERS.get(&pid) }.copied()
}

#[inline(always)]
fn of_socket(context: *mut bpf_sock_addr) -> Option<u64> {
    // SAFETY: the context that the kernel passed.
    let cookie = unsafe { bpf_get_socket_cookie(context.cast()) };
    // SAFETY: as in `of_process`.
    unsafe { NB_SOCKETS.get(&cookie) }.copied()
}

#[inline(always)]
fn keep(block: u64, attempt: &Attempt) {
    // SAFETY: nothing is read through the result.
    if unsafe { NB_ATTEMPTS.get(&block) }.is_none() {
        // Another CPU may have been faster; one is enough.
        let _kept_already = NB_ATTEMPTS.insert(&block, attempt, IF_ABSENT);
    }
}

/// Reads a member of the kernel's context, by itself: two reads that the compiler joins would be refused.
macro_rules! member {
    ($context:expr, $($member:tt)+) => {
        // SAFETY: the context that the kernel passed; the verifier checks the offset.
        unsafe { core::ptr::read_volatile(&raw const (*$context).$($member)+) }
    };
}

#[inline(always)]
fn judge_address(context: *mut bpf_sock_addr, hook: u32, v6: bool) -> i32 {
    let pid = current();
    let by_process = refusing(of_process(pid), hook);
    let Some(block) = by_process.or_else(|| refusing(of_socket(context), hook)) else {
        return LET;
    };
    let address = if v6 {
        [
            member!(context, user_ip6[0]),
            member!(context, user_ip6[1]),
            member!(context, user_ip6[2]),
            member!(context, user_ip6[3]),
        ]
    } else {
        [member!(context, user_ip4), 0, 0, 0]
    };
    let attempt = Attempt {
        // SAFETY: no arguments, no effect.
        time_ns: unsafe { bpf_ktime_get_boot_ns() },
        pid,
        hook,
        family: member!(context, family),
        kind: member!(context, type_),
        protocol: member!(context, protocol),
        port: u32::from((member!(context, user_port) as u16).swap_bytes()),
        address,
    };
    keep(block, &attempt);
    REFUSE
}

/// `connect` of an IPv4 socket, also by io_uring and by `sendto` with MSG_FASTOPEN.
#[cgroup_sock_addr(connect4)]
pub fn netblock_connect4(context: SockAddrContext) -> i32 {
    judge_address(context.sock_addr, HOOK_CONNECT, false)
}

/// The same for IPv6 sockets.
#[cgroup_sock_addr(connect6)]
pub fn netblock_connect6(context: SockAddrContext) -> i32 {
    judge_address(context.sock_addr, HOOK_CONNECT, true)
}

/// A datagram with an address, of an IPv4 socket that is not connected.
#[cgroup_sock_addr(sendmsg4)]
pub fn netblock_sendmsg4(context: SockAddrContext) -> i32 {
    judge_address(context.sock_addr, HOOK_SEND, false)
}

/// The same for IPv6 sockets.
#[cgroup_sock_addr(sendmsg6)]
pub fn netblock_sendmsg6(context: SockAddrContext) -> i32 {
    judge_address(context.sock_addr, HOOK_SEND, true)
}

/// A new socket of AF_INET or AF_INET6, of any type; the kernel asks about no other family.
#[cgroup_sock(sock_create)]
pub fn netblock_socket(context: SockContext) -> i32 {
    let pid = current();
    let Some(block) = refusing(of_process(pid), HOOK_SOCKET) else {
        return LET;
    };
    let sock: *mut bpf_sock = context.sock;
    let attempt = Attempt {
        // SAFETY: no arguments, no effect.
        time_ns: unsafe { bpf_ktime_get_boot_ns() },
        pid,
        hook: HOOK_SOCKET,
        family: member!(sock, family),
        kind: member!(sock, type_),
        protocol: member!(sock, protocol),
        port: 0,
        address: [0; 4],
    };
    keep(block, &attempt);
    REFUSE
}
