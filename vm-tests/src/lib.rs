//! Tests on other kernels: a guest under qemu's software emulation, whose whole file system is an archive that is
//! built for the run.
//!
//! The host side ([`archive`], [`guest`], [`watch`]) needs qemu and a kernel image; the guest side is the program
//! `vm-init`, the first process of the guest, which runs the programs of a [`plan`] and says how they ended. A run
//! is good only when qemu's exit status **and** the summary line on the console say so: a guest that panics, hangs
//! or powers off has said neither.
//!
//! Which kernels there are, and how they are fetched, is `cargo xtask vm`'s business.
#![forbid(unsafe_code)]

pub mod archive;
pub mod guest;
pub mod plan;
pub mod watch;
