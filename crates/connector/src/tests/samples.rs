//! Several requests with the parameters of one lease: the samples of one prompt.

use super::scheduler::scheduler;
use super::support::*;
use super::world::World;
use crate::message::{Answer, Body, Grant, Message, Request};
use crate::*;

pub(super) const P_NODE: usize = 0;
pub(super) const D_NODE: usize = 1;
pub(super) const D1_NODE: usize = 2;

/// A decode worker with so many samples of lease 1, which P has granted and which all are read.
fn reading(samples: u64) -> (Worker, Vec<ClaimId>) {
    let mut d = worker(D, 0);
    start(&mut d, secs(0), sample(0), sources(&[0]));
    for number in 1..samples {
        let (claim, prompt) = (sample(number), prompt());
        let fetch = Fetch { claim, shared: None, prompt, address: address(1) };
        d.handle(secs(0), Input::Fetch(fetch));
    }
    assert_eq!(sent(&mut d), [to_claim(0, &[0])], "one claim for all");
    answer(&mut d, Answer::Granted(grant()));
    let offered = events(&mut d);
    assert!(offered.iter().all(|event| matches!(event, Event::Offered { .. })));
    assert_eq!(offered.len(), usize::try_from(samples).unwrap());
    let all: Vec<_> = (0..samples).map(sample).collect();
    for claim in &all {
        read(&mut d, claim);
    }
    (d, all)
}

pub(super) fn sample(number: u64) -> ClaimId {
    sample_of(1, D, number)
}

fn read(d: &mut Worker, claim: &ClaimId) {
    d.handle(secs(0), Input::Read { claim: claim.clone(), peers: [P.agent].into() });
    assert_eq!(actions(d), [Action::Read { claim: claim.clone(), peer: P.agent }]);
}

/// What was said to P, all of it about the first sample's claim.
fn sent(d: &mut Worker) -> Vec<Request> {
    let sent = actions(d).into_iter().filter_map(|action| match action {
        Action::Send(Message { claim, body: Body::Request(request), .. }) => {
            assert_eq!(claim, sample(0));
            Some(request)
        }
        _ => None,
    });
    sent.collect()
}

fn answer(d: &mut Worker, answer: Answer) {
    d.handle(secs(0), Input::Message { from: P, message: answers(D, &sample(0), answer) });
}

fn read_ends(d: &mut Worker, claim: &ClaimId, how: Result<(), ReadFailure>) -> Vec<Request> {
    d.handle(secs(0), Input::ReadEnded { claim: claim.clone(), peer: P.agent, how });
    sent(d)
}

fn abort(d: &mut Worker, claim: &ClaimId) -> Vec<Request> {
    d.handle(secs(0), Input::Abort(claim.clone()));
    sent(d)
}

pub(super) fn received(claim: &ClaimId) -> Event {
    Event::Received { claim: claim.clone() }
}

fn failed(claim: &ClaimId, failure: Failure) -> Event {
    Event::Failed { claim: claim.clone(), failure }
}

fn check(number: u64) -> Request {
    Request::Check { number }
}

#[test]
fn sixteen_share_one_claim() {
    let mut world = World::new();
    world.input(P_NODE, Input::Lease(lease(1)));
    let start = |sample| world.start_sample(D_NODE, (1, sample), None, &[0]);
    let samples: Vec<_> = (0..16).map(start).collect();
    world.deliver_all();
    for (before, claim) in samples.iter().enumerate() {
        let counts = world.nodes[P_NODE].worker.counts();
        assert_eq!((counts.leases, counts.claims, counts.tokens), (1, 1, 1));
        assert_eq!(world.nodes[D_NODE].worker.counts().receives, 16 - before);
        // Longer than a claim lives.
        for _ in 0..6 {
            world.pass(secs(4));
            world.deliver_all();
        }
        world.reads_done(D_NODE, claim);
        world.deliver_all();
        assert_eq!(world.nodes[D_NODE].ends[claim], received(claim));
    }
    world.revoke_all();
    assert_eq!(world.freed.get(&lease_id(1)), Some(&Why::Satisfied));
    world.settle();
}

#[test]
fn each_counts_when_p_has_answered_what_was_asked_after_its_reads() {
    let (mut d, all) = reading(3);
    assert_eq!(read_ends(&mut d, &all[1], Ok(())), [check(0)]);
    assert_eq!(read_ends(&mut d, &all[0], Ok(())), [check(1)]);
    for other in [Answer::Renewed { left: secs(9) }, Answer::Alive, Answer::Intact { number: 2 }] {
        answer(&mut d, other);
        assert_eq!(events(&mut d), [], "no word about what was read");
    }
    answer(&mut d, Answer::Intact { number: 1 });
    assert_eq!(events(&mut d), [received(&all[0])]);
    assert_eq!(read_ends(&mut d, &all[2], Ok(())), [Request::Done], "the last reader");
    answer(&mut d, Answer::Intact { number: 0 });
    assert_eq!(events(&mut d), [received(&all[1])]);
    answer(&mut d, Answer::Alive);
    assert_eq!(events(&mut d), [received(&all[2])]);
    assert!(at_rest(&d));
}

#[test]
fn one_that_is_given_up_leaves_the_others_alone() {
    // While its reads run, the last with no reads, and after its reads.
    let (mut d, all) = reading(3);
    assert_eq!(abort(&mut d, &all[0]), []);
    read_ends(&mut d, &all[0], Err(ReadFailure::Stopped));
    assert_eq!(events(&mut d), [Event::Released { claim: all[0].clone() }]);
    assert_eq!(read_ends(&mut d, &all[1], Ok(())), [check(0)]);
    assert_eq!(abort(&mut d, &all[1]), []);
    assert_eq!(events(&mut d), [Event::Released { claim: all[1].clone() }]);
    assert_eq!(read_ends(&mut d, &all[2], Ok(())), [Request::Done]);
    answer(&mut d, Answer::Alive);
    assert_eq!(events(&mut d), [received(&all[2])]);
    assert!(at_rest(&d));
}

#[test]
fn a_read_that_fails_is_the_failure_of_one() {
    let (mut d, all) = reading(2);
    assert_eq!(read_ends(&mut d, &all[0], Err(ReadFailure::Refused)), []);
    assert_eq!(events(&mut d), [failed(&all[0], Failure::Read(ReadFailure::Refused))]);
    assert_eq!(read_ends(&mut d, &all[1], Ok(())), [Request::Done]);
    answer(&mut d, Answer::Alive);
    assert_eq!(events(&mut d), [received(&all[1])]);
}

#[test]
fn p_hears_of_the_end_when_the_last_is_given_up() {
    // After one was received this reader is done: a release would end the claim for all ranks.
    let (mut d, all) = reading(2);
    read_ends(&mut d, &all[0], Ok(()));
    answer(&mut d, Answer::Intact { number: 0 });
    assert_eq!(events(&mut d), [received(&all[0])]);
    assert_eq!(abort(&mut d, &all[1]), [Request::Done]);
    read_ends(&mut d, &all[1], Err(ReadFailure::Stopped));
    assert_eq!(events(&mut d), [Event::Released { claim: all[1].clone() }]);
    assert!(at_rest(&d));

    // While one waits for its commit, too.
    let (mut d, all) = reading(2);
    read_ends(&mut d, &all[0], Ok(()));
    assert_eq!(abort(&mut d, &all[1]), [Request::Done]);
    answer(&mut d, Answer::Intact { number: 0 });
    assert_eq!(events(&mut d), [received(&all[0])]);

    // Nobody has anything of it.
    let (mut d, all) = reading(2);
    assert_eq!(abort(&mut d, &all[0]), []);
    assert_eq!(abort(&mut d, &all[1]), [Request::Release]);
}

#[test]
fn what_ends_at_p_ends_for_all_that_need_it() {
    for (answered, failure) in [(Answer::Over, Failure::Over), (Answer::Unknown, Failure::Unknown)]
    {
        let (mut d, all) = reading(3);
        read_ends(&mut d, &all[0], Ok(()));
        answer(&mut d, Answer::Intact { number: 0 });
        read_ends(&mut d, &all[1], Ok(()));
        answer(&mut d, answered);
        assert_eq!(events(&mut d), [received(&all[0]), failed(&all[1], failure.clone())]);
        read_ends(&mut d, &all[2], Err(ReadFailure::Stopped));
        assert_eq!(events(&mut d), [failed(&all[2], failure)]);
        assert!(at_rest(&d));
    }
}

#[test]
fn a_commit_is_answered_within_5_s_whatever_others_do() {
    let (mut d, all) = reading(2);
    read_ends(&mut d, &all[0], Ok(()));
    d.handle_timeout(before(secs(5)));
    assert_eq!(events(&mut d), []);
    d.handle_timeout(secs(5));
    assert_eq!(events(&mut d), [failed(&all[0], Failure::NoAnswer)]);
    assert_eq!(sent(&mut d), [Request::Renew], "the other reads on");
}

#[test]
fn one_that_comes_late_is_offered_the_same_at_once() {
    let (mut d, _) = reading(1);
    let (claim, prompt) = (sample(1), prompt());
    let fetch = Fetch { claim, shared: None, prompt, address: address(1) };
    d.handle(secs(9), Input::Fetch(fetch));
    assert_eq!(sent(&mut d), [Request::Renew], "due before");
    let offered = events(&mut d);
    let [Event::Offered { claim, offers }] = &offered[..] else { panic!("{offered:?}") };
    assert_eq!((claim, offers[0].token, offers[0].left), (&sample(1), ReadToken(77), secs(11)));
}

#[test]
fn another_prompt_fails_by_itself() {
    let other = PromptDigest { sha256: [1; 32], ..prompt() };
    let fetch = |number, prompt| {
        Input::Fetch(Fetch { claim: sample(number), shared: None, prompt, address: address(1) })
    };
    let mut d = worker(D, 0);
    start(&mut d, secs(0), sample(0), sources(&[0]));
    d.handle(secs(0), fetch(1, other));
    assert_eq!(sent(&mut d), [to_claim(0, &[0])]);
    answer(&mut d, Answer::Granted(Grant { left: secs(20), ..grant() }));
    d.handle(secs(0), fetch(2, other));
    assert_eq!(sent(&mut d), [], "the first reads on");
    let told = events(&mut d);
    let [first, offered, last] = &told[..] else { panic!("{told:?}") };
    assert_eq!(first, &failed(&sample(1), Failure::Digest));
    assert!(matches!(offered, Event::Offered { claim, .. } if *claim == sample(0)));
    assert_eq!(last, &failed(&sample(2), Failure::Digest));
}

#[test]
fn one_that_comes_after_the_end_claims_anew_or_is_over() {
    let (mut d, all) = reading(1);
    read_ends(&mut d, &all[0], Ok(()));
    let named = Some(sample(0).request);
    for (number, shared) in [(1, named), (2, None)] {
        let (claim, prompt) = (sample(number), prompt());
        d.handle(secs(0), Input::Fetch(Fetch { claim, shared, prompt, address: address(1) }));
    }
    assert_eq!(events(&mut d), [failed(&sample(1), Failure::Over)], "no claim begins again");
    let sent = actions(&mut d);
    let [Action::Send(Message { claim, body, .. })] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((claim, body), (&sample(2), &Body::Request(to_claim(0, &[0]))));
}

/// P must not be told that nobody reads what another sample is about to read.
#[test]
fn one_that_is_given_up_before_the_handshake() {
    let (acquaintance, address) =
        (Acquaintance { engine: P.engine, sources: sources(&[0]) }, address(1));
    for (second, told) in [(true, to_claim(0, &[0])), (false, Request::Release)] {
        let mut d = worker(D, 0);
        let shared = Some(sample(0).request);
        for number in 0..if second { 2 } else { 1 } {
            let (claim, prompt, shared) = (sample(number), prompt(), shared.clone());
            d.handle(
                secs(0),
                Input::Fetch(Fetch { claim, shared, prompt, address: address.clone() }),
            );
        }
        d.handle(secs(0), Input::Abort(sample(0)));
        assert_eq!(sent(&mut d), []);
        let (acquaintance, address) = (acquaintance.clone(), address.clone());
        d.handle(secs(1), Input::Greeted { address, acquaintance });
        assert_eq!(sent(&mut d), [told]);
    }
}

#[test]
fn ranks_that_end_at_different_times_keep_one_claim() {
    let mut world = World::new();
    world.input(P_NODE, Input::Lease(lease(1)));
    let named = Some(sample(0).request);
    for sample in 0..2 {
        for node in [D_NODE, D1_NODE] {
            world.start_sample(node, (1, sample), named.clone(), &[0, 1]);
        }
    }
    world.deliver_all();
    assert_eq!(world.nodes[P_NODE].worker.counts().claims, 1);
    // One rank has received one and was told to give the other up, the other reads both.
    world.reads_done(D_NODE, &sample(0));
    world.deliver_all();
    world.input(D_NODE, Input::Abort(sample(1)));
    world.reads_failed(D_NODE, &sample(1));
    world.deliver_all();
    world.reads_done(D1_NODE, &sample(0));
    world.deliver_all();
    for node in [D_NODE, D1_NODE] {
        assert_eq!(world.nodes[node].ends[&sample(0)], received(&sample(0)));
    }
    assert_eq!(world.freed.get(&lease_id(1)), None, "a rank still reads");
    world.input(D1_NODE, Input::Abort(sample(1)));
    world.reads_failed(D1_NODE, &sample(1));
    world.deliver_all();
    world.revoke_all();
    assert_eq!(world.freed.get(&lease_id(1)), Some(&Why::Satisfied));
    world.settle();
}

#[test]
fn p_looks_without_counting() {
    let (mut p, claim) = (worker(P, 0), claim_of(1, D));
    p.handle(secs(0), Input::Lease(lease(1)));
    let mut ask = |now, from, request| {
        p.handle(now, Input::Message { from, message: asks(from, &claim, request) });
        let mut sent = actions(&mut p).into_iter().filter_map(|action| match action {
            Action::Send(Message { body: Body::Answer(answer), .. }) => Some(answer),
            _ => None,
        });
        (sent.next().unwrap(), sent.next())
    };
    let intact = |number| (Answer::Intact { number }, None);
    let over = (Answer::Over, None);
    assert_eq!(ask(secs(0), D, check(0)), over, "it has not claimed");
    assert!(matches!(ask(secs(0), D, to_claim(0, &[0, 1])), (Answer::Granted(_), None)));
    assert_eq!(ask(secs(1), D1, check(0)), over, "this rank has not claimed");
    assert!(matches!(ask(secs(1), D1, to_claim(1, &[0, 1])), (Answer::Granted(_), None)));
    for number in [0, 1, 1, 7] {
        assert_eq!(ask(secs(1), D, check(number)), intact(number));
    }
    assert_eq!(ask(before(secs(20)), D, Request::Done), (Answer::Alive, None));
    assert_eq!(ask(before(secs(20)), D, check(8)), intact(8), "overtaken by its own end");
    assert_eq!(ask(before(secs(21)), D1, check(0)), intact(0));
    assert_eq!(ask(secs(21), D1, check(0)), over, "the claim has lapsed: looking renews nothing");
}

/// All ranks must come to P under one name, so the scheduler chooses it.
#[test]
fn a_scheduler_names_the_claim() {
    let mut d = scheduler(1);
    let fetch = |d: &mut Scheduler, lease, number| {
        let claim = ClaimId { lease: lease_id(lease), ..sample_of(1, P, number) };
        let remote = RemotePrefill { claim, address: address(1), tokens: 3 };
        d.fetch(remote, prompt()).unwrap();
        let order = std::iter::from_fn(|| d.poll_order()).find_map(|order| match order {
            Order::Fetch(fetch) => fetch.shared,
            _ => None,
        });
        order.unwrap()
    };
    let name = |number| sample_of(1, P, number).request;
    assert_eq!(fetch(&mut d, 1, 1), name(1));
    assert_eq!(fetch(&mut d, 1, 2), name(1));
    assert_eq!(fetch(&mut d, 2, 3), name(3), "another lease");
    d.ended(Rank(0), &sample_of(1, P, 1), Ended::Received);
    assert_eq!(fetch(&mut d, 1, 4), name(1), "the first has ended, the second reads on");
    d.release(&name(2));
    assert_eq!(fetch(&mut d, 1, 5), name(1), "the fourth reads on");
    d.release(&name(4));
    d.release(&name(5));
    assert_eq!(fetch(&mut d, 1, 6), name(6), "nobody is left whose claim it could share");
}
