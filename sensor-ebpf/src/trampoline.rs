//! A program that only shows whether this kernel accepts trampolines. Loaded by `kams doctor`, never attached.

/// Does nothing.
#[unsafe(no_mangle)]
#[unsafe(link_section = "fexit/vfs_read")]
pub extern "C" fn trampoline(_ctx: *mut core::ffi::c_void) -> i32 {
    0
}
