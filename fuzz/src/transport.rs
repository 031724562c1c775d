//! What strangers say on a socket of the data path, byte by byte.

use ::transport::memory::HostMemory;
use ::transport::session::{HELLO_LEN, Hello, VERSIONS};
use ::transport::{BoundRegion, Memory};

use crate::{Bytes, allowance};

// Private there: compiled once more here, so that the decoders are reached without a socket.
#[path = "../../crates/transport/src/tcp/frame.rs"]
mod frames;
#[path = "../../crates/transport/src/tcp/request.rs"]
mod requests;
#[path = "../../crates/transport/src/shm/frame.rs"]
mod shm_frames;
#[path = "../../crates/transport/src/shm/show.rs"]
mod shows;

/// As `transport::tcp` and `transport::shm` have them, for the modules above.
const MAX_REQUEST_BYTES: usize = 8 << 20;
const MAX_SHOW_BYTES: usize = 2 << 20;

/// The first words.
pub fn hello(input: &[u8]) {
    let bytes: [u8; HELLO_LEN] = Bytes::new(input).array();
    let Ok(hello) = Hello::decode(&bytes) else { return };
    assert!(hello.stream < hello.streams);
    assert_eq!(Hello::decode(&hello.encode()).as_ref(), Ok(&hello));
    if let Ok(version) = hello.agree(&VERSIONS) {
        assert!(VERSIONS.contains(&version) && hello.versions.contains(&version));
    }
}

/// Frames of both directions.
pub fn frame(input: &[u8]) {
    let mut from = Bytes::new(input);
    while !from.is_empty() {
        let frame: frames::Frame = from.array();
        if let Some(said) = frames::ToSource::decode(&frame) {
            assert_eq!(said.encode(), frame);
        }
        if let Some(said) = frames::ToReader::decode(&frame) {
            assert_eq!(said.encode(), frame);
        }
    }
}

/// Bytes for a byte of a request: 28 bytes become blocks of some 140, and a list of one id a
/// shared one of 20 with 16 to name it; lists grow by doubling.
const PER_BYTE: u64 = 24;

/// What a reader asks for.
pub fn request(input: &[u8]) {
    let allowed = allowance::of(input.len(), PER_BYTE);
    let read = allowance::within(allowed, "a request", || requests::decode(input));
    let Some(blocks) = read else { return };
    for blocks in &blocks {
        let _ = blocks.walk(1 << 20).take(4).count();
    }
    let again = requests::encode(blocks.iter());
    let again = again.as_deref().and_then(requests::decode);
    assert_eq!(again.as_ref(), Some(&blocks));
}

/// Frames of both directions through shared memory, with the bytes that are to follow.
pub fn shm_frame(input: &[u8]) {
    let mut from = Bytes::new(input);
    while !from.is_empty() {
        let frame: frames::Frame = from.array();
        let to_source = shm_frames::ToSource::decode(&frame);
        let to_reader = shm_frames::ToReader::decode(&frame);
        assert!(to_source.is_none() || to_reader.is_none());
        if let Some((said, follow)) = to_source {
            assert_eq!(said.encode(), frame);
            assert!(follow <= MAX_REQUEST_BYTES);
        }
        if let Some((said, follow)) = to_reader {
            assert_eq!(said.encode(), frame);
            assert!(follow <= MAX_SHOW_BYTES);
        }
    }
}

/// Bytes for a byte of a show: 24 become a region of 32, and lists grow by doubling.
const PER_SHOWN_BYTE: u64 = 4;

/// Memory that is mapped for one input.
const SMALL: usize = 1 << 20;

/// What a source tells of a registration.
pub fn show(input: &[u8]) {
    let allowed = allowance::of(input.len(), PER_SHOWN_BYTE);
    let read = allowance::within(allowed, "a show", || shows::decode(input));
    let Some(shows::Show { base, len, shared, regions }) = read else { return };
    assert!(base.checked_add(len).is_some());
    for (_, offset, region) in &regions {
        let end = region.bytes().ok().and_then(|bytes| bytes.checked_add(*offset));
        assert!(end.is_some_and(|end| end <= len));
    }
    // Told anew of memory of this process, it is the same but for the address.
    let small = usize::try_from(len).ok().filter(|len| !shared && (1..=SMALL).contains(len));
    let Some(Ok(memory)) = small.map(HostMemory::new) else { return };
    let bound = |&(id, offset, region): &_| BoundRegion { id, offset, region };
    let again = shows::encode(&memory, &regions.iter().map(bound).collect::<Vec<_>>());
    assert_eq!(again[24..], input[24..]);
    // Memory comes in whole pages.
    let again = shows::decode(&again).map(|again| (again.len, again.regions));
    assert_eq!(again, Some((memory.len() as u64, regions)));
}
