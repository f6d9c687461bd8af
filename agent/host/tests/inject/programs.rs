//! Programs without a library, whose first instruction is known.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder for programs, removed by the system with its temporary files; on a filesystem that honours set-uid.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("inject-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        folder
    })
}

/// Each in a folder of its own: another test may be running the same program, and what runs cannot be written.
pub(crate) fn install(name: &str, image: &[u8], mode: u32) -> PathBuf {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let own = folder().join(LAST.fetch_add(1, Ordering::Relaxed).to_string());
    std::fs::create_dir(&own).expect("made");
    let path = own.join(name);
    std::fs::write(&path, image).expect("written");
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
    path
}

/// A 64-bit x86 executable of this machine code, loaded at 0x400000.
pub(crate) fn elf64(code: &[u8]) -> Vec<u8> {
    let size = 0x78 + code.len() as u64;
    let mut image = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    image.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [0x40_0078u64, 64, 0] {
        image.extend(word.to_le_bytes());
    }
    image.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    image.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0, 0x40_0000, 0x40_0000, size, size, 0x1000] {
        image.extend(u64::to_le_bytes(word));
    }
    image.extend(code);
    image
}

/// A 32-bit x86 executable, likewise.
pub(crate) fn elf32(code: &[u8]) -> Vec<u8> {
    let size = 0x54 + u32::try_from(code.len()).expect("short");
    let mut image = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    image.extend([2, 0, 3, 0, 1, 0, 0, 0]);
    for word in [0x40_0054u32, 52, 0, 0] {
        image.extend(word.to_le_bytes());
    }
    image.extend([52, 0, 32, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    for word in [1, 0, 0x40_0000, 0x40_0000, size, size, 5, 0x1000] {
        image.extend(u32::to_le_bytes(word));
    }
    image.extend(code);
    image
}

/// What [`first_write`] writes.
pub(crate) const FIRST: &[u8] = b"first\n";

/// Writes [`FIRST`] to standard output with its first system call, and ends.
pub(crate) fn first_write() -> PathBuf {
    let mut code = vec![
        0xb8, 1, 0, 0, 0, // mov eax, 1 (write)
        0xbf, 1, 0, 0, 0, // mov edi, 1
        0x48, 0x8d, 0x35, 0x11, 0, 0, 0, // lea rsi, [rip + 17]: behind the code
        0xba, 6, 0, 0, 0, // mov edx, 6
        0x0f, 0x05, // syscall
        0xb8, 60, 0, 0, 0, // mov eax, 60 (exit)
        0x31, 0xff, // xor edi, edi
        0x0f, 0x05, // syscall
        0x90,
    ];
    code.extend(FIRST);
    install("first-write", &elf64(&code), 0o755)
}

/// The same for 32 bits.
pub(crate) fn first_write_32() -> PathBuf {
    let mut code = vec![
        0xb8, 4, 0, 0, 0, // mov eax, 4 (write)
        0xbb, 1, 0, 0, 0, // mov ebx, 1
        0xb9, 0x76, 0, 0x40, 0, // mov ecx, 0x400076: behind the code
        0xba, 6, 0, 0, 0, // mov edx, 6
        0xcd, 0x80, // int 0x80
        0xb8, 1, 0, 0, 0, // mov eax, 1 (exit)
        0x31, 0xdb, // xor ebx, ebx
        0xcd, 0x80, // int 0x80
        0x90, 0x90, 0x90,
    ];
    code.extend(FIRST);
    install("first-write-32", &elf32(&code), 0o755)
}

/// Calls vfork; the child waits for ever, so the parent stays in an uninterruptible sleep.
pub(crate) fn stuck() -> PathBuf {
    let code = [
        0xb8, 58, 0, 0, 0, // mov eax, 58 (vfork)
        0x0f, 0x05, // syscall
        0xb8, 34, 0, 0, 0, // mov eax, 34 (pause)
        0x0f, 0x05, // syscall
        0xeb, 0xf7, // again
    ];
    install("stuck", &elf64(&code), 0o755)
}
