//! What has broken for people, by the numbers of the reports that `docs/RELIABILITY.md` lists.

use std::collections::{BTreeMap, BTreeSet};

use super::support::*;
use super::world::World;
use crate::message::{Answer, Message, Request};
use crate::*;

mod failures;
mod moves;

const P_NODE: usize = 0;
const D_NODE: usize = 1;
const E_NODE: usize = 3;

fn with_leases(count: u64) -> World {
    let mut world = World::new();
    (0..count).for_each(|nonce| world.input(P_NODE, Input::Lease(lease(nonce))));
    world
}

/// A world in which a decode engine reads the first lease.
fn reading() -> (World, ClaimId) {
    let mut world = with_leases(1);
    let claim = world.start(D_NODE, 0, &[0]);
    world.deliver_all();
    assert!(world.nodes[D_NODE].reading.contains(&claim));
    (world, claim)
}

fn end(world: &World, node: usize, claim: &ClaimId) -> Option<Event> {
    world.nodes[node].ends.get(claim).cloned()
}

fn failed(claim: &ClaimId, failure: Failure) -> Option<Event> {
    Some(Event::Failed { claim: claim.clone(), failure })
}

/// Lets time pass a second at a time, with every message delivered.
fn live(world: &mut World, seconds: u64) {
    for _ in 0..seconds {
        world.pass(secs(1));
        world.deliver_all();
    }
}

/// One large timeout pinned the blocks of a dead decode engine for minutes.
#[test]
fn r40_a_dead_decode_engine_binds_no_blocks_for_long() {
    // Renewed at 10 s, dead since, and nobody notices: 20 s of the claim, 30 s for a retry.
    let (mut world, _) = reading();
    live(&mut world, 10);
    world.pass(before(secs(50)));
    assert_eq!(world.freed.len(), 0);
    world.revoke_all();
    world.pass(Time::from_nanos(1));
    assert_eq!(world.freed[&lease_id(0)], Why::Over);
    // Its connection is seen to end: 30 s for a retry.
    let (mut world, _) = reading();
    world.lose(P_NODE, D_NODE);
    world.revoke_all();
    world.pass(secs(30));
    assert_eq!(world.freed[&lease_id(0)], Why::Over);
}

#[test]
fn r40_a_decode_engine_that_queues_for_300_s_keeps_its_blocks() {
    let (mut world, claim) = reading();
    live(&mut world, 300);
    assert_eq!(world.freed.len(), 0);
    world.reads_done(D_NODE, &claim);
    world.deliver_all();
    assert_eq!(end(&world, D_NODE, &claim), Some(Event::Received { claim }));
}

#[test]
fn r40_a_hundred_clients_that_are_gone() {
    let mut world = with_leases(100);
    world.pass(before(secs(30)));
    assert_eq!(world.freed.len(), 0);
    world.pass(Time::from_nanos(1));
    assert_eq!(world.freed.len(), 100);
    world.settle();
}

/// Heartbeats carried an id that P did not know, and were swallowed.
#[test]
fn r41_a_renewal_that_matches_nothing_is_counted() {
    let (mut world, claim) = reading();
    let other = ClaimId { request: request("by another name"), ..claim };
    let message = asks(D, &other, Request::Renew);
    world.input(P_NODE, Input::Message { from: D, message });
    assert_eq!(world.nodes[P_NODE].worker.counts().refused, 1);
    world.pass(before(secs(20)));
    assert_eq!(world.nodes[P_NODE].worker.counts().claims, 1);
    world.pass(Time::from_nanos(1));
    assert_eq!(world.nodes[P_NODE].worker.counts().claims, 0, "and renews nothing");
}

/// Blocks of an aborted load were never freed where P died first.
#[test]
fn r42_aborted_and_then_the_peer_dies() {
    let (mut world, claim) = reading();
    world.input(D_NODE, Input::Abort(claim.clone()));
    world.lose(P_NODE, D_NODE);
    world.pass(secs(100));
    assert_eq!(end(&world, D_NODE, &claim), None, "the read may still write");
    world.reads_failed(D_NODE, &claim);
    assert_eq!(end(&world, D_NODE, &claim), Some(Event::Released { claim: claim.clone() }));
    world.reads_done(D_NODE, &claim);
    world.settle();
}

/// Requests that the decode engine's front door rejected held P's blocks to the timeout.
#[test]
fn r43_rejected_before_they_were_admitted() {
    let mut world = with_leases(100);
    for nonce in 0..100 {
        let claim = world.start(D_NODE, nonce, &[0]);
        world.input(D_NODE, Input::Abort(claim));
    }
    world.deliver_all();
    world.revoke_all();
    assert_eq!(world.freed.len(), 100, "no time has passed");
    assert!(world.freed.values().all(|why| *why == Why::Released));
    world.settle();
}

/// Requests that the local cache had all of were reported neither finished nor failed.
#[test]
fn r45_full_local_hits_leave_nothing() {
    let mut d = super::scheduler::scheduler(1);
    for number in 0..1000 {
        let name = request(&format!("answer {number}"));
        let claim = ClaimId { request: name.clone(), ..claim_of(number, P) };
        let remote = RemotePrefill { claim: claim.clone(), address: address(1), tokens: 3 };
        d.fetch(remote, prompt()).unwrap();
        d.release(&name);
        d.release(&name);
        let fetch = d.poll_order();
        assert!(matches!(fetch, Some(Order::Fetch(_))));
        assert_eq!(d.poll_order(), Some(Order::Abort(claim.clone())));
        assert_eq!(d.poll_order(), None, "P is told once");
        d.ended(Rank(0), &claim, Ended::Released);
        assert_eq!(d.poll_outcome(), None, "the engine does not wait for it");
    }
    assert_eq!(d.requests(), 0);
}

/// A late word about a request that was gone killed the engine.
#[test]
fn r46_late_words() {
    let mut d = worker(D, 0);
    let claim = claim_of(1, D);
    let fetch = Fetch { claim: claim.clone(), shared: None, prompt: prompt(), address: address(1) };
    d.handle(secs(0), Input::Fetch(fetch));
    d.handle(secs(0), Input::Abort(claim.clone()));
    assert_eq!(events(&mut d), [Event::Released { claim: claim.clone() }]);
    d.handle(secs(1), Input::NotGreeted { address: address(1), failure: Failure::Handshake });
    d.handle(secs(1), Input::ReadEnded { claim: claim.clone(), peer: P.agent, how: Ok(()) });
    d.handle(secs(1), Input::Overdue(claim.clone()));
    d.handle(secs(1), Input::Abort(claim));
    assert_eq!(events(&mut d), []);
    let mut scheduler = super::scheduler::scheduler(1);
    scheduler.ended(Rank(0), &claim_of(1, P), Ended::Received);
    scheduler.freed(&lease_id(1), Rank(0));
    assert_eq!((scheduler.poll_outcome(), scheduler.strays()), (None, 1));
}

/// A prefill engine without further requests did not notice that it could free.
#[test]
fn r48_freed_without_further_requests() {
    let (mut world, claim) = reading();
    world.pass(secs(3));
    world.reads_done(D_NODE, &claim);
    world.deliver_all();
    world.revoke_all();
    assert_eq!(world.freed[&lease_id(0)], Why::Satisfied, "in the same step");
}

/// A dead peer's state was dropped only when a new peer came.
#[test]
fn r49_a_dead_peer_is_forgotten_at_once() {
    let (mut world, claim) = reading();
    assert_eq!(world.nodes[D_NODE].worker.counts().engines, 1);
    world.lose(P_NODE, D_NODE);
    assert_eq!(world.nodes[D_NODE].worker.counts().engines, 0);
    world.reads_failed(D_NODE, &claim);
    world.settle();
}

/// A prefill that ends by abort or error has no lease, and D need not wait for it.
#[test]
fn r51_no_lease_is_told_within_2_s() {
    let mut world = World::new();
    let claim = world.start(D_NODE, 0, &[0]);
    world.deliver_all();
    world.pass(secs(2));
    world.deliver_all();
    assert_eq!(end(&world, D_NODE, &claim), failed(&claim, Failure::Unknown));
}

/// An abort gave blocks back that a read still wrote.
#[test]
fn r55_blocks_are_free_when_the_read_has_ended() {
    let (mut world, claim) = reading();
    world.input(D_NODE, Input::Abort(claim.clone()));
    world.pass(secs(1000));
    assert_eq!(end(&world, D_NODE, &claim), None);
    world.reads_done(D_NODE, &claim);
    assert_eq!(end(&world, D_NODE, &claim), Some(Event::Released { claim: claim.clone() }));
}

/// What waited for a slow handshake went ahead although the lease had ended.
#[test]
fn r57_a_handshake_that_takes_longer_than_the_lease() {
    let mut d = worker(D, 0);
    let claim = claim_of(1, D);
    let fetch = Fetch { claim: claim.clone(), shared: None, prompt: prompt(), address: address(1) };
    d.handle(secs(0), Input::Fetch(fetch));
    d.handle_timeout(secs(10));
    let failure = Failure::NoAnswer;
    assert_eq!(events(&mut d), [Event::Failed { claim: claim.clone(), failure }]);
    actions(&mut d);
    let acquaintance = Acquaintance { engine: P.engine, sources: sources(&[0]) };
    d.handle(secs(40), Input::Greeted { address: address(1), acquaintance });
    let released = Action::Send(asks(D, &claim, Request::Release));
    assert_eq!(actions(&mut d), [released], "nothing is claimed, and P need not wait");
    assert_eq!(events(&mut d), []);
}

/// D waited for ever, or 300 s, for a P that was gone.
#[test]
fn r60_a_lost_peer_is_told_at_once() {
    let mut world = with_leases(1);
    let claim = world.start(D_NODE, 0, &[0]);
    world.lose(P_NODE, D_NODE);
    assert_eq!(end(&world, D_NODE, &claim), failed(&claim, Failure::PeerLost));
}

/// No state without a deadline, but the one that waits for a read to end.
#[test]
fn r60_every_state_has_a_deadline() {
    let mut d = worker(D, 0);
    let claim = claim_of(1, D);
    let fetch = Fetch { claim: claim.clone(), shared: None, prompt: prompt(), address: address(1) };
    d.handle(secs(0), Input::Fetch(fetch));
    assert_eq!(d.poll_timeout(), Some(secs(10)), "greeting");
    let acquaintance = Acquaintance { engine: P.engine, sources: sources(&[0]) };
    d.handle(secs(0), Input::Greeted { address: address(1), acquaintance });
    assert_eq!(d.poll_timeout(), Some(secs(5)), "claiming");
    let message = answers(D, &claim, Answer::Granted(grant()));
    d.handle(secs(0), Input::Message { from: P, message });
    assert_eq!(d.poll_timeout(), Some(secs(5)), "offered: the next renewal");
    d.handle(secs(0), Input::Read { claim: claim.clone(), peers: [P.agent].into() });
    assert_eq!(d.poll_timeout(), Some(secs(5)), "reading: the same");
    d.handle(secs(1), Input::ReadEnded { claim, peer: P.agent, how: Ok(()) });
    assert_eq!(d.poll_timeout(), Some(secs(6)), "committing");
}

/// A preempted request asked again for what it had consumed, and waited for ever.
#[test]
fn r63_what_was_consumed_is_refused_at_once() {
    let (mut world, claim) = reading();
    world.reads_done(D_NODE, &claim);
    world.deliver_all();
    world.nodes[D_NODE].ends.clear();
    world.start(D_NODE, 0, &[0]);
    world.deliver_all();
    assert_eq!(end(&world, D_NODE, &claim), failed(&claim, Failure::Over));
}

/// Another request's slot was read under load; a duplicate id crashed both sides.
#[test]
fn r66_another_generation_is_never_used() {
    let (mut world, claim) = reading();
    let older = ClaimId { lease: lease_id(7), ..claim.clone() };
    for answer in [Answer::Alive, Answer::Over, Answer::Granted(grant())] {
        let message = Message { from: P.agent, ..answers(D, &older, answer) };
        world.input(D_NODE, Input::Message { from: P, message });
    }
    assert!(world.nodes[D_NODE].reading.contains(&claim));
    assert_eq!(end(&world, D_NODE, &claim), None);
}

#[test]
fn r66_a_second_request_of_one_name_is_refused() {
    let mut d = super::scheduler::scheduler(1);
    let remote =
        |nonce| RemotePrefill { claim: claim_of(nonce, P), address: address(1), tokens: 3 };
    d.fetch(remote(1), prompt()).unwrap();
    assert_eq!(d.fetch(remote(2), prompt()), Err(UnderWay));
    d.ended(Rank(0), &claim_of(2, P), Ended::Failed(Failure::Over));
    d.ended(Rank(0), &claim_of(1, P), Ended::Received);
    assert_eq!(d.poll_outcome(), Some(Outcome::Received(request("answer"))));
}

/// One peer's handshake failure took the whole decode engine down.
#[test]
fn r71_only_requests_for_that_peer_fail() {
    let mut d = worker(D, 0);
    for (nonce, port) in [(1, 1), (2, 2)] {
        let fetch = Fetch {
            claim: claim_of(nonce, D),
            shared: None,
            prompt: prompt(),
            address: address(port),
        };
        d.handle(secs(0), Input::Fetch(fetch));
    }
    d.handle(secs(0), Input::NotGreeted { address: address(1), failure: Failure::Handshake });
    let (claim, failure) = (claim_of(1, D), Failure::Handshake);
    assert_eq!(events(&mut d), [Event::Failed { claim, failure }]);
    assert_eq!(d.counts().receives, 1);
}

/// D waited for a part that P never sends: what is complete is decided by what was negotiated.
#[test]
fn r73_complete_when_every_rank_that_is_read_is_alive() {
    let two = BTreeMap::from([
        (P.agent, ranks(&[0])),
        (AgentEpoch(11), ranks(&[0])),
        (AgentEpoch(12), BTreeSet::new()),
    ]);
    let mut d = worker(D, 0);
    start(&mut d, secs(0), claim_of(1, D), two);
    for agent in [P.agent, AgentEpoch(11)] {
        let answer = Answer::Granted(grant());
        let message = Message { from: agent, ..answers(D, &claim_of(1, D), answer) };
        d.handle(secs(0), Input::Message { from: Peer { agent, ..P }, message });
    }
    let offered = events(&mut d);
    let [Event::Offered { offers, .. }] = &offered[..] else { panic!("{offered:?}") };
    assert_eq!(offers.len(), 2, "the rank that nobody reads is not waited for");
}

/// Every rank of one engine reads from the right engine: engines are told apart by their lives.
#[test]
fn r77_engines_are_not_mixed_up() {
    let mut world = with_leases(64);
    for nonce in 0..64 {
        world.start(if nonce % 2 == 0 { D_NODE } else { E_NODE }, nonce, &[0]);
    }
    world.deliver_all();
    for node in [D_NODE, E_NODE] {
        let reading = world.nodes[node].reading.clone();
        assert_eq!(reading.len(), 32);
        reading.iter().for_each(|claim| world.reads_done(node, claim));
    }
    world.deliver_all();
    world.revoke_all();
    assert_eq!(world.freed.len(), 64);
    assert!(world.freed.values().all(|why| *why == Why::Satisfied));
    world.settle();
}
