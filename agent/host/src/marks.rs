//! The table of process marks, shared with the kernel side by memory mapping.
//!
//! One byte per process id. The kernel side writes a byte at fork (whole), at exec (clears bits) and at exit
//! (clears); this side sets and clears bits with atomic operations. The kernel's read-modify-write at exec is not
//! atomic against ours: a bit set in that very moment can be lost. Every exec is reported, so whoever sets marks
//! decides again on that report.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use kams_sensor_abi::marks::MARKS_LEN;

use crate::event::Marks;
use crate::options::SensorError;

/// Makes the table: an array map of one value that can be mapped. The descriptor must stay open as long as programs
/// that name it may be loaded.
pub(crate) fn create() -> Result<OwnedFd, SensorError> {
    const BPF_MAP_CREATE: libc::c_long = 0;
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    const BPF_F_MMAPABLE: u32 = 1 << 10;

    /// The begin of the kernel's `union bpf_attr` for this command, a stable interface.
    #[repr(C)]
    struct Attributes {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        inner_map_fd: u32,
        numa_node: u32,
        map_name: [u8; 16],
    }
    let attributes = Attributes {
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: u32::try_from(MARKS_LEN).unwrap_or(u32::MAX),
        max_entries: 1,
        map_flags: BPF_F_MMAPABLE,
        inner_map_fd: 0,
        numa_node: 0,
        map_name: *b"MARKS\0\0\0\0\0\0\0\0\0\0\0",
    };
    // SAFETY: BPF_MAP_CREATE reads `attributes`, whose size is given, and writes nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_CREATE,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    let failed = |source| SensorError::Io {
        what: "cannot make the table of process marks",
        source,
    };
    let fd = i32::try_from(result).map_err(|_out_of_range| failed(std::io::ErrorKind::InvalidData.into()))?;
    if fd < 0 {
        return Err(failed(std::io::Error::last_os_error()));
    }
    // SAFETY: a fresh descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The mapped table.
#[derive(Debug)]
pub(crate) struct MarkTable {
    bytes: NonNull<AtomicU8>,
}

// SAFETY: the mapping is shared memory that is only accessed through atomic bytes and lives until drop.
unsafe impl Send for MarkTable {}
// SAFETY: as above; all access is atomic.
unsafe impl Sync for MarkTable {}

impl MarkTable {
    /// Maps the array behind `fd`, whose one value has [`MARKS_LEN`] bytes.
    pub(crate) fn map(fd: BorrowedFd<'_>) -> Result<Self, SensorError> {
        // SAFETY: a fresh mapping at an address of the kernel's choice; `fd` is open for the duration of the call.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                MARKS_LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(SensorError::Io {
                what: "cannot map the table of process marks",
                source: std::io::Error::last_os_error(),
            });
        }
        let bytes = NonNull::new(address.cast::<AtomicU8>()).ok_or_else(|| SensorError::Io {
            what: "cannot map the table of process marks",
            source: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        Ok(Self { bytes })
    }

    fn all(&self) -> &[AtomicU8] {
        // SAFETY: the mapping is MARKS_LEN bytes long, lives as long as `self`, and AtomicU8 has no invalid values
        // and permits concurrent modification (by the kernel too).
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), MARKS_LEN) }
    }

    fn byte(&self, pid: u32) -> Result<&AtomicU8, SensorError> {
        let index = usize::try_from(pid).unwrap_or(usize::MAX);
        self.all().get(index).ok_or(SensorError::Pid(pid))
    }

    pub(crate) fn get(&self, pid: u32) -> Marks {
        self.byte(pid)
            .map_or(Marks::NONE, |byte| Marks(byte.load(Ordering::Acquire)))
    }

    pub(crate) fn set(&self, pid: u32, marks: Marks) -> Result<(), SensorError> {
        self.byte(pid)?.fetch_or(marks.0, Ordering::AcqRel);
        Ok(())
    }

    pub(crate) fn clear(&self, pid: u32, marks: Marks) {
        if let Ok(byte) = self.byte(pid) {
            byte.fetch_and(!marks.0, Ordering::AcqRel);
        }
    }

    /// Every process with a mark, up to process id `limit`. Reads `limit` bytes.
    pub(crate) fn marked(&self, limit: u32) -> Vec<(u32, Marks)> {
        (0..limit)
            .zip(self.all())
            .filter_map(|(pid, byte)| {
                let marks = byte.load(Ordering::Relaxed);
                (marks != 0).then_some((pid, Marks(marks)))
            })
            .collect()
    }
}

impl Drop for MarkTable {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; no reference into it outlives `self`.
        let result = unsafe { libc::munmap(self.bytes.as_ptr().cast(), MARKS_LEN) };
        debug_assert_eq!(result, 0, "munmap of our own mapping");
    }
}
