//! The calls of tests that have no safe wrapper: fork without exec, io_uring, and an I/O port.
#![deny(clippy::undocumented_unsafe_blocks)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// Runs `child` in a forked copy of this process and waits for its end.
///
/// Only in a program of one thread, refused otherwise: a copy of a lock that another thread holds would never be
/// opened. An error of the child is an error here, without its text.
pub fn in_child(child: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("fork in a program of several threads"));
    }
    // SAFETY: this is the only thread (checked above), so the child may use the heap and locks.
    match unsafe { fork() }? {
        ForkResult::Child => std::process::exit(i32::from(child().is_err())),
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, 0) => Ok(()),
            other => Err(io::Error::other(format!("the child ended with {other:?}"))),
        },
    }
}

/// A ring of a few entries, one operation at a time.
pub struct Ring(IoUring);

impl Ring {
    /// A new ring; an error where the kernel refuses one.
    pub fn new() -> io::Result<Self> {
        IoUring::new(4).map(Self)
    }

    /// Writes some of `bytes`; returns how many.
    pub fn write(&mut self, fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let entry = opcode::Write::new(types::Fd(fd.as_raw_fd()), bytes.as_ptr(), length)
            .offset(u64::MAX)
            .build();
        self.run(&entry)
    }

    /// Reads into `buffer`; returns how many bytes, 0 at the end of the stream.
    pub fn read(&mut self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(types::Fd(fd.as_raw_fd()), buffer.as_mut_ptr(), length)
            .offset(u64::MAX)
            .build();
        self.run(&entry)
    }

    /// Connects a socket to an IPv4 address; `by_worker`: a thread of the kernel does it, not the caller.
    pub fn connect(
        &mut self,
        fd: BorrowedFd<'_>,
        address: std::net::SocketAddrV4,
        by_worker: bool,
    ) -> io::Result<()> {
        let to = libc::sockaddr_in {
            sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default(),
            sin_port: address.port().to_be(),
            sin_addr: libc::in_addr {
                s_addr: u32::from_ne_bytes(address.ip().octets()),
            },
            sin_zero: [0; 8],
        };
        let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_in>()).map_err(io::Error::other)?;
        let mut entry =
            opcode::Connect::new(types::Fd(fd.as_raw_fd()), (&raw const to).cast(), length).build();
        if by_worker {
            entry = entry.flags(squeue::Flags::ASYNC);
        }
        self.run(&entry).map(drop)
    }

    fn run(&mut self, entry: &squeue::Entry) -> io::Result<usize> {
        // SAFETY: the buffer of the entry is borrowed by the caller for the whole of this function, which returns
        // only after the one operation in flight has completed.
        unsafe { self.0.submission().push(entry) }.map_err(io::Error::other)?;
        self.0.submit_and_wait(1)?;
        let done = self
            .0
            .completion()
            .next()
            .ok_or_else(|| io::Error::other("no completion"))?;
        usize::try_from(done.result()).map_err(|_negative| io::Error::from_raw_os_error(-done.result()))
    }
}

/// Writes a byte to an I/O port of the machine: how a guest ends its emulator. Root only, x86 only.
pub fn write_port(port: u16, value: u8) -> io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: no memory is passed; all it does is to allow this thread to use ports.
        if unsafe { libc::iopl(3) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: allowed by the call above; touches neither memory nor flags.
        unsafe {
            core::arch::asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags));
        }
        Ok(())
    }
    #[cfg(not(target_arch = "x86_64"))]
    Err(io::Error::other(format!(
        "no ports here to write {value} to {port}"
    )))
}
