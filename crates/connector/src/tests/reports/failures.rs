//! Loads that failed.

use super::*;

const D1_NODE: usize = 2;

/// A load that failed was looked up and failed again, for ever.
#[test]
fn r83_a_persistent_failure_ends_after_one_retry() {
    let (mut world, claim) = reading();
    let how = Err(ReadFailure::Transport);
    let ended = |claim: &ClaimId| Input::ReadEnded { claim: claim.clone(), peer: P.agent, how };
    world.input(D_NODE, ended(&claim));
    assert!(world.nodes[D_NODE].reading.contains(&claim), "once more");
    world.input(D_NODE, ended(&claim));
    let failure = Failure::Read(ReadFailure::Transport);
    assert_eq!(end(&world, D_NODE, &claim), failed(&claim, failure));
    world.settle();
}

/// Requests were served from blocks that P had released; only a log line said so.
#[test]
fn r85_a_read_that_outlives_its_lease_is_discarded() {
    // P's clock runs and D's does not, as when D's process was stopped for a minute.
    let (mut world, claim) = reading();
    world.nodes[P_NODE].worker.handle_timeout(secs(60));
    world.reads_done(D_NODE, &claim);
    world.deliver_all();
    assert_eq!(end(&world, D_NODE, &claim), failed(&claim, Failure::Over));
}

/// One rank failed and the others waited.
#[test]
fn r86_all_ranks_agree_on_the_outcome() {
    let mut d = crate::tests::scheduler::scheduler(4);
    let claim = claim_of(1, P);
    d.fetch(RemotePrefill { claim: claim.clone(), address: address(1), tokens: 3 }, prompt())
        .unwrap();
    d.allocate(
        &claim.request,
        Allocation { tables: [].into(), resume_at: 2, align: 1, groups: vec![] },
    );
    while d.poll_order().is_some() {}
    d.ended(Rank(0), &claim, Ended::Received);
    d.ended(Rank(2), &claim, Ended::Failed(Failure::Read(ReadFailure::Transport)));
    assert_eq!(d.poll_order(), Some(Order::Abort(claim.clone())));
    d.ended(Rank(1), &claim, Ended::Received);
    assert_eq!(d.poll_outcome(), None);
    d.ended(Rank(3), &claim, Ended::Released);
    let outcome = d.poll_outcome();
    assert!(matches!(outcome, Some(Outcome::Failed { .. })), "{outcome:?}");
}

/// A reader counted towards a number that it could never reach.
#[test]
fn r87_one_reader_that_cannot_read_is_told_at_once() {
    let mut world = with_leases(1);
    let claim = world.start(D_NODE, 0, &[0, 1]);
    world.start(D1_NODE, 0, &[0, 1]);
    world.deliver_all();
    world.reads_done(D_NODE, &claim);
    world.reads_failed(D1_NODE, &claim);
    world.deliver_all();
    world.revoke_all();
    assert_eq!(world.freed[&lease_id(0)], Why::Released, "P does not wait for a second reader");
    assert!(matches!(end(&world, D1_NODE, &claim), Some(Event::Failed { .. })));
    world.settle();
}
