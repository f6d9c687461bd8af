//! Byte offsets of kernel structure members, resolved from the running kernel's BTF before the programs load.

/// Offsets that the programs read kernel structures with.
///
/// The kernel side holds one instance as read-only data that the loader overwrites. All values are bytes from
/// the start of the named structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Offsets {
    /// `task_struct.tgid`.
    pub task_tgid: u32,
    /// `task_struct.real_parent`.
    pub task_real_parent: u32,
    /// `task_struct.group_leader`.
    pub task_group_leader: u32,
    /// `task_struct.start_boottime`.
    pub task_start_boottime: u32,
    /// `task_struct.files`.
    pub task_files: u32,
    /// `task_struct.mm`.
    pub task_mm: u32,
    /// `task_struct.signal`.
    pub task_signal: u32,
    /// `task_struct.thread_info.status` (x86: holds TS_COMPAT during a 32-bit call).
    pub task_ti_status: u32,
    /// `signal_struct.live.counter`: threads of the group that have not begun to exit.
    pub signal_live: u32,
    /// `signal_struct.group_exit_code`.
    pub signal_group_exit_code: u32,
    /// `mm_struct.arg_start`.
    pub mm_arg_start: u32,
    /// `mm_struct.arg_end`.
    pub mm_arg_end: u32,
    /// `files_struct.fdt`.
    pub files_fdt: u32,
    /// `fdtable.max_fds`.
    pub fdtable_max_fds: u32,
    /// `fdtable.fd`.
    pub fdtable_fd: u32,
    /// `file.private_data`.
    pub file_private_data: u32,
    /// `file.f_inode`.
    pub file_f_inode: u32,
    /// `file.f_mode`.
    pub file_f_mode: u32,
    /// `inode.i_mode`.
    pub inode_i_mode: u32,
    /// `inode.i_ino`.
    pub inode_i_ino: u32,
    /// `socket.sk`.
    pub socket_sk: u32,
    /// `socket.file`.
    pub socket_file: u32,
    /// `socket.type`.
    pub socket_type: u32,
    /// `sock.sk_socket`.
    pub sock_socket: u32,
    /// `sock.__sk_common.skc_family`.
    pub sock_family: u32,
    /// `unix_sock.peer`.
    pub unix_peer: u32,
    /// `linux_binprm.filename`.
    pub bprm_filename: u32,
    /// Set to 1 by the loader: a program that finds 0 here was loaded without offsets and does nothing.
    pub resolved: u32,
}

impl Offsets {
    /// What the object holds before the loader has written to it.
    pub const UNRESOLVED: Self = Self {
        task_tgid: 0,
        task_real_parent: 0,
        task_group_leader: 0,
        task_start_boottime: 0,
        task_files: 0,
        task_mm: 0,
        task_signal: 0,
        task_ti_status: 0,
        signal_live: 0,
        signal_group_exit_code: 0,
        mm_arg_start: 0,
        mm_arg_end: 0,
        files_fdt: 0,
        fdtable_max_fds: 0,
        fdtable_fd: 0,
        file_private_data: 0,
        file_f_inode: 0,
        file_f_mode: 0,
        inode_i_mode: 0,
        inode_i_ino: 0,
        socket_sk: 0,
        socket_file: 0,
        socket_type: 0,
        sock_socket: 0,
        sock_family: 0,
        unix_peer: 0,
        bprm_filename: 0,
        resolved: 0,
    };
}

/// Name of the kernel side's read-only variable that holds [`Offsets`].
pub const OFFSETS_SYMBOL: &str = "OFFSETS";

#[cfg(feature = "user")]
// SAFETY: repr(C), only u32 members, no padding, no pointers.
unsafe impl aya::Pod for Offsets {}
