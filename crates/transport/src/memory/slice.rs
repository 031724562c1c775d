use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use super::Memory;

/// Some bytes of a [`Memory`] that is alive for `'a`: a pointer for system calls, never a Rust
/// reference to the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice<'a> {
    ptr: *mut u8,
    len: usize,
    memory: PhantomData<&'a dyn Memory>,
}

impl<'a> Slice<'a> {
    /// `len` bytes from `offset` on, or `None` if the memory does not have them.
    pub(crate) fn of(memory: &'a dyn Memory, offset: u64, len: u64) -> Option<Self> {
        let offset = usize::try_from(offset).ok()?;
        let len = usize::try_from(len).ok()?;
        let inside = offset.checked_add(len)? <= memory.len();
        inside.then(|| Self {
            ptr: memory.base().as_ptr().wrapping_add(offset),
            len,
            memory: PhantomData,
        })
    }

    pub(crate) fn ptr(self) -> *mut u8 {
        self.ptr
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// What is left after `len` bytes; `None` if nothing is.
    pub(crate) fn skip(self, len: usize) -> Option<Self> {
        let rest = self.len.checked_sub(len).filter(|&rest| rest > 0)?;
        Some(Self { ptr: self.ptr.wrapping_add(len), len: rest, memory: PhantomData })
    }

    /// Copies as many bytes as both have, one atomic at a time: others may look at them, and
    /// the two may be of the same memory. Whole words only where both sides are aligned; what
    /// that asks of those who look is in the contract of [`Memory`].
    pub(crate) fn copy_to(self, target: Slice<'_>) {
        let len = self.len.min(target.len);
        let aligned = |ptr: *mut u8| ptr.addr().is_multiple_of(align_of::<AtomicU64>());
        let words = if aligned(self.ptr) && aligned(target.ptr) { len / 8 } else { 0 };
        for at in 0..words {
            let (from, to) = (self.ptr.cast::<u64>(), target.ptr.cast::<u64>());
            // SAFETY: both slices have `words` whole words from an aligned start, their
            // memories outlive the slices, and others use them as atomics of this size at most, by
            // the contract of `Memory`.
            let (from, to) =
                unsafe { (AtomicU64::from_ptr(from.add(at)), AtomicU64::from_ptr(to.add(at))) };
            to.store(from.load(Relaxed), Relaxed);
        }
        for at in words * 8..len {
            // SAFETY: `at` is below the length of both slices; the rest as above.
            let (from, to) = unsafe {
                (AtomicU8::from_ptr(self.ptr.add(at)), AtomicU8::from_ptr(target.ptr.add(at)))
            };
            to.store(from.load(Relaxed), Relaxed);
        }
    }

    /// Copies as many bytes as both have into bytes of one's own, as [`words`](Self::words) cuts
    /// them. Gives their number.
    pub(crate) fn read_into(self, target: &mut [u8]) -> usize {
        let len = self.len.min(target.len());
        let (head, words) = self.words(len);
        let (start, rest) = target[..len].split_at_mut(head);
        let (middle, end) = rest.as_chunks_mut();
        self.bytes(0, start.len()).zip(start).for_each(|(at, byte)| *byte = at.load(Relaxed));
        for (at, word) in self.whole(head, words).zip(middle) {
            *word = at.load(Relaxed).to_ne_bytes();
        }
        self.bytes(head + 8 * words, len).zip(end).for_each(|(at, byte)| *byte = at.load(Relaxed));
        len
    }

    /// Copies as many bytes as both have from bytes of one's own; the same.
    pub(crate) fn write_from(self, source: &[u8]) -> usize {
        let len = self.len.min(source.len());
        let (head, words) = self.words(len);
        let (start, rest) = source[..len].split_at(head);
        let (middle, end) = rest.as_chunks();
        self.bytes(0, start.len()).zip(start).for_each(|(at, byte)| at.store(*byte, Relaxed));
        for (at, word) in self.whole(head, words).zip(middle) {
            at.store(u64::from_ne_bytes(*word), Relaxed);
        }
        self.bytes(head + 8 * words, len).zip(end).for_each(|(at, byte)| at.store(*byte, Relaxed));
        len
    }

    /// Of the first `len` bytes, how many are in front of the first aligned word, and how many
    /// whole words follow.
    fn words(self, len: usize) -> (usize, usize) {
        let head = self.ptr.addr().wrapping_neg() % align_of::<AtomicU64>();
        let head = head.min(len);
        (head, (len - head) / 8)
    }

    /// The bytes from `start` to `end`, as atomics.
    fn bytes(self, start: usize, end: usize) -> impl Iterator<Item = &'a AtomicU8> {
        assert!(end <= self.len, "beyond the slice");
        // SAFETY: `end` is at most the length of the slice, as was just seen; its memory
        // outlives `'a`, and others use it as atomics, by the contract of `Memory`.
        (start..end).map(move |at| unsafe { AtomicU8::from_ptr(self.ptr.add(at)) })
    }

    /// So many words from `start` on, where one is aligned.
    fn whole(self, start: usize, count: usize) -> impl Iterator<Item = &'a AtomicU64> {
        assert!(start <= self.len && count <= (self.len - start) / 8, "beyond the slice");
        let first = self.ptr.wrapping_add(start).cast::<u64>();
        // Fewer bytes than there are in front of a word have none among them.
        assert!(count == 0 || first.cast::<AtomicU64>().is_aligned(), "no whole word begins there");
        // SAFETY: the words lie inside the slice and the first is aligned, as was just seen; the
        // rest as above.
        (0..count).map(move |at| unsafe { AtomicU64::from_ptr(first.add(at)) })
    }
}

#[cfg(test)]
#[path = "slice_tests.rs"]
mod tests;
