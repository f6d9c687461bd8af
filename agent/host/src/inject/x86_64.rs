//! What is particular to x86-64: registers, the way into the kernel, the state at a program's entry.

use std::io;

use libc::{pid_t, user_regs_struct};

use super::ptrace;

/// The instruction that enters the kernel.
pub(super) const SYSCALL: &[u8] = &[0x0f, 0x05];

/// Code segment of a 64-bit user program; a 32-bit one has 0x23.
const USER_64: u64 = 0x33;

/// The registers of a stopped target.
#[derive(Clone, Copy)]
pub(super) struct Registers(user_regs_struct);

impl Registers {
    pub(super) fn of(pid: pid_t) -> io::Result<Self> {
        // SAFETY: every member is an integer, for which zero is valid.
        let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
        ptrace::registers(pid, &mut registers)?;
        Ok(Self(registers))
    }

    pub(super) fn set(&self, pid: pid_t) -> io::Result<()> {
        ptrace::set_registers(pid, &self.0)
    }

    /// Whether the target runs 64-bit code of this architecture.
    pub(super) const fn is_native(&self) -> bool {
        self.0.cs == USER_64
    }

    /// Whether everything is as the kernel hands it to a new program that is entered at `entry`.
    pub(super) const fn is_at(&self, entry: u64) -> bool {
        let Self(r) = self;
        let untouched = r.rax | r.rbx | r.rcx | r.rdx | r.rsi | r.rdi | r.rbp;
        let untouched = untouched | r.r8 | r.r9 | r.r10 | r.r11 | r.r12 | r.r13 | r.r14 | r.r15;
        r.rip == entry && untouched == 0
    }

    pub(super) const fn stack(&self) -> u64 {
        self.0.rsp
    }

    /// These registers, changed so that the next instruction makes a system call. `at` is the address of a [`SYSCALL`].
    pub(super) fn calling(&self, at: u64, number: libc::c_long, arguments: [u64; 4]) -> Self {
        let mut next = self.0;
        next.rip = at;
        next.rax = number.cast_unsigned();
        // No call is being returned from: nothing is to be restarted.
        next.orig_rax = u64::MAX;
        [next.rdi, next.rsi, next.rdx, next.r10] = arguments;
        Self(next)
    }

    /// What the call returned, if these are the registers after the [`SYSCALL`] at `at`.
    pub(super) const fn returned(&self, at: u64) -> Option<i64> {
        if self.0.rip == at + SYSCALL.len() as u64 {
            Some(self.0.rax.cast_signed())
        } else {
            None
        }
    }
}
