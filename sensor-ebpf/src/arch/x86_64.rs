//! x86-64: where a system call's arguments are, and what its number means.

/// `struct pt_regs` of x86-64. Its layout is fixed: ptrace exports it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Regs {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    bp: u64,
    bx: u64,
    r11: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    ax: u64,
    cx: u64,
    dx: u64,
    si: u64,
    di: u64,
    orig_ax: u64,
}

impl Regs {
    /// Number of the system call.
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.orig_ax
    }
    /// First argument.
    #[inline(always)]
    pub fn arg0(&self) -> u64 {
        self.di
    }
    /// Second argument.
    #[inline(always)]
    pub fn arg1(&self) -> u64 {
        self.si
    }
    /// Third argument.
    #[inline(always)]
    pub fn arg2(&self) -> u64 {
        self.dx
    }
    /// Fourth argument.
    #[inline(always)]
    pub fn arg3(&self) -> u64 {
        self.r10
    }
    /// First argument of a 32-bit call.
    #[inline(always)]
    pub fn compat_arg0(&self) -> u64 {
        self.bx
    }
}

/// Bit of `thread_info.status`: the thread is in a 32-bit call.
pub const TS_COMPAT: u32 = 0x2;
/// Bit of the number of a call made with the x32 convention.
pub const X32_BIT: u64 = 0x4000_0000;
/// Calls of the x32 convention from here on have pointers of another size.
pub const X32_FIRST: u64 = 512;

pub const SYS_READ: u64 = 0;
pub const SYS_WRITE: u64 = 1;
pub const SYS_READV: u64 = 19;
pub const SYS_WRITEV: u64 = 20;
pub const SYS_DUP2: u64 = 33;
pub const SYS_SENDFILE: u64 = 40;
pub const SYS_SENDTO: u64 = 44;
pub const SYS_RECVFROM: u64 = 45;
pub const SYS_SENDMSG: u64 = 46;
pub const SYS_RECVMSG: u64 = 47;
pub const SYS_SPLICE: u64 = 275;
pub const SYS_TEE: u64 = 276;
pub const SYS_VMSPLICE: u64 = 278;
pub const SYS_DUP3: u64 = 292;
pub const SYS_RECVMMSG: u64 = 299;
pub const SYS_SENDMMSG: u64 = 307;
pub const SYS_PREADV2: u64 = 327;
pub const SYS_PWRITEV2: u64 = 328;
pub const SYS_IO_URING_SETUP: u64 = 425;
pub const SYS_IO_URING_ENTER: u64 = 426;

/// Whether a 32-bit call moves bytes on the descriptor in its first argument: `Some(true)` if it writes.
#[inline(always)]
pub fn compat_direction(number: u64) -> Option<bool> {
    match number {
        // read, readv, recvfrom, recvmsg, preadv2
        3 | 145 | 371 | 372 | 378 => Some(false),
        // write, writev, sendto, sendmsg, sendmmsg, pwritev2
        4 | 146 | 369 | 370 | 345 | 379 => Some(true),
        _ => None,
    }
}
