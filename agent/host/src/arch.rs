//! The architecture: the program that the self-test runs, and the names of system calls' functions.

/// The function of a system call, by the call's name.
#[cfg(target_arch = "x86_64")]
macro_rules! call {
    ($name:literal) => {
        concat!("__x64_sys_", $name)
    };
}
/// See above.
#[cfg(target_arch = "aarch64")]
macro_rules! call {
    ($name:literal) => {
        concat!("__arm64_sys_", $name)
    };
}
pub(crate) use call;

/// A static executable that copies one byte from standard input to standard output and ends. `None` where nobody
/// wrote one; `cat` serves then.
#[cfg(target_arch = "x86_64")]
pub(crate) const ONE_BYTE_ECHO: Option<&[u8]> = Some(&[
    // ELF header: 64-bit, little-endian, executable, x86-64, entry 0x400078, one program header at 64
    0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
    2, 0, 62, 0, 1, 0, 0, 0, 0x78, 0, 0x40, 0, 0, 0, 0, 0, //
    64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
    0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0, //
    // program header: load the whole file at 0x400000, readable and executable
    1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
    0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, //
    167, 0, 0, 0, 0, 0, 0, 0, 167, 0, 0, 0, 0, 0, 0, 0, //
    0, 0x10, 0, 0, 0, 0, 0, 0, //
    0x31, 0xc0, // xor eax, eax (read)
    0x31, 0xff, // xor edi, edi
    0x48, 0x8d, 0x74, 0x24, 0xf8, // lea rsi, [rsp - 8]
    0xba, 1, 0, 0, 0, // mov edx, 1
    0x0f, 0x05, // syscall
    0xb8, 1, 0, 0, 0, // mov eax, 1 (write)
    0xbf, 1, 0, 0, 0, // mov edi, 1
    0x0f, 0x05, // syscall
    0xb8, 60, 0, 0, 0, // mov eax, 60 (exit)
    0x31, 0xff, // xor edi, edi
    0x0f, 0x05, // syscall
    0x0f, 0x0b, 0x0f, 0x0b, 0x0f, 0x0b, // never reached
    0x0f, 0x0b, 0x0f, 0x0b, //
]);

/// See above.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const ONE_BYTE_ECHO: Option<&[u8]> = None;

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::ONE_BYTE_ECHO;

    #[test]
    fn header_says_the_length_of_the_file() {
        let image = ONE_BYTE_ECHO.expect("there is one for this architecture");
        assert_eq!(usize::from(image[96]), image.len());
        assert_eq!(usize::from(image[104]), image.len());
    }
}
