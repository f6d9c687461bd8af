//! What the kernel says about the other end of a Unix socket, beyond what safe wrappers give.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Most groups that a process can be in (NGROUPS_MAX).
const MAX_GROUPS: usize = 65_536;

/// Supplementary groups of the peer at the time it connected (SO_PEERGROUPS, Linux 4.13), translated into the
/// caller's user namespace. Unlike `/proc/PID/status` this cannot change after the connect.
pub fn groups<F: AsFd>(socket: F) -> io::Result<Vec<u32>> {
    let mut capacity = 64;
    loop {
        let mut groups = vec![0_u32; capacity];
        match read(&socket, &mut groups) {
            Ok(count) => {
                groups.truncate(count);
                return Ok(groups);
            }
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && capacity < MAX_GROUPS => {
                capacity = (capacity * 8).min(MAX_GROUPS);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Fills `groups` and returns how many there are; ERANGE where the buffer is too small.
fn read<F: AsFd>(socket: &F, groups: &mut [u32]) -> io::Result<usize> {
    let bytes = size_of_val(groups);
    let mut length = libc::socklen_t::try_from(bytes).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the descriptor is borrowed and thus open; the buffer is valid for `length` bytes, any bit pattern
    // is a valid u32, and the kernel writes at most `length` bytes into it and the new length into `length`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(length).unwrap_or(0) / size_of::<u32>())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn own_groups_come_back() {
        let (near, _far) = UnixStream::pair().unwrap();
        let mut theirs = groups(&near).unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("Groups:")).unwrap();
        let mut own: Vec<u32> = line.split_whitespace().map(|g| g.parse().unwrap()).collect();
        theirs.sort_unstable();
        own.sort_unstable();
        assert_eq!(theirs, own);
    }

    #[test]
    fn a_file_is_no_socket() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(groups(&file).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
    }
}
