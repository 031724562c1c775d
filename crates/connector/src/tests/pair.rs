//! P and D against each other.

use super::support::*;
use super::world::World;
use crate::message::Request;
use crate::*;

const P_NODE: usize = 0;
const D_NODE: usize = 1;
const D1_NODE: usize = 2;
const E_NODE: usize = 3;

fn with_lease() -> World {
    let mut world = World::new();
    world.input(P_NODE, Input::Lease(lease(1)));
    world
}

fn failure(world: &World, node: usize, claim: &ClaimId) -> Option<Failure> {
    match world.nodes[node].ends.get(claim) {
        Some(Event::Failed { failure, .. }) => Some(failure.clone()),
        _ => None,
    }
}

fn received(world: &World, node: usize, claim: &ClaimId) -> bool {
    matches!(world.nodes[node].ends.get(claim), Some(Event::Received { .. }))
}

fn released(world: &World, node: usize, claim: &ClaimId) -> bool {
    matches!(world.nodes[node].ends.get(claim), Some(Event::Released { .. }))
}

fn why(world: &World) -> Option<Why> {
    world.freed.get(&lease_id(1)).copied()
}

#[test]
fn happy_path() {
    let mut world = with_lease();
    let claim = world.start(D_NODE, 1, &[0]);
    world.deliver_all();
    assert!(world.nodes[D_NODE].reading.contains(&claim));
    for _ in 0..30 {
        world.pass(secs(1));
        world.deliver_all();
    }
    world.reads_done(D_NODE, &claim);
    world.deliver_all();
    assert!(received(&world, D_NODE, &claim), "renewed for longer than a claim lives");
    assert_eq!(why(&world), None);
    world.revoke_all();
    assert_eq!(why(&world), Some(Why::Satisfied));
    world.settle();
}

#[test]
fn two_ranks_read_one() {
    let mut world = with_lease();
    let claim = world.start(D_NODE, 1, &[0, 1]);
    world.deliver_all();
    world.reads_done(D_NODE, &claim);
    world.start(D1_NODE, 1, &[0, 1]);
    world.deliver_all();
    assert!(received(&world, D_NODE, &claim));
    world.reads_done(D1_NODE, &claim);
    world.revoke_all();
    assert_eq!(why(&world), None, "the second rank is not done");
    world.deliver_all();
    world.revoke_all();
    assert!(received(&world, D1_NODE, &claim));
    assert_eq!(why(&world), Some(Why::Satisfied));
    world.settle();
}

#[test]
fn digest_mismatch() {
    let mut world = World::new();
    let other = PromptDigest { sha256: [1; 32], ..prompt() };
    world.input(P_NODE, Input::Lease(Lease { prompt: other, ..lease(1) }));
    let claim = world.start(D_NODE, 1, &[0]);
    world.deliver_all();
    assert_eq!(failure(&world, D_NODE, &claim), Some(Failure::Digest));
    world.revoke_all();
    assert_eq!(why(&world), Some(Why::Released));
    world.settle();
}

#[test]
fn claim_overtakes_lease() {
    let mut world = World::new();
    let claim = world.start(D_NODE, 1, &[0]);
    world.deliver_all();
    world.pass(before(secs(2)));
    world.input(P_NODE, Input::Lease(lease(1)));
    world.deliver_all();
    assert!(world.nodes[D_NODE].reading.contains(&claim));
    world.settle();
}

#[test]
fn no_lease_ever() {
    let mut world = World::new();
    let claim = world.start(D_NODE, 1, &[0]);
    world.deliver_all();
    world.pass(secs(2));
    world.deliver_all();
    assert_eq!(failure(&world, D_NODE, &claim), Some(Failure::Unknown));
    world.settle();
}

#[test]
fn every_message_twice() {
    let mut world = with_lease();
    let claim = world.start(D_NODE, 1, &[0]);
    let both =
        |world: &mut World| {
            while [(D_NODE, P_NODE), (P_NODE, D_NODE)].iter().any(|(from, to)| {
                world.deliver(*from, *to, true) && world.deliver(*from, *to, false)
            }) {}
        };
    both(&mut world);
    world.pass(secs(5));
    both(&mut world);
    world.reads_done(D_NODE, &claim);
    both(&mut world);
    assert!(received(&world, D_NODE, &claim));
    world.revoke_all();
    assert_eq!(why(&world), Some(Why::Satisfied));
    world.settle();
}

#[test]
fn a_lapsed_claim_never_publishes() {
    let mut world = with_lease();
    let claim = world.start(D_NODE, 1, &[0]);
    world.deliver_all();
    // D hears nothing of time: only P's clock runs, as when D's process is stopped.
    world.nodes[P_NODE].worker.handle_timeout(secs(20));
    world.reads_done(D_NODE, &claim);
    assert!(world.head_is(D_NODE, P_NODE, &Request::Done));
    world.deliver_all();
    assert_eq!(failure(&world, D_NODE, &claim), Some(Failure::Over));
}

#[test]
fn a_lapse_noticed_by_d() {
    let mut world = with_lease();
    let claim = world.start(D_NODE, 1, &[0]);
    world.deliver_all();
    world.pass(secs(20)); // no message passes
    assert!(world.nodes[D_NODE].reading.contains(&claim), "its reads must be stopped first");
    world.reads_failed(D_NODE, &claim);
    assert_eq!(failure(&world, D_NODE, &claim), Some(Failure::NoAnswer));
    world.settle();
    assert_eq!(why(&world), Some(Why::Over));
}

#[test]
fn abort_in_each_state() {
    let abort = |world: &mut World, claim: &ClaimId| {
        world.input(D_NODE, Input::Abort(claim.clone()));
        world.deliver_all();
        world.revoke_all();
        assert_eq!(why(world), Some(Why::Released), "freed at once");
        if world.nodes[D_NODE].reading.contains(claim) {
            world.reads_failed(D_NODE, claim);
        }
        assert!(released(world, D_NODE, claim));
        world.settle();
    };
    let mut claiming = with_lease();
    let claim = claiming.start(D_NODE, 1, &[0]);
    abort(&mut claiming, &claim);

    let mut reading = with_lease();
    reading.start(D_NODE, 1, &[0]);
    reading.deliver_all();
    abort(&mut reading, &claim);

    let mut early = World::new();
    early.start(D_NODE, 1, &[0]);
    early.deliver_all();
    early.input(D_NODE, Input::Abort(claim.clone()));
    early.deliver_all();
    early.input(P_NODE, Input::Lease(lease(1)));
    assert_eq!(why(&early), Some(Why::Released));
    early.settle();
}

#[test]
fn an_abort_after_the_last_read() {
    let mut world = with_lease();
    let claim = world.start(D_NODE, 1, &[0]);
    world.deliver_all();
    world.reads_done(D_NODE, &claim);
    world.input(D_NODE, Input::Abort(claim.clone()));
    world.deliver_all();
    world.revoke_all();
    assert!(released(&world, D_NODE, &claim));
    assert_eq!(why(&world), Some(Why::Satisfied));
    world.settle();
}

#[test]
fn two_claims_of_one_lease() {
    let mut world = with_lease();
    let first = world.start(D_NODE, 1, &[0]);
    let second = world.start(E_NODE, 1, &[0]);
    world.deliver_all();
    world.reads_done(D_NODE, &first);
    world.deliver_all();
    world.revoke_all();
    assert!(received(&world, D_NODE, &first));
    assert_eq!(why(&world), None);
    world.reads_done(E_NODE, &second);
    world.deliver_all();
    world.revoke_all();
    assert!(received(&world, E_NODE, &second));
    assert_eq!(why(&world), Some(Why::Satisfied));
    world.settle();
}

#[test]
fn empty_reader_set() {
    let mut world = with_lease();
    let claim = world.start(D_NODE, 1, &[]);
    world.deliver_all();
    assert_eq!(world.nodes[D_NODE].ends[&claim], Event::Nothing { claim: claim.clone() });
    assert_eq!(why(&world), Some(Why::Released));
    world.settle();
}

#[test]
fn a_peer_that_is_lost() {
    let mut world = with_lease();
    let claim = world.start(D_NODE, 1, &[0]);
    world.deliver_all();
    world.lose(P_NODE, D_NODE);
    world.reads_failed(D_NODE, &claim);
    assert_eq!(failure(&world, D_NODE, &claim), Some(Failure::PeerLost));
    let second = world.start(E_NODE, 1, &[0]);
    world.deliver_all();
    world.reads_done(E_NODE, &second);
    world.deliver_all();
    assert!(received(&world, E_NODE, &second), "a router's retry");
    world.settle();
}
