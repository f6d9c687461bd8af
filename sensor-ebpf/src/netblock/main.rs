//! Kernel side of the network backstop: process trees that may not use the network.
//!
//! Five programs at the root control group refuse what a marked process tries (`hooks`), two at tracepoints keep the
//! marks (`tree`). They are attached only while something is blocked. An object of its own, because it is pinned and goes
//! on while the daemon is down or restarted.
#![no_std]
#![no_main]
// Inline assembly for this target: one atomic addition, and the calls that the loader puts in place.
#![feature(asm_experimental_arch)]

mod hooks;
mod maps;
#[path = "../preempt.rs"]
mod preempt;
mod tree;

/// Licence of the programs, as the kernel wants it; several helpers are for GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Unreachable: no operation in these programs can panic; if one could, the verifier would refuse the loop.
    loop {}
}
