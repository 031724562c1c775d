use std::time::Duration;

use kv_layout::BlockTable;
use proptest::prelude::*;

use super::support::{D, answers, asks, claim_of, grant, secs, to_claim};
use crate::codec::{CodecError, MAX_FRAME, PREFIX, decode, encode};
use crate::message::{Answer, Body, Grant, Message, Request};
use crate::{AgentEpoch, RequestId};

fn every_message() -> Vec<Message> {
    let claim = claim_of(1, D);
    let requests = [
        to_claim(0, &[0, 1]),
        Request::Renew,
        Request::Done,
        Request::Release,
        Request::Check { number: 7 },
    ];
    let granted = Answer::Granted(grant());
    let all_answers = [
        Answer::Pending,
        granted,
        Answer::Renewed { left: secs(20) },
        Answer::Alive,
        Answer::Released,
        Answer::Over,
        Answer::Unknown,
        Answer::Intact { number: 7 },
    ];
    let requests = requests.map(|request| asks(D, &claim, request)).into_iter();
    requests.chain(all_answers.map(|answer| answers(D, &claim, answer))).collect()
}

#[test]
fn every_message_comes_back() {
    for message in every_message() {
        let frame = encode(&message).unwrap();
        assert_eq!(frame, encode(&message).unwrap());
        for end in 0..frame.len() {
            assert!(decode(&frame[..end]).unwrap().is_none());
        }
        let two = [&frame[..], &frame].concat();
        assert_eq!(decode(&two).unwrap(), Some((message, frame.len())));
    }
}

/// A renewal, byte for byte: what one version writes the next must read.
#[test]
fn bytes_on_the_wire() {
    let frame = encode(&asks(D, &claim_of(99, D), Request::Renew)).unwrap();
    let mut expected = vec![76, 0, 0, 0];
    let mut number = |n: u64| expected.extend(n.to_le_bytes());
    number(20); // from
    number(10); // to
    number(1); // engine of P
    number(6);
    expected.extend(b"prompt");
    let mut number = |n: u64| expected.extend(n.to_le_bytes());
    number(99); // nonce
    number(2); // engine of D
    number(6);
    expected.extend(b"answer");
    expected.extend([0, 0, 0, 0, 1, 0, 0, 0]); // a request, to renew
    assert_eq!(frame, expected);
}

#[test]
fn a_million_tokens_fit_in_every_group() {
    let table = BlockTable { first_token: 0, ids: (0..62_500).collect() };
    let tables = vec![table; 64].into();
    let message = answers(D, &claim_of(1, D), Answer::Granted(Grant { tables, ..grant() }));
    let frame = encode(&message).unwrap();
    assert_eq!(decode(&frame).unwrap(), Some((message, frame.len())));
}

#[test]
fn too_much_is_refused_on_both_sides() {
    let table = BlockTable { first_token: 0, ids: (0..5_000_000).collect() };
    let tables = [table].into();
    let message = answers(D, &claim_of(1, D), Answer::Granted(Grant { tables, ..grant() }));
    assert!(matches!(encode(&message), Err(CodecError::TooLarge { .. })));
    let huge = u32::try_from(MAX_FRAME + 1).unwrap().to_le_bytes();
    assert!(matches!(decode(&huge), Err(CodecError::TooLarge { .. })));

    let table = BlockTable { first_token: 0, ids: [].into() };
    let tables = vec![table; 65].into();
    let message = answers(D, &claim_of(1, D), Answer::Granted(Grant { tables, ..grant() }));
    let frame = encode(&message).unwrap();
    assert!(matches!(decode(&frame), Err(CodecError::Malformed(_))));

    let readers: Vec<u32> = (0..4097).collect();
    let frame = encode(&asks(D, &claim_of(1, D), to_claim(0, &readers))).unwrap();
    assert!(matches!(decode(&frame), Err(CodecError::Malformed(_))));
}

#[test]
fn bytes_after_the_message() {
    let mut frame = encode(&asks(D, &claim_of(1, D), Request::Done)).unwrap();
    frame.push(0);
    frame[0] += 1;
    assert!(matches!(decode(&frame), Err(CodecError::Trailing { bytes: 1 })));
}

#[test]
fn request_ids_have_1_to_256_bytes() {
    assert!(RequestId::new("").is_err());
    assert!(RequestId::new(&"x".repeat(256)).is_ok());
    assert_eq!(RequestId::new(&"x".repeat(257)).unwrap_err().bytes, 257);
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
    frame.extend(body);
    frame
}

/// What decoding may take beside the frame: serde reserves at most 1 MiB on a list's word.
const ALLOWANCE: u64 = (1 << 20) + 4096;

fn decode_within_allowance(frame: &[u8]) -> Result<Option<(Message, usize)>, CodecError> {
    let mut result = None;
    let info = allocation_counter::measure(|| result = Some(decode(frame)));
    let limit = ALLOWANCE + 4 * u64::try_from(frame.len()).unwrap();
    assert!(info.bytes_max <= limit, "{} bytes for a frame of {}", info.bytes_max, frame.len());
    result.unwrap()
}

proptest! {
    #[test]
    fn garbage_is_an_error(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let frame = framed(&body);
        prop_assert!(!matches!(decode_within_allowance(&frame), Ok(None)));
        let _ = decode_within_allowance(&body);
    }

    #[test]
    fn damaged_messages_stay_cheap(
        which in 0..11usize,
        at in any::<prop::sample::Index>(),
        bytes in any::<[u8; 8]>(),
    ) {
        let mut frame = encode(&every_message()[which]).unwrap();
        let at = PREFIX + at.index(frame.len() - PREFIX);
        frame[at..].iter_mut().zip(bytes).for_each(|(old, new)| *old = new);
        let _ = decode_within_allowance(&frame);
    }

    #[test]
    fn answers_come_back(
        from in any::<u64>(),
        nanos in any::<u64>(),
        tables in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u32>(), 0..9)), 0..9),
    ) {
        let tables = tables.into_iter().map(|(first_token, ids)| {
            BlockTable { first_token, ids: ids.into() }
        });
        let left = Duration::from_nanos(nanos);
        let grant = Grant { left, tables: tables.collect(), ..grant() };
        let body = Body::Answer(Answer::Granted(grant));
        let message = Message { from: AgentEpoch(from), body, ..every_message().remove(0) };
        let frame = encode(&message).unwrap();
        prop_assert_eq!(decode(&frame).unwrap(), Some((message, frame.len())));
    }
}
