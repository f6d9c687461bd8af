//! The system calls by which a target puts itself under a filter.
//!
//! The program is written below the target's stack, and what was there is put back afterwards. A process without
//! CAP_SYS_ADMIN in its user namespace may only do so with `no_new_privs`, which is set just for those. A listener is
//! fetched and then closed in the target: with it the server could answer its own questions.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use super::{Confine, Confined, descriptors, status};
use crate::filter::Network;

/// `CAP_SYS_ADMIN`.
const SYS_ADMIN: u64 = 1 << 21;
/// Bytes of a `struct sock_fprog`: a length, and the address of the instructions.
const HEADER: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    NoNewPrivs,
    Install,
    Close(u32),
}

/// The calls for one target, and how far they are.
#[derive(Debug)]
pub(super) struct Filtering {
    pid: Pid,
    confine: Confine,
    /// Where the program lies in the target.
    at: u64,
    was: Vec<u8>,
    next: Option<Call>,
    no_new_privs: bool,
    result: Result<Option<OwnedFd>, i32>,
}

impl Filtering {
    /// Writes the program below `below`, an address of the target's stack that is not written to above it.
    pub(super) fn prepare(pid: i32, confine: Confine, below: u64) -> io::Result<Self> {
        let target = Pid::from_raw(pid);
        let length = HEADER + confine.filter.program().len();
        let at = below
            .checked_sub(u64::try_from(length).unwrap_or(u64::MAX))
            .ok_or(io::ErrorKind::AddrNotAvailable)?
            & !15;
        let mut text = vec![0; HEADER];
        text[..2].copy_from_slice(&confine.filter.len().to_ne_bytes());
        text[8..].copy_from_slice(&(at + HEADER as u64).to_ne_bytes());
        text.extend_from_slice(confine.filter.program());
        let mut was = vec![0; length];
        let remote = [place(at, length)?];
        let read = process_vm_readv(target, &mut [IoSliceMut::new(&mut was)], &remote)?;
        if read != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let privileged =
            status::number(pid.unsigned_abs(), "CapEff:", 16).is_some_and(|c| c & SYS_ADMIN != 0);
        let already = status::number(pid.unsigned_abs(), "NoNewPrivs:", 10) == Some(1);
        let this = Self {
            pid: target,
            confine,
            at,
            was,
            next: Some(if privileged || already {
                Call::Install
            } else {
                Call::NoNewPrivs
            }),
            no_new_privs: !privileged && !already,
            result: Err(libc::ECANCELED),
        };
        this.write(&text)?;
        Ok(this)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let remote = [place(self.at, bytes.len())?];
        let written = process_vm_writev(self.pid, &[IoSlice::new(bytes)], &remote)?;
        if written == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Number and arguments of the call to do now; none when all is done. The fifth argument must be 0, as it is in a
    /// new program.
    pub(super) fn current(&self) -> Option<(libc::c_long, [u64; 4])> {
        let number = |value: u32| u64::from(value);
        Some(match self.next? {
            Call::NoNewPrivs => (
                libc::SYS_prctl,
                [number(libc::PR_SET_NO_NEW_PRIVS.unsigned_abs()), 1, 0, 0],
            ),
            Call::Install => {
                // Without SPEC_ALLOW, kernels before 5.16 slow the whole process down for the sake of its sandbox.
                let mut flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
                if self.confine.filter.network() == Network::Asked {
                    flags |= libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
                }
                let mode = number(libc::SECCOMP_SET_MODE_FILTER);
                (libc::SYS_seccomp, [mode, flags, self.at, 0])
            }
            Call::Close(fd) => (libc::SYS_close, [number(fd), 0, 0, 0]),
        })
    }

    /// Takes a call's result; whether another one follows.
    pub(super) fn finish(&mut self, result: i64, pidfd: &OwnedFd) -> bool {
        let error = (result < 0).then(|| i32::try_from(-result).unwrap_or(libc::EIO));
        self.next = match (self.next, error) {
            (Some(Call::NoNewPrivs), None) => Some(Call::Install),
            (Some(Call::Install), None) if self.confine.filter.network() == Network::Asked => {
                let fd = u32::try_from(result).unwrap_or(u32::MAX);
                self.result = descriptors::take(pidfd, fd)
                    .map(Some)
                    .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
                Some(Call::Close(fd))
            }
            (Some(Call::Install), None) => {
                self.result = Ok(None);
                None
            }
            // A listener that cannot be closed would make the server its own judge.
            (Some(_), Some(error)) => {
                self.result = Err(error);
                None
            }
            (Some(Call::Close(_)), None) | (None, _) => None,
        };
        self.next.is_some()
    }

    /// Puts back what was where the program lay.
    pub(super) fn restore(&self) -> io::Result<()> {
        self.write(&self.was)
    }

    /// What came of it.
    pub(super) fn outcome(self) -> Confined {
        match self.result {
            Ok(listener) => Confined::Filtered {
                listener,
                no_new_privs: self.no_new_privs,
            },
            Err(error) => Confined::Failed(error),
        }
    }

    /// Whether the target must not run without the filter, and would.
    pub(super) const fn must_not_run(&self) -> bool {
        self.confine.required && self.result.is_err()
    }
}

fn place(at: u64, len: usize) -> io::Result<RemoteIoVec> {
    let base = usize::try_from(at).map_err(|_no_address| io::ErrorKind::AddrNotAvailable)?;
    Ok(RemoteIoVec { base, len })
}
