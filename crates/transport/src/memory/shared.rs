use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::{Memory, MemoryError, PageSize};

/// What [`SharedMemory`] is rounded up to, in bytes: for small pages and for huge ones.
const SMALL: usize = 4096;
const HUGE: usize = 2 << 20;

/// Zeroed memory that other processes of this host can map, to read it without a system call.
///
/// It has no name in any folder: whoever is to map it is sent its descriptor, and it is gone
/// with the last process that has it, however that ends.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    file: File,
}

impl SharedMemory {
    /// Maps at least `len` bytes, rounded up to a multiple of 4 KiB.
    ///
    /// # Errors
    /// [`MemoryError::Length`] for 0 or an absurd length, [`MemoryError::Map`] when the system
    /// refuses.
    pub fn new(len: usize) -> Result<Self, MemoryError> {
        Self::with_pages(len, PageSize::Default)
    }

    /// As [`new`](Self::new), with a wish about the size of the pages. Huge ones are taken from
    /// those that the system has set aside, where there are so many; the length is then a
    /// multiple of 2 MiB.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_pages(len: usize, pages: PageSize) -> Result<Self, MemoryError> {
        if len == 0 {
            return Err(MemoryError::Length { len });
        }
        if pages == PageSize::Huge {
            match Self::map(len, HUGE).and_then(Self::populated) {
                Ok(memory) => return Ok(memory),
                Err(why) => tracing::debug!(%why, "no huge pages are set aside"),
            }
        }
        let memory = Self::map(len, SMALL)?;
        if pages == PageSize::Huge {
            memory.advise(Advice::LinuxHugepage);
        }
        Ok(memory)
    }

    fn map(len: usize, page: usize) -> Result<Self, MemoryError> {
        let refused = |why: Errno| MemoryError::Map { len, why: why.to_string() };
        let rounded = len.checked_next_multiple_of(page).ok_or(MemoryError::Length { len })?;
        let file = file(rounded, page == HUGE).map_err(refused)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint without MAP_FIXED lets the kernel pick fresh addresses, so no
        // memory that anybody uses is replaced. The file is as long as the mapping and sealed,
        // so no access inside it meets the end of the file.
        let base =
            unsafe { mmap(ptr::null_mut(), rounded, protection, MapFlags::SHARED, &file, 0) };
        let base = NonNull::new(base.map_err(refused)?.cast::<u8>());
        Ok(Self { base: base.ok_or(MemoryError::Length { len })?, len: rounded, file })
    }

    /// With every page there: a huge page that is missing would be found by whoever touches it
    /// first, and end the process.
    fn populated(self) -> Result<Self, MemoryError> {
        // SAFETY: the range is this value's own mapping, and this advice changes no contents.
        let populated =
            unsafe { madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxPopulateWrite) };
        match populated {
            Ok(()) => Ok(self),
            Err(why) => Err(MemoryError::Map { len: self.len, why: why.to_string() }),
        }
    }

    fn advise(&self, advice: Advice) {
        // SAFETY: as above.
        if let Err(why) = unsafe { madvise(self.base.as_ptr().cast(), self.len, advice) } {
            tracing::debug!(%why, "no huge pages");
        }
    }

    /// The whole memory as words, in the byte order of the machine; as
    /// [`HostMemory::words`](super::HostMemory::words), with the same exception.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page aligned, a multiple of 8 bytes long, zeroed by the kernel
        // and lives as long as `self`; every other access, from this process or another that
        // maps it, is the kernel's or atomic, and where it is of another size, the caller keeps
        // to the exception.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 8) }
    }
}

/// A file without a name that is `len` bytes long for ever: who maps it relies on that.
fn file(len: usize, huge: bool) -> Result<File, Errno> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if huge {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    let file = File::from(memfd_create("kvferry", flags)?);
    rustix::fs::ftruncate(&file, len as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

// SAFETY: the mapping belongs to this value alone, is fixed until drop, its file cannot be made
// shorter, and it is only handed out as atomics.
unsafe impl Memory for SharedMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn shared(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

// SAFETY: the pointer is to a mapping that any thread may use and unmap.
unsafe impl Send for SharedMemory {}
// SAFETY: shared access is through atomics only.
unsafe impl Sync for SharedMemory {}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and unmapped only here; movers hold an `Arc`
        // of the memory for as long as they use it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        if let Err(why) = unmapped {
            tracing::warn!(%why, "cannot unmap memory");
        }
    }
}
