//! Memory that movers read and write behind the compiler's back.

mod host;
mod shared;
mod slice;

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

pub use host::{HostMemory, MemoryError, PageSize};
pub use shared::SharedMemory;
pub(crate) use slice::Slice;

/// Bytes that an endpoint may read and write while others hold the same memory.
///
/// # Safety
/// `base` and `len` never change while the value lives, and the bytes between them stay valid
/// for reads and writes by any thread. Nobody holds Rust references to those bytes other than
/// to atomics: movers write them from system calls and other threads at any time.
///
/// Rust's memory model has no races between atomics of different sizes. Two movers copy in this
/// process. `loopback` uses `AtomicU64` where source and target are both aligned to 8 bytes and
/// `AtomicU8` for everything else. `tcp` under TLS uses `AtomicU64` for aligned words and
/// `AtomicU8` at the ends of the pieces that come and go at once. So whoever looks, be it through
/// atomics, looks with these sizes or not before the transfer has completed; of two loopback
/// transfers at a time that share bytes, both are aligned or neither is; and what a transfer
/// under TLS writes is shared with no other at that time. `shm` copies as the kernel does: by
/// system calls, and by machine instructions that the compiler knows nothing about.
pub unsafe trait Memory: Send + Sync {
    /// First byte.
    fn base(&self) -> NonNull<u8>;

    /// Number of bytes.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file of this memory, if other processes may map it: its first byte is the first of
    /// the memory, it is at least as long, and sealed so that it stays so.
    fn shared(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
