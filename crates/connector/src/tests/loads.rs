//! How a decode engine's scheduler gathers what its ranks say.

use kv_layout::Kind;

use super::scheduler::scheduler;
use super::support::*;
use crate::*;

const FULL: Kind = Kind::Full;
const WINDOW: Kind = Kind::SlidingWindow { window: 64 };

fn name() -> RequestId {
    request("answer")
}

fn blocks(groups: &[(Kind, u64)]) -> Allocation {
    Allocation { tables: [].into(), resume_at: 999, align: 16, groups: groups.to_vec() }
}

/// A scheduler of two ranks that fetches one request, whose order is taken.
fn fetching() -> Scheduler {
    let mut d = scheduler(2);
    let claim = claim_of(1, P);
    let remote = RemotePrefill { claim, address: address(1), tokens: 3 };
    d.fetch(remote.clone(), prompt()).unwrap();
    assert!(matches!(d.poll_order(), Some(Order::Fetch(_))));
    assert_eq!(d.fetch(remote, prompt()), Err(UnderWay));
    d
}

fn claim() -> ClaimId {
    claim_of(1, P)
}

fn read(blocks: Allocation) -> Order {
    Order::Read { claim: claim(), blocks: blocks.into() }
}

fn outcomes(d: &mut Scheduler) -> Vec<Outcome> {
    std::iter::from_fn(|| d.poll_outcome()).collect()
}

#[test]
fn received_when_every_rank_has_received() {
    let mut d = fetching();
    d.allocate(&name(), blocks(&[(FULL, 0)]));
    assert_eq!(d.poll_order(), Some(read(blocks(&[(FULL, 0)]))));
    d.ended(Rank(1), &claim(), Ended::Received);
    d.ended(Rank(1), &claim(), Ended::Received);
    assert_eq!(outcomes(&mut d), [], "the same rank twice counts once");
    d.ended(Rank(0), &claim(), Ended::Received);
    assert_eq!(outcomes(&mut d), [Outcome::Received(name())]);
    assert_eq!((d.requests(), d.strays()), (0, 1));
    d.ended(Rank(0), &claim(), Ended::Failed(Failure::Over));
    assert_eq!(outcomes(&mut d), [], "a word about a request that is gone");
    assert_eq!(d.strays(), 2);
}

/// A rank that gives up by itself has not received its share.
#[test]
fn a_rank_that_gives_up_by_itself_fails_all() {
    let mut d = fetching();
    d.allocate(&name(), blocks(&[(FULL, 0)]));
    d.ended(Rank(1), &claim(), Ended::Released);
    d.ended(Rank(0), &claim(), Ended::Received);
    let (request, failure) = (name(), Failure::GivenUp);
    let failed = Outcome::Failed { request, failure, recompute_from: Some(0) };
    assert_eq!(outcomes(&mut d), [failed]);
}

#[test]
fn a_rank_without_a_share_does_not_stand_in_the_way() {
    let mut d = fetching();
    d.ended(Rank(1), &claim(), Ended::Nothing);
    d.allocate(&name(), blocks(&[(FULL, 0)]));
    d.ended(Rank(0), &claim(), Ended::Received);
    assert_eq!(outcomes(&mut d), [Outcome::Received(name())]);
}

/// The outcome comes when no rank can touch the blocks any more, and the others are stopped.
#[test]
fn one_failed_rank_fails_all() {
    let mut d = fetching();
    d.allocate(&name(), blocks(&[(FULL, 128), (WINDOW, 0)]));
    assert_eq!(d.poll_order(), Some(read(blocks(&[(FULL, 128), (WINDOW, 0)]))));
    d.ended(Rank(1), &claim(), Ended::Failed(Failure::PeerLost));
    assert_eq!(d.poll_order(), Some(Order::Abort(claim())));
    assert_eq!(outcomes(&mut d), []);
    d.ended(Rank(0), &claim(), Ended::Released);
    let failed =
        Outcome::Failed { request: name(), failure: Failure::PeerLost, recompute_from: Some(0) };
    assert_eq!(outcomes(&mut d), [failed], "the window has nothing cached");
    assert_eq!(d.poll_order(), None);
}

#[test]
fn recomputed_from_where_every_group_has_something() {
    for (groups, from) in [
        (vec![(FULL, 256), (WINDOW, 256)], 256),
        (vec![(FULL, 512), (WINDOW, 256)], 256),
        (vec![(FULL, 250)], 240),
        (vec![], 0),
    ] {
        let mut d = fetching();
        d.allocate(&name(), blocks(&groups));
        for rank in [Rank(0), Rank(1)] {
            d.ended(rank, &claim(), Ended::Failed(Failure::Over));
        }
        let [Outcome::Failed { recompute_from, .. }] = &outcomes(&mut d)[..] else { panic!() };
        assert_eq!(*recompute_from, Some(from), "{groups:?}");
    }
}

#[test]
fn a_failure_before_there_are_blocks() {
    let mut d = fetching();
    d.ended(Rank(0), &claim(), Ended::Failed(Failure::Digest));
    d.ended(Rank(1), &claim(), Ended::Failed(Failure::NoAnswer));
    let (request, failure) = (name(), Failure::Digest);
    let failed = Outcome::Failed { request, failure, recompute_from: None };
    assert_eq!(outcomes(&mut d), [failed]);
    d.allocate(&name(), blocks(&[]));
    assert_eq!(d.poll_order(), Some(Order::Abort(claim())));
    assert_eq!(d.poll_order(), None, "and none of its blocks is ever read into");
}

#[test]
fn released_in_each_state() {
    // Queued: the engine has nothing to wait for.
    let mut d = fetching();
    d.release(&name());
    d.release(&name());
    assert_eq!(d.poll_order(), Some(Order::Abort(claim())));
    assert_eq!(d.poll_order(), None, "told once");
    d.ended(Rank(0), &claim(), Ended::Released);
    d.ended(Rank(1), &claim(), Ended::Received);
    assert_eq!((outcomes(&mut d), d.requests()), (vec![], 0));
    // With blocks: they are free when the last rank has let go of them.
    let mut d = fetching();
    d.allocate(&name(), blocks(&[(FULL, 0)]));
    d.release(&name());
    d.ended(Rank(0), &claim(), Ended::Received);
    assert_eq!(outcomes(&mut d), []);
    d.ended(Rank(1), &claim(), Ended::Failed(Failure::Over));
    assert_eq!(outcomes(&mut d), [Outcome::Released(name())], "whatever the ranks made of it");
}

#[test]
fn a_lost_worker_speaks_no_more() {
    let mut d = fetching();
    d.allocate(&name(), blocks(&[(FULL, 0)]));
    d.ended(Rank(0), &claim(), Ended::Received);
    d.worker_lost(Rank(1));
    let (request, failure) = (name(), Failure::PeerLost);
    let failed = Outcome::Failed { request, failure, recompute_from: Some(0) };
    assert_eq!(outcomes(&mut d), [failed]);
    assert_eq!(d.requests(), 0);
}

/// Its memory is gone, so its word counts no more, however good it was.
#[test]
fn what_a_lost_worker_had_received_is_lost() {
    let mut d = fetching();
    d.allocate(&name(), blocks(&[(FULL, 0)]));
    assert_eq!(d.poll_order(), Some(read(blocks(&[(FULL, 0)]))));
    d.ended(Rank(1), &claim(), Ended::Received);
    d.worker_lost(Rank(1));
    assert_eq!(outcomes(&mut d), [], "the other rank may still write its blocks");
    assert_eq!(d.poll_order(), Some(Order::Abort(claim())));
    d.ended(Rank(0), &claim(), Ended::Received);
    let (request, failure) = (name(), Failure::PeerLost);
    let failed = Outcome::Failed { request, failure, recompute_from: Some(0) };
    assert_eq!(outcomes(&mut d), [failed]);
    assert_eq!((d.requests(), d.strays()), (0, 0));
}

/// One rank may have said so and withdrawn before another has its share.
#[test]
fn nothing_is_received_by_an_engine_that_withdraws() {
    let mut d = fetching();
    d.allocate(&name(), blocks(&[(FULL, 0)]));
    d.ended(Rank(1), &claim(), Ended::Received);
    d.withdraw();
    assert_eq!(outcomes(&mut d), []);
    d.ended(Rank(0), &claim(), Ended::Received);
    let (request, failure) = (name(), Failure::Withdrawn);
    let failed = Outcome::Failed { request, failure, recompute_from: Some(0) };
    assert_eq!(outcomes(&mut d), [failed]);
}
