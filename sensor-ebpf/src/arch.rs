//! The architecture: registers of a system call and its numbers.

#[cfg(bpf_target_arch = "x86_64")]
mod x86_64;
#[cfg(bpf_target_arch = "x86_64")]
pub use x86_64::*;
