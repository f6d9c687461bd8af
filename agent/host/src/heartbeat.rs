//! The sign of life that the exec program looks at before it holds a process.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::Map;

use crate::clock;
use crate::options::SensorError;

/// Length of the mapping: the smallest that covers the one value.
const LEN: usize = size_of::<u64>();

/// The mapped value.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    value: NonNull<AtomicU64>,
}

// SAFETY: the mapping is shared memory that is only accessed through an atomic and lives until drop.
unsafe impl Send for Heartbeat {}
// SAFETY: as above; all access is atomic.
unsafe impl Sync for Heartbeat {}

impl Heartbeat {
    /// Maps the array's one value.
    pub(crate) fn map(map: &Map) -> Result<Self, SensorError> {
        let failed = |source| SensorError::Io {
            what: "cannot map the heartbeat",
            source,
        };
        let Map::Array(data) = map else {
            return Err(failed(std::io::ErrorKind::InvalidData.into()));
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice; the descriptor is open for the call.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                data.fd().as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(failed(std::io::Error::last_os_error()));
        }
        let value =
            NonNull::new(address.cast()).ok_or_else(|| failed(std::io::ErrorKind::OutOfMemory.into()))?;
        Ok(Self { value })
    }

    fn value(&self) -> &AtomicU64 {
        // SAFETY: page-aligned, as long as an AtomicU64, mapped as long as `self` lives.
        unsafe { self.value.as_ref() }
    }

    /// Whoever answers holds is alive now.
    pub(crate) fn beat(&self) {
        self.value().store(clock::boot_ns(), Ordering::Release);
    }

    /// Nobody answers holds any more: nothing is held from now on.
    pub(crate) fn stop(&self) {
        self.value().store(0, Ordering::Release);
    }

    /// Time since the last beat, ns; `None` while nobody answers.
    pub(crate) fn age_ns(&self) -> Option<u64> {
        let beat = self.value().load(Ordering::Acquire);
        (beat != 0).then(|| clock::boot_ns().saturating_sub(beat))
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; no reference into it outlives `self`.
        let result = unsafe { libc::munmap(self.value.as_ptr().cast(), LEN) };
        debug_assert_eq!(result, 0, "munmap of our own mapping");
    }
}
