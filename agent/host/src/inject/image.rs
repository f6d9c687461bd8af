//! Where a fresh program begins, and where in its memory a system call can be made from.

use std::io;
use std::sync::OnceLock;

use libc::pid_t;

use super::arch::SYSCALL;
use super::ptrace;

const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;
const AT_SYSINFO_EHDR: u64 = 33;
/// Offset of `e_entry` in a 64-bit ELF header.
const ENTRY_IN_HEADER: u64 = 24;
/// Most bytes of the vdso that are searched; it is two to four pages.
const VDSO_MAX: usize = 64 * 1024;

/// Addresses in a target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// The first instruction that it executes: its interpreter's, or its own.
    pub(super) entry: u64,
    /// An instruction that enters the kernel.
    pub(super) syscall: u64,
}

/// Reads it from a stopped target. `None` where there is no vdso, or none with such an instruction.
pub(super) fn of(pid: pid_t) -> io::Result<Option<Image>> {
    let vector = std::fs::read(format!("/proc/{pid}/auxv"))?;
    let (base, own) = (entry_of(&vector, AT_BASE), entry_of(&vector, AT_ENTRY));
    let entry = match base {
        // The kernel maps an interpreter from its header on.
        Some(base) if base != 0 => base.wrapping_add(ptrace::peek(pid, base.wrapping_add(ENTRY_IN_HEADER))?),
        _ => own.unwrap_or(0),
    };
    let Some((vdso, offset)) = entry_of(&vector, AT_SYSINFO_EHDR).zip(offset_in_vdso()) else {
        return Ok(None);
    };
    let syscall = vdso.wrapping_add(offset);
    // A target of another kernel's making (a checkpoint that was restored) may have another vdso.
    let found = ptrace::peek(pid, syscall)?.to_le_bytes();
    Ok(found.starts_with(SYSCALL).then_some(Image { entry, syscall }))
}

fn entry_of(vector: &[u8], kind: u64) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
    vector
        .chunks_exact(16)
        .find(|pair| word(&pair[..8]) == Some(kind))
        .and_then(|pair| word(&pair[8..]))
}

/// Where in the vdso the instruction is: the same in every process of this kernel, so our own tells.
fn offset_in_vdso() -> Option<u64> {
    static OFFSET: OnceLock<Option<u64>> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
        let (start, rest) = line.split_once('-')?;
        let (end, _) = rest.split_once(' ')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let len = usize::try_from(u64::from_str_radix(end, 16).ok()?.checked_sub(start)?).ok()?;
        let memory = std::fs::File::open("/proc/self/mem").ok()?;
        let mut code = vec![0; len.min(VDSO_MAX)];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut code, start).ok()?;
        let at = code.windows(SYSCALL.len()).position(|window| window == SYSCALL)?;
        u64::try_from(at).ok()
    })
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;

    #[test]
    fn this_kernels_vdso_has_the_instruction() {
        assert!(offset_in_vdso().is_some());
    }

    #[test]
    fn the_vector_is_read_by_kind() {
        let mut vector = Vec::new();
        for word in [3u64, 64, AT_ENTRY, 0x40_1000, 0, 0] {
            vector.extend(word.to_ne_bytes());
        }
        assert_eq!(entry_of(&vector, AT_ENTRY), Some(0x40_1000));
        assert_eq!(entry_of(&vector, AT_BASE), None);
    }
}
