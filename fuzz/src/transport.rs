//! What strangers say on a socket of the data path, byte by byte.

use ::transport::session::{HELLO_LEN, Hello, VERSIONS};

use crate::{Bytes, allowance};

// Private there: compiled once more here, so that the decoders are reached without a socket.
#[path = "../../crates/transport/src/tcp/frame.rs"]
mod frames;
#[path = "../../crates/transport/src/tcp/request.rs"]
mod requests;

/// As `transport::tcp` has it, for the module above.
const MAX_REQUEST_BYTES: usize = 8 << 20;

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
