//! What machines hold and do for a request and for a peer does not grow with the fleet around
//! them. All of it is counted, so it is the same on every machine.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use allocation_counter::{AllocationInfo, measure};
use sim::Fleet;

/// What a fleet takes, with a hundred requests for each decode engine.
#[derive(Debug)]
struct Taken {
    /// Bytes that a pair keeps that has met, on both sides.
    peer: u64,
    /// Bytes of a request that is being read, on both sides.
    live: u64,
    /// Allocations of a request from its lease to its end, on both sides.
    allocations: u64,
}

fn taken(engines: u64) -> Taken {
    let requests = 100 * engines;
    let mut fleet = Fleet::new(engines, engines, usize::try_from(requests).unwrap()).unwrap();
    let mut pairs = 0;
    let met = measure(|| pairs = fleet.meet());
    assert_eq!(fleet.live(), (0, 0), "at rest");
    let before = fleet.ended();
    let held = measure(|| fleet.hold(0..requests));
    let all = usize::try_from(requests).unwrap();
    assert_eq!(fleet.live(), (all, all));
    let rest = measure(|| fleet.play(requests..requests));
    assert_eq!((fleet.live(), fleet.ended()), ((0, 0), (before.0 + requests, before.1 + requests)));
    let kept = |info: &AllocationInfo| u64::try_from(info.bytes_current.max(0)).unwrap();
    Taken {
        peer: kept(&met) / pairs,
        live: kept(&held) / requests,
        allocations: (held.count_total + rest.count_total) / requests,
    }
}

#[test]
fn a_thousand_engines_take_for_each_request_what_ten_take() {
    let (small, large) = (taken(10), taken(1000));
    assert!(large.live <= 2 * small.live, "{small:?} {large:?}");
    assert!(large.allocations <= 2 * small.allocations, "{small:?} {large:?}");
    assert!(small.peer.max(large.peer) <= 4096, "{small:?} {large:?}");
    assert!(small.live > 500 && small.allocations > 20, "something was counted: {small:?}");
    println!("10x10: {small:?}, 1000x1000: {large:?}");
}
