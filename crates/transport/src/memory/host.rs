use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::Memory;

/// What [`HostMemory`] is rounded up to, in bytes.
const GRAIN: usize = 4096;

/// Why memory could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Nothing was asked for, or more than an address space holds.
    #[error("{len} bytes cannot be mapped")]
    Length {
        /// What was asked for.
        len: usize,
    },
    /// The system has none to give.
    #[error("cannot map {len} bytes: {why}")]
    Map {
        /// What was asked for.
        len: usize,
        /// The system's words.
        why: String,
    },
}

/// Which pages to ask the system for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PageSize {
    /// Whatever the system gives.
    #[default]
    Default,
    /// Huge ones where the system can: a wish, not a promise.
    Huge,
}

/// Zeroed private memory of this process, unmapped when dropped.
#[derive(Debug)]
pub struct HostMemory {
    base: NonNull<u8>,
    len: usize,
}

impl HostMemory {
    /// Maps at least `len` bytes, rounded up to a multiple of 4 KiB.
    ///
    /// # Errors
    /// [`MemoryError::Length`] for 0 or an absurd length, [`MemoryError::Map`] when the system
    /// refuses.
    pub fn new(len: usize) -> Result<Self, MemoryError> {
        Self::with_pages(len, PageSize::Default)
    }

    /// As [`new`](Self::new), with a wish about the size of the pages.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_pages(len: usize, pages: PageSize) -> Result<Self, MemoryError> {
        let rounded = len.checked_next_multiple_of(GRAIN).filter(|&rounded| rounded > 0);
        let rounded = rounded.ok_or(MemoryError::Length { len })?;
        let refused = |why: rustix::io::Errno| MemoryError::Map { len, why: why.to_string() };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint without MAP_FIXED lets the kernel pick fresh addresses, so no
        // memory that anybody uses is replaced.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), rounded, protection, MapFlags::PRIVATE) };
        let base =
            NonNull::new(base.map_err(refused)?.cast::<u8>()).ok_or(MemoryError::Length { len })?;
        let memory = Self { base, len: rounded };
        if pages == PageSize::Huge {
            memory.prefer_huge_pages();
        }
        Ok(memory)
    }

    fn prefer_huge_pages(&self) {
        // SAFETY: the range is this value's own mapping, and this advice changes no contents.
        let advised =
            unsafe { madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxHugepage) };
        if let Err(why) = advised {
            tracing::debug!(%why, "no huge pages");
        }
    }

    /// The whole memory as words, in the byte order of the machine: the way for safe code to
    /// look at bytes that movers write at the same time.
    ///
    /// One mover is excepted: `loopback` copies bytes that are not whole aligned words on both
    /// sides as single bytes. Words that such a copy touches may be used only before its
    /// `submit` and after its completion; see the contract of [`Memory`].
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page aligned, a multiple of 8 bytes long, zeroed by the kernel
        // and lives as long as `self`; every other access is the kernel's or atomic, and where it
        // is of another size, the caller keeps to the exception above.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 8) }
    }
}

// SAFETY: the mapping belongs to this value alone, is fixed until drop, and is only handed out
// as atomics.
unsafe impl Memory for HostMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: the pointer is to a private mapping that any thread may use and unmap.
unsafe impl Send for HostMemory {}
// SAFETY: shared access is through atomics only.
unsafe impl Sync for HostMemory {}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `with_pages` with this length, and unmapped only here; movers hold
        // an `Arc` of the memory for as long as they use it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        if let Err(why) = unmapped {
            tracing::warn!(%why, "cannot unmap memory");
        }
    }
}
