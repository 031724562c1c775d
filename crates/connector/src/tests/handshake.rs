use kv_layout::{CacheLayout, ContextShare, DType, GroupLayout, Kind, Part, PlacedLayer, Role};
use strided::Region;

use super::support::P;
use crate::Rank;
use crate::handshake::{DataCard, Handshake, HandshakeError, MAX_BODY, compatible};

fn layer(name: &str, kind: Kind) -> PlacedLayer {
    let part = |role, offset| Part {
        role,
        units: 0..4,
        bytes: 256,
        region: 0,
        offset,
        unit_stride: 256,
        token_stride: 1024,
        tile: None,
    };
    let parts = vec![part(Role::Key, 0), part(Role::Value, 4096)];
    PlacedLayer { name: name.into(), kind, group: 0, parts, packing: None }
}

fn handshake() -> Handshake {
    let layers =
        vec![layer("layers.0", Kind::Full), layer("layers.1", Kind::SlidingWindow { window: 128 })];
    let regions = vec![Region { block_stride: 8192, block_count: 1_000_000 }];
    let group = GroupLayout { block_size: 4, context: ContextShare::default() };
    Handshake {
        engine: P.engine,
        agent: P.agent,
        rank: Rank(0),
        ranks: 1,
        model: "org/model".into(),
        revision: "main".into(),
        dtype: DType::Bf16,
        layout: CacheLayout { regions, groups: vec![group], layers },
        cards: vec![DataCard {
            provider: "tcp".into(),
            agent: P.agent,
            address: "127.0.0.1:7000".into(),
        }],
    }
}

#[test]
fn comes_back_with_what_a_later_version_adds() {
    let body = handshake().to_json().unwrap();
    assert_eq!(Handshake::from_json(&body).unwrap(), handshake());
    let mut value: serde_json::Value = serde_json::from_slice(&body).unwrap();
    value["later"] = true.into();
    value["cards"][0]["later"] = true.into();
    let body = serde_json::to_vec(&value).unwrap();
    assert_eq!(Handshake::from_json(&body).unwrap(), handshake());
}

#[test]
fn differences_are_named() {
    let ours = handshake();
    let differs = |change: fn(&mut Handshake)| {
        let mut theirs = handshake();
        change(&mut theirs);
        compatible(&ours, &theirs).map_err(|mismatch| mismatch.to_string())
    };
    type Case = (fn(&mut Handshake), &'static str);
    let table: &[Case] = &[
        (|h| h.model = "other".into(), "model differs: org/model here, other at the peer"),
        (|h| h.revision = "v2".into(), "revision differs: main here, v2 at the peer"),
        (|h| h.dtype = DType::Fp8, "KV cache dtype differs: bf16 here, fp8 at the peer"),
        (
            |h| h.layout.layers[1].kind = Kind::SlidingWindow { window: 64 },
            "kind of layers.1 differs: sliding window of 128 here, sliding window of 64 at the peer",
        ),
        (
            |h| h.layout.layers[0].parts[0].bytes = 128,
            "bytes of keys of layers.0 differs: 256 here, 128 at the peer",
        ),
        (
            |h| h.layout.layers[0].parts.truncate(1),
            "bytes of values of layers.0 differs: 256 here, 0 at the peer",
        ),
        (
            |h| h.layout.layers[1].packing = Some("tiled".into()),
            "packing of layers.1 differs: plain here, tiled at the peer",
        ),
    ];
    for (change, message) in table {
        assert_eq!(differs(*change), Err((*message).into()));
    }
}

#[test]
fn what_the_planner_handles_may_differ() {
    let ours = handshake();
    let mut theirs = handshake();
    theirs.layout.layers.reverse();
    theirs.layout.layers[0].parts[0].units = 0..2;
    theirs.layout.layers[0].parts[0].token_stride = 512;
    theirs.layout.groups[0].block_size = 16;
    theirs.layout.layers.pop();
    assert_eq!(compatible(&ours, &theirs), Ok(()));
}

#[test]
fn limits() {
    let too_many = |result: Result<_, HandshakeError>| match result {
        Err(HandshakeError::TooMany { what, .. }) => what,
        _ => "nothing",
    };
    assert_eq!(too_many(Handshake::from_json(&vec![b' '; MAX_BODY + 1]).map(drop)), "bytes");
    let with = |change: fn(&mut Handshake)| {
        let mut theirs = handshake();
        change(&mut theirs);
        let body = serde_json::to_vec(&theirs).unwrap();
        assert_eq!(
            too_many(theirs.to_json().map(drop)),
            too_many(Handshake::from_json(&body).map(drop))
        );
        too_many(Handshake::from_json(&body).map(drop))
    };
    assert_eq!(with(|h| h.cards = vec![h.cards[0].clone(); 17]), "data cards");
    assert_eq!(with(|h| h.layout.groups = vec![h.layout.groups[0]; 65]), "groups");
    assert_eq!(with(|h| h.model = "m".repeat(1025)), "bytes of a name");
    assert_eq!(with(|_| ()), "nothing");
    assert!(matches!(Handshake::from_json(b"[]"), Err(HandshakeError::Malformed(_))));
}
