//! Samples of one prompt that come while ranks are at different ends.

use super::samples::{D_NODE, D1_NODE, P_NODE, received, sample};
use super::scheduler::scheduler;
use super::support::*;
use super::world::World;
use crate::*;

/// A sample that comes late is refused at a rank that is done, which must not end what another
/// rank still reads.
#[test]
fn the_release_of_a_reader_that_is_done_ends_nothing() {
    let mut world = World::new();
    world.input(P_NODE, Input::Lease(lease(1)));
    let named = Some(sample(0).request);
    for node in [D_NODE, D1_NODE] {
        world.start_sample(node, (1, 0), named.clone(), &[0, 1]);
    }
    world.deliver_all();
    world.reads_done(D_NODE, &sample(0));
    world.deliver_all();
    // The scheduler has not heard of that end yet.
    world.start_sample(D_NODE, (1, 1), named, &[0, 1]);
    world.input(D_NODE, Input::Abort(sample(1)));
    world.deliver_all();
    assert_eq!(world.nodes[P_NODE].worker.counts().tokens, 2, "one reads, one is revoked");
    world.reads_done(D1_NODE, &sample(0));
    world.deliver_all();
    assert_eq!(world.nodes[D1_NODE].ends[&sample(0)], received(&sample(0)));
    world.revoke_all();
    assert_eq!(world.freed.get(&lease_id(1)), Some(&Why::Satisfied));
    world.settle();
}

/// A rank that has ended a claim reads no more under it.
#[test]
fn what_has_ended_at_one_rank_is_shared_with_nobody_more() {
    let mut d = scheduler(2);
    let fetch = |d: &mut Scheduler, number| {
        let claim = sample_of(1, P, number);
        let remote = RemotePrefill { claim, address: address(1), tokens: 3 };
        d.fetch(remote, prompt()).unwrap();
        match d.poll_order() {
            Some(Order::Fetch(fetch)) => fetch.shared.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let name = |number| sample_of(1, P, number).request;
    assert_eq!(fetch(&mut d, 1), name(1));
    d.ended(Rank(0), &sample_of(1, P, 1), Ended::Nothing);
    assert_eq!(fetch(&mut d, 2), name(1), "nothing was to be read there");
    d.release(&name(2));
    d.poll_order();
    d.ended(Rank(1), &sample_of(1, P, 1), Ended::Received);
    assert_eq!(fetch(&mut d, 3), name(3));
}
