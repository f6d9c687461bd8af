//! The filter of system calls that keeps a server off the network, as a program for the kernel.
//!
//! What may be opened is a list, not what may not: the kernel has some forty address families, several of them lead off
//! the host (AF_VSOCK, AF_SMC, AF_XDP, AF_BLUETOOTH, ...), and later ones are refused without a change here. The family
//! is an argument in a register, so what the filter sees is what the kernel does: there is no race.
//!
//! | call | answer |
//! | --- | --- |
//! | `socket` of AF_UNIX | allowed: how programs of one host talk, and how libraries ask the name service |
//! | `socket` of AF_NETLINK, protocol NETLINK_ROUTE | allowed: lists of interfaces and addresses (`getifaddrs`, `getaddrinfo`); carries nothing off the host |
//! | `socket` of any other family | EACCES, or the listener is asked. AF_ALG, AF_PACKET and other netlink protocols too: none is needed to serve, all have a record of kernel bugs |
//! | `socketpair` of anything but AF_UNIX | EACCES |
//! | `io_uring_setup`, `_enter`, `_register` | ENOSYS, as on a kernel without it: libraries fall back to plain calls. A ring opens sockets that no filter sees |
//! | `pidfd_getfd` | EPERM: it would fetch another process's socket |
//! | 32-bit calls and those of the x32 ABI | the process is ended: `socketcall` hides the family in memory |

use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use libseccomp::error::SeccompError;
use libseccomp::{ScmpAction, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};

/// Bytes of one instruction of the kernel's filter machine.
const INSTRUCTION: usize = 8;
/// Most instructions that a program of ours can have; what is made is less than half of it.
const MOST: usize = 256;

/// Address families by number: `include/linux/socket.h`.
const UNIX: u64 = 1;
const NETLINK: u64 = 16;
/// The protocol of AF_NETLINK that lists interfaces, addresses and routes.
const NETLINK_ROUTE: u64 = 0;
/// An argument that the kernel takes as `int`: its upper half means nothing.
const INT: u64 = 0xffff_ffff;

/// What becomes of a socket that is not on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// It is refused with EACCES, for as long as the process and its children live; nobody can take that back.
    Refused,
    /// Whoever holds the filter's listener is asked. Where nobody holds it any more: ENOSYS.
    Asked,
}

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The library refused.
    #[error("libseccomp cannot make the filter: {0}")]
    Library(#[from] SeccompError),
    /// The program could not be read back.
    #[error("the filter cannot be read back: {0}")]
    Io(#[from] std::io::Error),
    /// The library made something else than a program.
    #[error("the filter has {0} bytes, which is no program")]
    Shape(usize),
}

/// A filter, ready to be installed. Clones share the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    network: Network,
    program: Arc<[u8]>,
}

impl Filter {
    /// Makes a filter for this machine's architecture.
    pub fn new(network: Network) -> Result<Self, FilterError> {
        let action = match network {
            Network::Refused => ScmpAction::Errno(libc::EACCES),
            Network::Asked => ScmpAction::Notify,
        };
        let mut filter = ScmpFilterContext::new(ScmpAction::Allow)?;
        filter.set_act_badarch(ScmpAction::KillProcess)?;
        sockets(&mut filter, action)?;
        for (name, error) in [
            ("io_uring_setup", libc::ENOSYS),
            ("io_uring_enter", libc::ENOSYS),
            ("io_uring_register", libc::ENOSYS),
            ("pidfd_getfd", libc::EPERM),
        ] {
            filter.add_rule(ScmpAction::Errno(error), ScmpSyscall::from_name(name)?)?;
        }
        Ok(Self {
            network,
            program: exported(&filter)?.into(),
        })
    }

    /// What it does about sockets.
    pub const fn network(&self) -> Network {
        self.network
    }

    /// The instructions, as the kernel reads them.
    pub(crate) fn program(&self) -> &[u8] {
        &self.program
    }

    /// Number of instructions.
    pub(crate) fn len(&self) -> u16 {
        u16::try_from(self.program.len() / INSTRUCTION).unwrap_or(u16::MAX)
    }
}

/// Everything but the list. A rule can compare an argument only once, so "none of these" takes one rule for what is
/// above the list, one for each number in its gaps, and one for what is below. Where only whole numbers are compared,
/// a caller with something in the upper half is refused: no library has.
fn sockets(filter: &mut ScmpFilterContext, action: ScmpAction) -> Result<(), SeccompError> {
    let socket = ScmpSyscall::from_name("socket")?;
    let family = |op, number| ScmpArgCompare::new(0, op, number);
    filter.add_rule_conditional(action, socket, &[family(ScmpCompareOp::Greater, NETLINK)])?;
    for number in (0..NETLINK).filter(|number| *number != UNIX) {
        filter.add_rule_conditional(action, socket, &[family(ScmpCompareOp::MaskedEqual(INT), number)])?;
    }
    let other_netlink = [
        family(ScmpCompareOp::MaskedEqual(INT), NETLINK),
        ScmpArgCompare::new(2, ScmpCompareOp::NotEqual, NETLINK_ROUTE),
    ];
    filter.add_rule_conditional(action, socket, &other_netlink)?;
    let pair = ScmpSyscall::from_name("socketpair")?;
    let refused = ScmpAction::Errno(libc::EACCES);
    for op in [ScmpCompareOp::Greater, ScmpCompareOp::Less] {
        filter.add_rule_conditional(refused, pair, &[family(op, UNIX)])?;
    }
    Ok(())
}

/// The program, through a file in memory: the form that every version of the library has.
fn exported(filter: &ScmpFilterContext) -> Result<Vec<u8>, FilterError> {
    let file: OwnedFd = nix::sys::memfd::memfd_create(c"kams-filter", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)
        .map_err(std::io::Error::from)?;
    let mut file = std::fs::File::from(file);
    filter.export_bpf(&file)?;
    file.rewind()?;
    let mut program = Vec::new();
    file.read_to_end(&mut program)?;
    let instructions = program.len() / INSTRUCTION;
    if program.len() % INSTRUCTION != 0 || instructions == 0 || instructions > MOST {
        return Err(FilterError::Shape(program.len()));
    }
    Ok(program)
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;

    const NATIVE: u32 = 0xc000_003e;
    const I386: u32 = 0x4000_0003;
    const X32_BIT: i64 = 0x4000_0000;

    /// What the kernel would answer: the few instructions that such programs are made of.
    fn run(filter: &Filter, arch: u32, number: i64, args: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(u32::try_from(number).expect("a number").to_ne_bytes());
        data.extend(arch.to_ne_bytes());
        data.extend(0u64.to_ne_bytes());
        for arg in args {
            data.extend(arg.to_ne_bytes());
        }
        let word = |at: u32| {
            let at = at as usize;
            u32::from_ne_bytes(data[at..at + 4].try_into().expect("four"))
        };
        let (mut at, mut a) = (0usize, 0u32);
        for _ in 0..MOST {
            let op = &filter.program()[at * 8..at * 8 + 8];
            let code = u16::from_ne_bytes([op[0], op[1]]);
            let k = u32::from_ne_bytes(op[4..8].try_into().expect("four"));
            let mut jump = None;
            match code {
                0x20 => a = word(k),
                0x54 => a &= k,
                0x05 => at += k as usize,
                0x15 => jump = Some(a == k),
                0x25 => jump = Some(a > k),
                0x35 => jump = Some(a >= k),
                0x45 => jump = Some(a & k != 0),
                0x06 => return k,
                other => panic!("instruction {other:#x}"),
            }
            at += 1 + jump.map_or(0, |yes| usize::from(if yes { op[2] } else { op[3] }));
        }
        panic!("does not end");
    }

    fn errno(number: i32) -> u32 {
        libc::SECCOMP_RET_ERRNO | u32::try_from(number).expect("positive")
    }

    #[test]
    fn only_the_list_is_allowed() {
        for (network, refused) in [
            (Network::Refused, errno(libc::EACCES)),
            (Network::Asked, libc::SECCOMP_RET_USER_NOTIF),
        ] {
            let filter = Filter::new(network).expect("made");
            assert!(filter.program().len() / 8 <= MOST / 2, "{}", filter.len());
            let socket = |family: u64, protocol: u64| {
                run(&filter, NATIVE, libc::SYS_socket, [family, 1, protocol, 0, 0, 0])
            };
            for family in (0..300).chain([u64::from(u32::MAX), 1 << 31]) {
                let expected = if matches!(family, UNIX | NETLINK) {
                    libc::SECCOMP_RET_ALLOW
                } else {
                    refused
                };
                assert_eq!(socket(family, 0), expected, "family {family}");
                // The kernel reads an int: what else is in the register never opens more.
                let dirty = socket(family | 7 << 32, 0);
                assert_eq!(dirty, refused, "family {family} with an upper half");
            }
            for protocol in 1..40 {
                assert_eq!(socket(NETLINK, protocol), refused, "netlink {protocol}");
                assert_eq!(socket(UNIX, protocol), libc::SECCOMP_RET_ALLOW);
            }
        }
    }

    #[test]
    fn other_ways_to_a_socket_are_closed() {
        for network in [Network::Refused, Network::Asked] {
            let filter = Filter::new(network).expect("made");
            let call = |number: i64, first: u64| run(&filter, NATIVE, number, [first, 0, 0, 0, 0, 0]);
            for number in [
                libc::SYS_io_uring_setup,
                libc::SYS_io_uring_enter,
                libc::SYS_io_uring_register,
            ] {
                assert_eq!(call(number, 1), errno(libc::ENOSYS));
            }
            assert_eq!(call(libc::SYS_pidfd_getfd, 3), errno(libc::EPERM));
            assert_eq!(call(libc::SYS_socketpair, UNIX), libc::SECCOMP_RET_ALLOW);
            for family in [0, 2, 10, 30, 1 << 31] {
                assert_eq!(call(libc::SYS_socketpair, family), errno(libc::EACCES));
            }
            let socket32 = 359;
            for number in [102, socket32, 1, 252] {
                let killed = run(&filter, I386, number, [UNIX, 1, 0, 0, 0, 0]);
                assert_eq!(killed, libc::SECCOMP_RET_KILL_PROCESS, "32-bit call {number}");
            }
            assert_eq!(
                call(libc::SYS_socket | X32_BIT, UNIX),
                libc::SECCOMP_RET_KILL_PROCESS
            );
            for number in [
                libc::SYS_read,
                libc::SYS_connect,
                libc::SYS_execve,
                libc::SYS_seccomp,
                libc::SYS_clone3,
                libc::SYS_close,
            ] {
                assert_eq!(call(number, 2), libc::SECCOMP_RET_ALLOW, "call {number}");
            }
        }
    }
}
