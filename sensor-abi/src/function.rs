//! Programs at the end of kernel functions: where the buffers of a call are, and which calls need no other program.

/// Byte offsets and values that the programs read a call's buffers with, resolved from the running kernel's BTF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Iterators {
    /// `kiocb.ki_filp`.
    pub kiocb_file: u32,
    /// `msghdr.msg_iter`.
    pub msghdr_iter: u32,
    /// `msghdr.msg_flags`.
    pub msghdr_flags: u32,
    /// `iov_iter.iter_type`, or `iov_iter.type` before 5.14; one byte is read.
    pub iter_type: u32,
    /// `iov_iter.iov_offset`.
    pub iter_offset: u32,
    /// `iov_iter.count`.
    pub iter_count: u32,
    /// `iov_iter.__iov`, or `iov_iter.iov` before 6.4.
    pub iter_vector: u32,
    /// `iov_iter.ubuf` (6.0 and later), else 0.
    pub iter_buffer: u32,
    /// Bits of the type byte that hold the type; before 5.14 the lowest bit is the direction.
    pub type_mask: u32,
    /// `ITER_IOVEC`.
    pub type_vector: u32,
    /// `ITER_UBUF`, or a value that the type byte cannot have.
    pub type_buffer: u32,
    /// Set to 1 by the loader: a program that finds 0 here was loaded without offsets and does nothing.
    pub resolved: u32,
}

impl Iterators {
    /// What the object holds before the loader has written to it.
    pub const UNRESOLVED: Self = Self {
        kiocb_file: 0,
        msghdr_iter: 0,
        msghdr_flags: 0,
        iter_type: 0,
        iter_offset: 0,
        iter_count: 0,
        iter_vector: 0,
        iter_buffer: 0,
        type_mask: 0,
        type_vector: 0,
        type_buffer: 0,
        resolved: 0,
    };
}

/// Name of the kernel side's read-only variable that holds [`Iterators`].
pub const ITERATORS_SYMBOL: &str = "ITERATORS";

/// A program at a function carries what is read from pipes.
pub const DUTY_PIPE_READ: u64 = 1 << 0;
/// ... written to pipes.
pub const DUTY_PIPE_WRITE: u64 = 1 << 1;
/// ... received from AF_UNIX stream sockets.
pub const DUTY_UNIX_READ: u64 = 1 << 2;
/// ... sent to AF_UNIX stream sockets.
pub const DUTY_UNIX_WRITE: u64 = 1 << 3;
/// Programs at the functions of these system calls do what is to be done at splice, tee, vmsplice and sendfile,
/// io_uring's calls, dup2 and dup3.
pub const DUTY_CALLS: u64 = 1 << 4;
/// All of them.
pub const DUTY_ALL: u64 = 0x1f;

/// Number of programs that carry bytes, each with scratch memory of its own: the one at the exit of system calls, and
/// six at functions.
pub const SLOTS: u32 = 7;

#[cfg(feature = "user")]
// SAFETY: repr(C), only u32 members, no padding, no pointers.
unsafe impl aya::Pod for Iterators {}
