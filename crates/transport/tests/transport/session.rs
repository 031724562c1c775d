//! The hello of every socket.

use proptest::prelude::*;
use transport::AgentId;
use transport::session::{Channel, HELLO_LEN, Hello, HelloError, Role};

fn hello() -> Hello {
    Hello {
        versions: 1..=3,
        role: Role::Decode,
        channel: Channel::Data,
        stream: 1,
        streams: 2,
        engine: 0x0102_0304_0506_0708,
        agent: AgentId(9),
        random: *b"0123456789abcdef",
        proves: true,
    }
}

/// Whoever changes these bytes can no longer talk to what is out there.
#[test]
fn the_bytes_are_for_ever() {
    let mut expected = b"KVFERRY\0".to_vec();
    expected.extend([1, 0, 3, 0, 2, 2, 1, 0, 2, 0, 1, 0, 0, 0, 0, 0]);
    expected.extend([8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend(b"0123456789abcdef");
    expected.extend([0; 8]);
    assert_eq!(hello().encode().to_vec(), expected);
}

#[test]
fn what_later_versions_put_into_spare_bytes_is_ignored() {
    let mut bytes = hello().encode();
    bytes[19..24].fill(7);
    bytes[56..].fill(7);
    assert_eq!(Hello::decode(&bytes), Ok(hello()));
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let refused = |at: usize, byte: u8| {
        let mut bytes = hello().encode();
        bytes[at] = byte;
        Hello::decode(&bytes).unwrap_err()
    };
    assert_eq!(refused(0, b'k'), HelloError::Magic);
    assert_eq!(refused(8, 4), HelloError::Range { min: 4, max: 3 });
    assert_eq!(refused(12, 3), HelloError::Role(3));
    assert_eq!(refused(13, 0), HelloError::Channel(0));
    assert_eq!(refused(18, 2), HelloError::Proof(2));
    assert_eq!(refused(14, 2), HelloError::Stream { stream: 2, streams: 2 });
}

#[test]
fn both_agree_on_the_newest_common_version() {
    assert_eq!(hello().agree(&(2..=5)), Ok(3));
    assert_eq!(hello().agree(&(1..=2)), Ok(2));
    let refused = hello().agree(&(4..=5)).unwrap_err();
    assert_eq!(refused, HelloError::Version { own: 4..=5, theirs: 1..=3 });
}

proptest! {
    #[test]
    fn any_bytes_are_a_hello_or_an_error(mut bytes in any::<[u8; HELLO_LEN]>(), real: bool) {
        if real {
            bytes[..8].copy_from_slice(b"KVFERRY\0");
            bytes[12..14].copy_from_slice(&[1, 1]);
            bytes[18] &= 1;
        }
        if let Ok(hello) = Hello::decode(&bytes) {
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }
}
