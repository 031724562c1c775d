//! Memory of this process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use transport::Memory;
use transport::memory::{HostMemory, MemoryError, PageSize};

#[test]
fn memory_is_zeroed_rounded_up_and_shared_as_words() {
    for pages in [PageSize::Default, PageSize::Huge] {
        let memory = Arc::new(HostMemory::with_pages(4097, pages).unwrap());
        assert_eq!((memory.len(), memory.words().len()), (8192, 1024));
        assert!(memory.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        let other = Arc::clone(&memory);
        let writer = std::thread::spawn(move || other.words()[1023].store(7, Ordering::Relaxed));
        writer.join().unwrap();
        assert_eq!(memory.words()[1023].load(Ordering::Relaxed), 7);
    }
}

#[test]
fn absurd_lengths_are_refused() {
    for len in [0, usize::MAX] {
        assert_eq!(HostMemory::new(len).unwrap_err(), MemoryError::Length { len });
    }
    let beyond = HostMemory::new(1 << 60).unwrap_err();
    assert!(matches!(beyond, MemoryError::Map { .. }));
}
