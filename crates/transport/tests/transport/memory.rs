//! Memory of this process.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use transport::Memory;
use transport::memory::{HostMemory, MemoryError, PageSize, SharedMemory};

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

#[test]
fn shared_memory_has_a_file_that_stays_as_long() {
    for pages in [PageSize::Default, PageSize::Huge] {
        let memory = SharedMemory::with_pages(4097, pages).unwrap();
        assert!(memory.len() >= 8192 && memory.words().len() == memory.len() / 8);
        assert!(memory.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        memory.words()[1023].store(7, Ordering::Relaxed);
        let file = File::from(memory.shared().unwrap().try_clone_to_owned().unwrap());
        assert_eq!(file.metadata().unwrap().len(), memory.len() as u64);
        assert!(file.set_len(0).is_err());
        assert!(file.set_len(1 << 30).is_err());
    }
    for len in [0, usize::MAX] {
        assert_eq!(SharedMemory::new(len).unwrap_err(), MemoryError::Length { len });
    }
    assert!(HostMemory::new(1).unwrap().shared().is_none());
}
