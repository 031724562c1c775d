//! The contract of an endpoint, against every provider of this crate.

use std::collections::HashMap;
use std::sync::Arc;

use crate::certs::Authority;
use crate::common::*;
use strided::{BlockCopy, Blocks, Dim, Pattern, RegionId};
use transport::loopback::LoopbackNet;
use transport::{
    AgentId, BoundRegion, Card, ConnectError, Event, GrantError, GrantToken, Outcome, PeerId,
    RegisterError, SubmitErrorKind, Transfer, TransferError, TransferId,
};

macro_rules! every_provider {
    ($($name:ident)*) => {
        mod loopback {
            $(#[test] fn $name() { super::$name(&super::Net::Loopback(super::LoopbackNet::new())); })*
        }
        mod tcp {
            $(#[test] fn $name() { super::$name(&super::Net::Tcp); })*
        }
        mod several {
            $(#[test] fn $name() {
                let net = super::LoopbackNet::new();
                super::$name(&super::Net::Several(net, super::First::Loopback));
                let net = super::LoopbackNet::new();
                super::$name(&super::Net::Several(net, super::First::Tcp));
            })*
        }
        mod shm_foreign {
            $(#[test] fn $name() { super::$name(&super::Net::Foreign); })*
        }
        mod shm_mapped {
            $(#[test] fn $name() { super::$name(&super::Net::Mapped); })*
        }
        mod tls {
            $(#[test] fn $name() {
                super::$name(&super::Net::Tls(super::tls(&super::Authority::new())));
            })*
        }
    };
}

every_provider! {
    scattered_bytes_land_exactly
    a_large_transfer_lands_exactly
    a_transfer_of_nothing_still_asks
    every_transfer_completes_once
    what_is_not_granted_is_not_read
    a_pattern_inside_contiguous_bytes_is_granted
    the_token_of_another_agent_is_worthless
    a_revoked_token_is_worthless
    a_token_is_free_after_revocation
    a_grant_is_checked
    a_full_queue_hands_back
    a_bad_transfer_is_handed_back
    a_cancelled_transfer_completes_once
    registrations_are_checked
    what_is_in_use_stays_registered
    a_disconnected_peer_is_down
    a_peer_that_leaves_is_down
    a_foreign_card_is_refused
    an_event_makes_the_descriptor_readable
}

const NOT_GRANTED: Outcome = Outcome::Failed(TransferError::NotGranted);

fn pages(net: &Net) -> Pair {
    Pair::new(net, Pool::new(4096, 64), Pool::new(4096, 64))
}

fn grant(pair: &mut Pair, blocks: Vec<Blocks>) {
    pair.source.grant(READER, TOKEN, blocks).unwrap();
}

/// Two patterns of equal bytes that look different, each below 4096 bytes.
fn patterns(random: &mut Random) -> (Pattern, Pattern) {
    let element = 1 + random.below(100);
    let counts = [1 + random.below(3) as u32, 1 + random.below(4) as u32];
    let mut one = |gap: u64| {
        let inner = Dim { count: counts[1], stride: element + gap };
        let outer = Dim { count: counts[0], stride: inner.stride * u64::from(counts[1]) + gap };
        Pattern::new(random.below(64), &[outer, inner], element).unwrap()
    };
    (one(0), one(13))
}

fn scattered_bytes_land_exactly(net: &Net) {
    let mut random = Random(3);
    let mut pair = Pair::new(net, Pool::new(4096, 64), Pool::new(5000, 80));
    for round in 0..30 {
        let mut copies = Vec::new();
        // The targets of different copies are different blocks.
        for targets in random.ids(60, 80).chunks(20) {
            let (source, target) = patterns(&mut random);
            let ids = random.ids(targets.len(), 64);
            let source = Blocks::new(RegionId(0), ids, source).unwrap();
            copies.push(copy(source, Blocks::new(RegionId(0), targets, target).unwrap()));
        }
        let token = GrantToken(round);
        let granted = copies.iter().map(|copy| copy.source().clone()).collect();
        pair.source.grant(READER, token, granted).unwrap();
        let expected = expected(&pair, &pair.to.bytes(), &copies);
        assert_eq!(pair.read_with(token, round, copies), Outcome::Done);
        assert!(pair.to.bytes() == expected, "round {round}");
    }
}

fn a_large_transfer_lands_exactly(net: &Net) {
    let mut random = Random(4);
    let mut pair = Pair::new(net, Pool::new(100_000, 60), Pool::new(130_000, 60));
    let ids = |random: &mut Random| random.ids(50, 60);
    let whole = Pattern::contiguous(0, 99_999).unwrap();
    // Many more elements than the kernel takes in one call.
    let fine = Pattern::new(1, &[Dim { count: 1200, stride: 83 }], 31).unwrap();
    for (round, pattern) in [whole, fine].into_iter().enumerate() {
        let source = Blocks::new(RegionId(0), ids(&mut random), pattern).unwrap();
        let target = Blocks::new(RegionId(0), ids(&mut random), pattern).unwrap();
        let token = GrantToken(round as u64);
        pair.source.grant(READER, token, vec![source.clone()]).unwrap();
        let copies = vec![copy(source, target)];
        let expected = expected(&pair, &pair.to.bytes(), &copies);
        assert_eq!(pair.read_with(token, round as u64, copies), Outcome::Done);
        assert!(pair.to.bytes() == expected);
    }
}

fn a_transfer_of_nothing_still_asks(net: &Net) {
    let mut pair = pages(net);
    let empty = || vec![copy(page(&[], 8), page(&[], 8))];
    assert_eq!(pair.read(1, vec![]), NOT_GRANTED);
    assert_eq!(pair.read(2, empty()), NOT_GRANTED);
    grant(&mut pair, vec![page(&[1], 8)]);
    assert_eq!(pair.read(3, vec![]), Outcome::Done);
    assert_eq!(pair.read(4, empty()), Outcome::Done);
}

fn every_transfer_completes_once(net: &Net) {
    let mut pair = pages(net);
    grant(&mut pair, vec![page(&[0, 1, 2, 3], 4096)]);
    let copies = |id: u64| vec![copy(page(&[id as u32 % 8], 64), page(&[id as u32 % 64], 64))];
    for id in 0..500 {
        pair.reader.submit(pair.transfer(id, copies(id))).unwrap();
    }
    let mut outcomes = HashMap::new();
    for event in wait(&mut *pair.reader, |events| events.len() >= 500) {
        let Event::Completion { id, outcome } = event else { panic!("{event:?}") };
        assert!(outcomes.insert(id.0, outcome).is_none());
    }
    // Blocks 4 to 7 are not granted.
    for (id, outcome) in outcomes {
        assert_eq!(outcome, if id % 8 < 4 { Outcome::Done } else { NOT_GRANTED });
    }
    assert_eq!(pair.read(500, copies(0)), Outcome::Done);
}

fn what_is_not_granted_is_not_read(net: &Net) {
    let mut pair = pages(net);
    let strided = |offset| Pattern::new(offset, &[Dim { count: 4, stride: 64 }], 32).unwrap();
    let second = Blocks::new(RegionId(0), [9, 10], strided(0)).unwrap();
    grant(&mut pair, vec![page(&[1, 2, 3], 2048), second]);
    let before = pair.to.bytes();
    let blocks =
        |region, ids: &[u32], pattern| Blocks::new(RegionId(region), ids, pattern).unwrap();
    let refused = [
        page(&[1, 2, 3, 4], 8),
        page(&[9], 8),
        page(&[1], 2049),
        page(&[u32::MAX], 8),
        blocks(1, &[1], Pattern::contiguous(0, 8).unwrap()),
        blocks(0, &[9, 10], strided(32)),
        blocks(0, &[1], strided(2000)),
    ];
    for (id, source) in refused.into_iter().enumerate() {
        let targets: Vec<u32> = (20..).take(source.ids().len()).collect();
        let target = Blocks::new(RegionId(0), targets, *source.pattern()).unwrap();
        // One granted block beside it does not help.
        let copies = vec![copy(page(&[1], 8), page(&[30], 8)), copy(source, target)];
        assert_eq!(pair.read(id as u64, copies), NOT_GRANTED, "case {id}");
    }
    assert_eq!(
        pair.read_with(GrantToken(99), 90, vec![copy(page(&[1], 8), page(&[1], 8))]),
        NOT_GRANTED
    );
    assert!(pair.to.bytes() == before);
}

fn a_pattern_inside_contiguous_bytes_is_granted(net: &Net) {
    let mut pair = pages(net);
    let strided = Pattern::new(128, &[Dim { count: 4, stride: 64 }], 32).unwrap();
    let spread = Blocks::new(RegionId(0), [9], strided).unwrap();
    grant(&mut pair, vec![page(&[1, 2], 384), spread.clone()]);
    let inside = Blocks::new(RegionId(0), [2, 1], strided).unwrap();
    let both = Blocks::new(RegionId(0), [9, 1], strided).unwrap();
    for (id, source) in [inside, spread, both].into_iter().enumerate() {
        let targets: Vec<u32> = (3..).take(source.ids().len()).collect();
        let target = Blocks::new(RegionId(0), targets, strided).unwrap();
        assert_eq!(pair.read(id as u64, vec![copy(source, target)]), Outcome::Done, "case {id}");
    }
}

fn the_token_of_another_agent_is_worthless(net: &Net) {
    let mut pair = pages(net);
    pair.source.grant(AgentId(201), TOKEN, vec![page(&[1], 4096)]).unwrap();
    let before = pair.to.bytes();
    assert_eq!(pair.read(1, vec![copy(page(&[1], 8), page(&[1], 8))]), NOT_GRANTED);
    assert!(pair.to.bytes() == before);
}

fn a_revoked_token_is_worthless(net: &Net) {
    let mut pair = pages(net);
    grant(&mut pair, vec![page(&[1], 4096)]);
    let copies = || vec![copy(page(&[1], 8), page(&[1], 8))];
    assert_eq!(pair.read(1, copies()), Outcome::Done);
    pair.source.revoke(TOKEN);
    let events = wait(&mut *pair.source, |events| !events.is_empty());
    assert_eq!(events, [Event::Revoked { token: TOKEN }]);
    assert_eq!(pair.read(2, copies()), NOT_GRANTED);
}

fn a_token_is_free_after_revocation(net: &Net) {
    let mut source = net.endpoint(SOURCE);
    Pool::new(4096, 4).register(&mut *source, 0);
    for _ in 0..2 {
        source.grant(READER, TOKEN, vec![page(&[1], 8)]).unwrap();
        let again = source.grant(READER, TOKEN, vec![]);
        assert_eq!(again, Err(GrantError::TokenInUse));
        source.revoke(TOKEN);
        // Unknown by now; reported all the same.
        source.revoke(TOKEN);
        let events = wait(&mut *source, |events| events.len() >= 2);
        assert_eq!(events, vec![Event::Revoked { token: TOKEN }; 2]);
    }
}

fn a_grant_is_checked(net: &Net) {
    let mut source = net.endpoint(SOURCE);
    Pool::new(4096, 4).register(&mut *source, 0);
    let elsewhere = Blocks::new(RegionId(5), [1], Pattern::contiguous(0, 8).unwrap()).unwrap();
    let unknown = source.grant(READER, TOKEN, vec![page(&[1], 8), elsewhere]);
    assert_eq!(unknown, Err(GrantError::UnknownRegion { region: RegionId(5) }));
    let outside = source.grant(READER, TOKEN, vec![page(&[4], 8)]);
    assert!(matches!(outside, Err(GrantError::Blocks(_))));
    source.grant(READER, TOKEN, vec![page(&[3], 4096)]).unwrap();
}

fn a_full_queue_hands_back(net: &Net) {
    let mut pair = pages(net);
    pair.reader = net.endpoint_with(AgentId(300), 4);
    pair.peer = pair.reader.connect(&pair.source.card()).unwrap();
    for id in 0..4 {
        pair.reader.submit(pair.transfer(id, vec![])).unwrap();
    }
    let refused = pair.reader.submit(pair.transfer(4, vec![])).unwrap_err();
    assert_eq!(refused.why, SubmitErrorKind::QueueFull);
    assert_eq!(refused.transfer.id, TransferId(4));
    wait(&mut *pair.reader, |events| events.len() >= 4);
    pair.reader.submit(*refused.transfer).unwrap();
    assert_eq!(outcome(&mut *pair.reader, 4), NOT_GRANTED);
}

fn a_bad_transfer_is_handed_back(net: &Net) {
    let mut pair = pages(net);
    let elsewhere = Blocks::new(RegionId(5), [1], Pattern::contiguous(0, 8).unwrap()).unwrap();
    let mut refused = |transfer: Transfer| pair.reader.submit(transfer).unwrap_err().why;
    let bare = |copies| Transfer {
        id: TransferId(1),
        peer: pair.peer,
        token: TOKEN,
        copies,
        timeout: PATIENCE,
    };
    let stranger = Transfer { peer: PeerId(77), ..bare(vec![]) };
    assert_eq!(refused(stranger), SubmitErrorKind::UnknownPeer);
    let unknown = SubmitErrorKind::UnknownRegion { region: RegionId(5) };
    assert_eq!(refused(bare(vec![copy(page(&[1], 8), elsewhere)])), unknown);
    let outside = refused(bare(vec![copy(page(&[1], 8), page(&[64], 8))]));
    assert!(matches!(outside, SubmitErrorKind::Blocks(_)));
    pair.reader.submit(bare(vec![])).unwrap();
    let twice = pair.reader.submit(bare(vec![])).unwrap_err().why;
    assert_eq!(twice, SubmitErrorKind::IdInUse);
    assert_eq!(outcome(&mut *pair.reader, 1), NOT_GRANTED);
}

fn a_cancelled_transfer_completes_once(net: &Net) {
    let mut pair = Pair::new(net, Pool::new(1 << 20, 32), Pool::new(1 << 20, 32));
    let all: Vec<u32> = (0..32).collect();
    grant(&mut pair, vec![page(&all, 1 << 20)]);
    for id in 0..20 {
        let copies = vec![copy(page(&all, 1 << 20), page(&all, 1 << 20))];
        pair.reader.submit(pair.transfer(id, copies)).unwrap();
        pair.reader.cancel(TransferId(id));
        pair.reader.cancel(TransferId(id));
        let outcome = outcome(&mut *pair.reader, id);
        assert!(matches!(outcome, Outcome::Cancelled | Outcome::Done), "{outcome:?}");
    }
    pair.reader.cancel(TransferId(999));
    assert_eq!(pair.read(20, vec![copy(page(&[1], 8), page(&[1], 8))]), Outcome::Done);
}

fn registrations_are_checked(net: &Net) {
    let mut endpoint = net.endpoint(SOURCE);
    let pool = Pool::new(4096, 4);
    let first = pool.register(&mut *endpoint, 0);
    let bound = |id, offset| BoundRegion { id: RegionId(id), offset, region: pool.region };
    let mut register = |regions: &[BoundRegion]| {
        endpoint.register(Arc::clone(&pool.memory) as _, regions).unwrap_err()
    };
    assert_eq!(register(&[bound(0, 0)]), RegisterError::Taken { region: RegionId(0) });
    assert_eq!(register(&[bound(1, 0), bound(1, 0)]), RegisterError::Taken { region: RegionId(1) });
    let (region, len) = (RegionId(1), 4 * 4096);
    assert_eq!(register(&[bound(1, 8)]), RegisterError::OutOfBounds { region, end: len + 8, len });
    let end = u64::MAX;
    assert_eq!(register(&[bound(1, end)]), RegisterError::OutOfBounds { region, end, len });
    endpoint.deregister(first).unwrap();
    assert_eq!(endpoint.deregister(first), Err(RegisterError::Unknown));
    assert_ne!(pool.register(&mut *endpoint, 0), first);
}

fn what_is_in_use_stays_registered(net: &Net) {
    let mut source = net.endpoint(SOURCE);
    let mut reader = net.endpoint(READER);
    let (from, to) = (Pool::new(4096, 4), Pool::new(4096, 4));
    let granted = from.register(&mut *source, 0);
    let target = to.register(&mut *reader, 0);
    source.grant(READER, TOKEN, vec![page(&[1], 8)]).unwrap();
    assert_eq!(source.deregister(granted), Err(RegisterError::InUse));
    let peer = reader.connect(&source.card()).unwrap();
    let copies = vec![copy(page(&[1], 8), page(&[1], 8))];
    let transfer = Transfer { id: TransferId(1), peer, token: TOKEN, copies, timeout: PATIENCE };
    reader.submit(transfer).unwrap();
    assert_eq!(reader.deregister(target), Err(RegisterError::InUse));
    assert_eq!(outcome(&mut *reader, 1), Outcome::Done);
    reader.deregister(target).unwrap();
    source.revoke(TOKEN);
    wait(&mut *source, |events| !events.is_empty());
    source.deregister(granted).unwrap();
}

fn a_disconnected_peer_is_down(net: &Net) {
    let mut pair = pages(net);
    grant(&mut pair, vec![page(&[1], 8)]);
    assert_eq!(pair.read(1, vec![]), Outcome::Done);
    pair.reader.disconnect(pair.peer);
    let events = wait(&mut *pair.reader, is_down);
    let why = TransferError::Disconnected;
    assert_eq!(events, [Event::PeerDown { peer: pair.peer, why }]);
    let refused = pair.reader.submit(pair.transfer(2, vec![])).unwrap_err();
    assert_eq!(refused.why, SubmitErrorKind::UnknownPeer);
    pair.peer = pair.reader.connect(&pair.source.card()).unwrap();
    assert_eq!(pair.read(2, vec![]), Outcome::Done);
}

fn a_peer_that_leaves_is_down(net: &Net) {
    let mut pair = pages(net);
    grant(&mut pair, vec![page(&[1], 8)]);
    assert_eq!(pair.read(1, vec![]), Outcome::Done);
    drop(std::mem::replace(&mut pair.source, net.endpoint(AgentId(101))));
    let events = wait(&mut *pair.reader, is_down);
    assert!(matches!(events.as_slice(), [Event::PeerDown { why: TransferError::Lost { .. }, .. }]));
}

fn a_foreign_card_is_refused(net: &Net) {
    let mut endpoint = net.endpoint(SOURCE);
    let card = Card { provider: "pigeon", ..endpoint.card() };
    let refused = endpoint.connect(&card).unwrap_err();
    assert!(matches!(refused, ConnectError::Provider { found: "pigeon", .. }));
}

fn an_event_makes_the_descriptor_readable(net: &Net) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut endpoint = net.endpoint(SOURCE);
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = |endpoint: &dyn transport::Endpoint| {
        let fd = PollFd::from_borrowed_fd(endpoint.ready_fd(), PollFlags::IN);
        poll(&mut [fd], Some(&now)).unwrap() == 1
    };
    assert!(!ready(&*endpoint));
    endpoint.revoke(TOKEN);
    assert!(ready(&*endpoint));
    endpoint.poll(&mut Vec::new());
    assert!(!ready(&*endpoint));
}

#[test]
fn a_copy_without_equal_sides_cannot_be_made() {
    assert!(BlockCopy::new(page(&[1], 8), page(&[1, 2], 8)).is_err());
}
