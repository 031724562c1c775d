use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Memory of another process, mapped into this one to be read.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes of a file, which must have them for ever: access beyond the
    /// end of a file ends the process.
    pub(super) fn new(file: &OwnedFd, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let long_enough = usize::try_from(fstat(file)?.st_size).is_ok_and(|size| size >= len);
        // Only memory without a name has seals: no other file gets this far.
        let sealed = fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        if len == 0 || !long_enough || !sealed {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a null hint without MAP_FIXED lets the kernel pick fresh addresses, so no
        // memory that anybody uses is replaced. The file is at least as long as the mapping and
        // cannot be made shorter, as was just seen.
        let base =
            unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) };
        let base = NonNull::new(base?.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// The address of a byte of it.
    pub(super) fn address(&self, offset: u64) -> *mut u8 {
        self.base.as_ptr().wrapping_add(usize::try_from(offset).unwrap_or(usize::MAX))
    }
}

// SAFETY: the pointer is to a mapping that any thread may read and unmap.
unsafe impl Send for Mapping {}
// SAFETY: it is only read, and by instructions that the compiler does not see.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and unmapped only here; whoever copies holds
        // the place that has the mapping.
        if let Err(why) = unsafe { munmap(self.base.as_ptr().cast(), self.len) } {
            tracing::warn!(%why, "cannot unmap a source's memory");
        }
    }
}
