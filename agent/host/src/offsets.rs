//! Resolves the structure offsets that the kernel side reads with.

use kams_sensor_abi::offsets::Offsets;

use crate::btf::Btf;
use crate::options::SensorError;

/// Looks every offset up in `btf`.
///
/// # Errors
/// [`SensorError::NoMember`] names the first member that this kernel does not have.
pub fn resolve(btf: &Btf) -> Result<Offsets, SensorError> {
    let at = |structure: &'static str, member: &'static str| {
        btf.member_offset(structure, member)
            .ok_or(SensorError::NoMember { structure, member })
    };
    Ok(Offsets {
        task_tgid: at("task_struct", "tgid")?,
        task_real_parent: at("task_struct", "real_parent")?,
        task_group_leader: at("task_struct", "group_leader")?,
        task_start_boottime: at("task_struct", "start_boottime")?,
        task_files: at("task_struct", "files")?,
        task_mm: at("task_struct", "mm")?,
        task_signal: at("task_struct", "signal")?,
        task_ti_status: at("task_struct", "thread_info.status")?,
        signal_live: at("signal_struct", "live.counter")?,
        signal_group_exit_code: at("signal_struct", "group_exit_code")?,
        mm_arg_start: at("mm_struct", "arg_start")?,
        mm_arg_end: at("mm_struct", "arg_end")?,
        files_fdt: at("files_struct", "fdt")?,
        fdtable_max_fds: at("fdtable", "max_fds")?,
        fdtable_fd: at("fdtable", "fd")?,
        file_private_data: at("file", "private_data")?,
        file_f_inode: at("file", "f_inode")?,
        file_f_mode: at("file", "f_mode")?,
        inode_i_mode: at("inode", "i_mode")?,
        inode_i_ino: at("inode", "i_ino")?,
        socket_sk: at("socket", "sk")?,
        socket_file: at("socket", "file")?,
        socket_type: at("socket", "type")?,
        sock_socket: at("sock", "sk_socket")?,
        sock_family: at("sock", "__sk_common.skc_family")?,
        unix_peer: at("unix_sock", "peer")?,
        bprm_filename: at("linux_binprm", "filename")?,
        resolved: 1,
    })
}
