use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Slice;
use crate::memory::HostMemory;

/// Whoever asks for bytes that a slice does not have gets none, in any build.
#[test]
fn nothing_beyond_a_slice_is_handed_out() {
    let memory = HostMemory::new(64).unwrap();
    let slice = Slice::of(&memory, 8, 32).unwrap();
    let bytes = |start, end| catch_unwind(AssertUnwindSafe(|| slice.bytes(start, end).count()));
    assert_eq!([bytes(0, 32).unwrap(), bytes(7, 9).unwrap(), bytes(9, 7).unwrap()], [32, 2, 0]);
    assert!(bytes(0, 33).is_err() && bytes(33, 34).is_err());

    let whole = |start, count| catch_unwind(AssertUnwindSafe(|| slice.whole(start, count).count()));
    assert_eq!([whole(0, 4).unwrap(), whole(24, 1).unwrap(), whole(32, 0).unwrap()], [4, 1, 0]);
    let beyond = [(0, 5), (8, 4), (32, 1), (40, 0), (8, usize::MAX / 8), (usize::MAX, 1)];
    assert!(beyond.iter().all(|&(start, count)| whole(start, count).is_err()));
    // No word begins at the other addresses.
    assert!((1..8).all(|start| whole(start, 1).is_err() && whole(start, 0).is_ok()));
}

/// Pieces that lie between two words, and such that have one among them.
#[test]
fn pieces_of_any_length_begin_anywhere() {
    let memory = HostMemory::new(64).unwrap();
    let all: Vec<u8> = (1..=64).collect();
    for (offset, len) in (0..20_u8).flat_map(|offset| (0..20_u8).map(move |len| (offset, len))) {
        let slice = Slice::of(&memory, offset.into(), len.into()).unwrap();
        let (len, mut read) = (usize::from(len), [0; 64]);
        assert_eq!((slice.write_from(&all), slice.read_into(&mut read)), (len, len));
        assert_eq!((&read[..len], &read[len..]), (&all[..len], &[0; 64][len..]));
    }
}
