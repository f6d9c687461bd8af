//! Memory given back to the system.

/// Returns freed heap pages. Reading the kernel's type information takes tens of megabytes for a moment, which the
/// allocator would keep for good.
pub fn give_back() {
    // SAFETY: malloc_trim takes no pointer and may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
