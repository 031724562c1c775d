//! Memory that movers read and write behind the compiler's back.

mod host;
mod slice;

use std::ptr::NonNull;

pub use host::{HostMemory, MemoryError, PageSize};
pub(crate) use slice::Slice;

/// Bytes that an endpoint may read and write while others hold the same memory.
///
/// # Safety
/// `base` and `len` never change while the value lives, and the bytes between them stay valid
/// for reads and writes by any thread. Nobody holds Rust references to those bytes other than
/// to atomics: movers write them from system calls and other threads at any time.
pub unsafe trait Memory: Send + Sync {
    /// First byte.
    fn base(&self) -> NonNull<u8>;

    /// Number of bytes.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
