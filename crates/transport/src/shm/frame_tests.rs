use super::*;
use crate::tcp::frame::FRAME_LEN;

#[test]
fn frames_survive_the_wire() {
    let said = [
        (ToSource::Request { transfer: 1, token: u64::MAX, len: 3 }, 3),
        (ToSource::Over { transfer: 4 }, 0),
        (ToSource::Withdrawn { generation: 5 }, 0),
        (ToSource::Probe, 0),
    ];
    for (said, follow) in said {
        assert_eq!(ToSource::decode(&said.encode()), Some((said, follow)));
        assert_eq!(ToReader::decode(&said.encode()), None);
    }
    let said = [
        (ToReader::Show { generation: 1, len: 2 }, 2),
        (ToReader::Here { pid: u32::MAX, address: 3, nonce: u64::MAX }, 0),
        (ToReader::Withdraw { generation: 4 }, 0),
        (ToReader::Answer { transfer: 5, granted: true }, 0),
        (ToReader::Answer { transfer: 5, granted: false }, 0),
        (ToReader::Stop { transfer: 6 }, 0),
        (ToReader::Buffer { address: 7, len: 8 }, 0),
    ];
    for (said, follow) in said {
        assert_eq!(ToReader::decode(&said.encode()), Some((said, follow)));
        assert_eq!(ToSource::decode(&said.encode()), None);
    }
}

#[test]
fn what_nobody_says_is_not_understood() {
    let most = |limit: usize| u32::try_from(limit).unwrap();
    let beyond = [
        pack(REQUEST, most(MAX_REQUEST_BYTES) + 1, 1, 1),
        pack(OVER, 1, 1, 0),
        pack(PROBE, 0, 0, 1),
        pack(SHOW, most(MAX_SHOW_BYTES) + 1, 1, 0),
        pack(ANSWER, 2, 1, 0),
        pack(STOP, 0, 1, 1),
        [0; FRAME_LEN],
        [0xff; FRAME_LEN],
    ];
    for frame in beyond {
        assert_eq!((ToSource::decode(&frame), ToReader::decode(&frame)), (None, None));
    }
}
