//! Runs of a program that the kernel skipped because it was running on that processor already.

use std::os::fd::{AsRawFd, BorrowedFd};

/// `bpf_prog_info.recursion_misses` (kernel 5.12 and later; 0 before).
pub(crate) fn misses(program: BorrowedFd<'_>) -> u64 {
    const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
    /// Position of `recursion_misses` in the kernel's `struct bpf_prog_info`, a stable interface.
    const RECURSION_MISSES_AT: usize = 208;
    const INFO_LEN: usize = 232;

    #[repr(C)]
    struct InfoByFd {
        fd: u32,
        info_len: u32,
        info: u64,
    }
    let mut info = [0u64; INFO_LEN / 8];
    let Ok(fd) = u32::try_from(program.as_raw_fd()) else {
        return 0;
    };
    let Ok(info_len) = u32::try_from(INFO_LEN) else {
        return 0;
    };
    let mut attr = InfoByFd {
        fd,
        info_len,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: BPF_OBJ_GET_INFO_BY_FD reads `attr` (its size is given) and writes at most `info_len` bytes to
    // `info`, which is that long and zeroed, as the call demands.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_OBJ_GET_INFO_BY_FD,
            &raw mut attr,
            size_of::<InfoByFd>(),
        )
    };
    if result == 0 {
        info[RECURSION_MISSES_AT / 8]
    } else {
        0
    }
}
