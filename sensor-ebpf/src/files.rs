//! From a descriptor number to the kernel object behind it.

use kams_sensor_abi::record::{
    FD_CHR, FD_NONE, FD_OTHER, FD_PIPE, FD_REGULAR, FD_SOCKET_OTHER, FD_UNIX_OTHER, FD_UNIX_STREAM, FdFacts,
};

use crate::kernel::{pointer, read, word};
use crate::maps::offset;

const S_IFMT: u16 = 0o170_000;
const S_IFSOCK: u16 = 0o140_000;
const S_IFREG: u16 = 0o100_000;
const S_IFCHR: u16 = 0o020_000;
const S_IFIFO: u16 = 0o010_000;
const AF_UNIX: u16 = 1;
const SOCK_STREAM: u16 = 1;

/// The open file of a task at a descriptor; 0 if there is none.
#[inline(always)]
pub fn file(task: u64, fd: u32) -> u64 {
    let files = pointer(task, offset!(task_files));
    let table = pointer(files, offset!(files_fdt));
    if table == 0 || fd >= word(table, offset!(fdtable_max_fds)) {
        return 0;
    }
    let array = pointer(table, offset!(fdtable_fd));
    pointer(array, fd * 8)
}

/// What identifies a pipe or socket across descriptors and processes: `file.private_data`, a `pipe_inode_info` or
/// a `socket`.
#[inline(always)]
pub fn object(file: u64) -> u64 {
    pointer(file, offset!(file_private_data))
}

/// Inode number of a file.
#[inline(always)]
pub fn inode_number(file: u64) -> u64 {
    pointer(pointer(file, offset!(file_f_inode)), offset!(inode_i_ino))
}

/// Whether a file is a pipe or FIFO.
#[inline(always)]
pub fn is_pipe(file: u64) -> bool {
    let inode = pointer(file, offset!(file_f_inode));
    read::<u16>(inode + u64::from(offset!(inode_i_mode))).unwrap_or(0) & S_IFMT == S_IFIFO
}

/// Describes an open file. Writes every member of `facts`.
#[inline(always)]
pub fn describe(file: u64, facts: &mut FdFacts) {
    facts.kind = FD_NONE;
    facts.mode = 0;
    facts.object = 0;
    facts.ino = 0;
    facts.peer = 0;
    facts.peer_ino = 0;
    if file == 0 {
        return;
    }
    let inode = pointer(file, offset!(file_f_inode));
    facts.mode = word(file, offset!(file_f_mode));
    facts.ino = pointer(inode, offset!(inode_i_ino));
    let mode = read::<u16>(inode + u64::from(offset!(inode_i_mode))).unwrap_or(0);
    facts.kind = match mode & S_IFMT {
        S_IFIFO => {
            facts.object = object(file);
            FD_PIPE
        }
        S_IFSOCK => {
            let socket = object(file);
            facts.object = socket;
            describe_socket(socket, facts)
        }
        S_IFCHR => FD_CHR,
        S_IFREG => FD_REGULAR,
        _ => FD_OTHER,
    };
}

#[inline(always)]
fn describe_socket(socket: u64, facts: &mut FdFacts) -> u32 {
    let sock = pointer(socket, offset!(socket_sk));
    if sock == 0 {
        return FD_SOCKET_OTHER;
    }
    let family = read::<u16>(sock + u64::from(offset!(sock_family))).unwrap_or(0);
    if family != AF_UNIX {
        return FD_SOCKET_OTHER;
    }
    let kind = read::<u16>(socket + u64::from(offset!(socket_type))).unwrap_or(0);
    if kind != SOCK_STREAM {
        return FD_UNIX_OTHER;
    }
    let peer = pointer(sock, offset!(unix_peer));
    let peer_socket = pointer(peer, offset!(sock_socket));
    facts.peer = peer_socket;
    facts.peer_ino = inode_number(pointer(peer_socket, offset!(socket_file)));
    FD_UNIX_STREAM
}
