//! Frames, parameters and handshakes.

use ::connector::handshake::{DataCard, Handshake, compatible};
use ::connector::params::HandoffParams;
use ::connector::{AgentEpoch, EngineEpoch, Rank, codec};
use kv_layout::{CacheLayout, DType};
use serde_json::{Value, json};

use crate::{Bytes, allowance, engines, json};

/// Bytes for a byte of a frame: a reader of four bytes becomes an entry of a set, a table of 16
/// one of 32 in a list that doubles and is then copied.
const PER_BYTE: u64 = 32;

/// What serde reserves at most for a list, before an element is read, because a frame says that
/// there are so many. Once, not once a list: a list that is shorter than it says ends the reading.
const RESERVED: u64 = 1 << 20;

/// Any bytes as a frame of the control channel.
pub fn codec(input: &[u8]) {
    let allowed = RESERVED + allowance::of(input.len(), PER_BYTE);
    let read = allowance::within(allowed, "a frame", || codec::decode(input));
    let Ok(Some((message, used))) = read else { return };
    assert!(codec::PREFIX < used && used <= input.len());
    let frame = codec::encode(&message).unwrap_or_default();
    // Not always the same bytes: a set may have been sent in any order, or something twice.
    assert!(matches!(codec::decode(&frame), Ok(Some((again, _))) if again == message));
}

/// What a router hands over.
pub fn params(input: &[u8]) {
    let mut from = Bytes::new(input);
    let params = match from.chance(3) {
        true => serde_json::from_slice(from.rest()).unwrap_or_default(),
        false => {
            let mut legal = legal_params();
            json::spoil(&mut legal, &mut from);
            legal
        }
    };
    let read = allowance::within(0, "parameters", || HandoffParams::from_json(&params));
    if let Ok(read) = read {
        assert_eq!(HandoffParams::from_json(&read.to_json()), Ok(read));
    }
}

/// Parameters that are taken.
pub fn legal_params() -> Value {
    json!({
        "do_remote_prefill": true,
        "do_remote_decode": false,
        "remote_engine_id": "p",
        "remote_request_id": "r",
        "remote_host": "h",
        "remote_port": 1,
        "tp_size": 1,
        "remote_num_tokens": 1,
        "transfer_mode": "pull",
        "kvferry": {"version": 1, "engine": "0000000000000001", "nonce": "0000000000000002"},
    })
}

/// What a peer says of itself, and whether it goes with us.
pub fn handshake(input: &[u8]) {
    let mut from = Bytes::new(input);
    let Some(ours) = ours(&mut from) else { return };
    let body = match from.chance(3) {
        true => from.rest().to_vec(),
        false => {
            let mut value = serde_json::to_value(&ours).unwrap_or_default();
            json::spoil(&mut value, &mut from);
            serde_json::to_vec(&value).unwrap_or_default()
        }
    };
    let allowed = allowance::of(body.len(), PER_BYTE);
    let read = allowance::within(allowed, "a handshake", || Handshake::from_json(&body));
    let Ok(theirs) = read else { return };
    let both = allowance::within(allowed, "a comparison", || compatible(&ours, &theirs));
    // Of two layers of one name only one is looked at; the planner refuses both.
    if !named_twice(&theirs.layout) {
        assert_eq!(both.is_ok(), compatible(&theirs, &ours).is_ok());
        assert_eq!(compatible(&theirs, &theirs), Ok(()));
    }
    let again = theirs.to_json().ok().and_then(|body| Handshake::from_json(&body).ok());
    assert_eq!(again.as_ref(), Some(&theirs));
}

fn named_twice(layout: &CacheLayout) -> bool {
    let mut names: Vec<&String> = layout.layers.iter().map(|layer| &layer.name).collect();
    names.sort();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

fn ours(from: &mut Bytes<'_>) -> Option<Handshake> {
    let model = engines::model(from);
    let span = engines::span(from);
    let engine = engines::engine(&model, span, from)?;
    let card =
        DataCard { provider: "tcp".to_owned(), agent: AgentEpoch(2), address: String::new() };
    Some(Handshake {
        engine: EngineEpoch(1),
        agent: AgentEpoch(2),
        rank: Rank(0),
        ranks: 1,
        model: "m".to_owned(),
        revision: String::new(),
        dtype: DType::Bf16,
        layout: engine.layouts.into_iter().next()?,
        cards: vec![card],
    })
}
