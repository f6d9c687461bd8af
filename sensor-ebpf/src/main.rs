//! Kernel side of the Kams sensor.
//!
//! Three lifecycle programs that are always attached (`process_exec`, `process_fork`, `process_exit`), one payload
//! program in two forms (`payload_loop`, `payload_bounded`) that is attached to `sys_exit` only while a stream
//! is watched, programs at kernel functions that replace it where the kernel allows that (`functions`), and an
//! iterator over open descriptors.
//!
//! Every kernel structure is read with `bpf_probe_read_kernel` at offsets that the loader resolves from the running
//! kernel's type information; nothing here is compiled against one kernel.
#![no_std]
#![no_main]
// Inline assembly for this target: one atomic addition, which `core` does not offer here.
#![feature(asm_experimental_arch)]

mod arch;
mod carry;
mod descriptors;
mod emit;
mod files;
mod functions;
mod hold;
mod kernel;
mod lifecycle;
mod maps;
mod marks;
mod payload;
mod preempt;
mod rescue;
mod streams;
mod trampoline;

/// Licence of the programs, as the kernel wants it; several helpers are for GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Unreachable: no operation in these programs can panic; if one could, the verifier would refuse the loop.
    loop {}
}
