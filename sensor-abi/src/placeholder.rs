//! Instructions that the loader replaces before the kernel sees the programs.
//!
//! A call of a kernel function names it by its number in the running kernel's BTF, which no compiler knows. Each
//! placeholder is a call of a helper that does not exist, one instruction of eight bytes in the machine's order.

/// Stands for a call of the kernel's function `bpf_preempt_disable`.
pub const PREEMPT_DISABLE: u64 = 0x4b41_4d01_0000_0085;
/// Stands for a call of the kernel's function `bpf_preempt_enable`.
pub const PREEMPT_ENABLE: u64 = 0x4b41_4d02_0000_0085;
/// Either half of the 64-bit constant that stands for the address of the table of process marks. A load of such a
/// constant is two instructions of eight bytes, with one half each.
pub const MARKS_HALF: u32 = 0x4b41_4d03;
