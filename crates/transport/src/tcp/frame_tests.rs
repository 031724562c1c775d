use proptest::prelude::*;

use super::*;

#[test]
fn what_a_reader_says_survives_the_wire() {
    for said in [
        ToSource::Request { transfer: 1, token: u64::MAX, len: 7 },
        ToSource::Cancel { transfer: u64::MAX },
        ToSource::Ping,
    ] {
        assert_eq!(ToSource::decode(&said.encode()), Some(said));
        assert!(said == ToSource::Ping || ToReader::decode(&said.encode()).is_none());
    }
}

#[test]
fn what_a_source_says_survives_the_wire() {
    let end = |status| ToReader::End { transfer: 9, portions: 3, status };
    for said in [
        ToReader::Portion { transfer: 1, index: 2, len: 3 },
        end(Status::Done),
        end(Status::NotGranted),
        end(Status::Cancelled),
        ToReader::Ping,
    ] {
        assert_eq!(ToReader::decode(&said.encode()), Some(said));
        assert!(said == ToReader::Ping || ToSource::decode(&said.encode()).is_none());
    }
}

proptest! {
    #[test]
    fn a_frame_is_what_it_says_or_nothing(kind in 0_u32..8, rest in any::<[u8; FRAME_LEN - 4]>()) {
        let mut frame = [0; FRAME_LEN];
        frame[..4].copy_from_slice(&kind.to_le_bytes());
        frame[4..].copy_from_slice(&rest);
        if let Some(said) = ToSource::decode(&frame) {
            prop_assert_eq!(said.encode(), frame);
        }
        if let Some(said) = ToReader::decode(&frame) {
            prop_assert_eq!(said.encode(), frame);
        }
    }
}
