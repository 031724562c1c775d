//! Retries and windows of a decode worker's reads.

use std::collections::BTreeMap;

use super::support::*;
use crate::limits::MAX_OPEN_READS;
use crate::message::{Answer, Grant, Message, Request};
use crate::*;

/// Another rank of the engine of `P`.
const P1: AgentEpoch = AgentEpoch(11);

fn claim(number: u64) -> ClaimId {
    let name = format!("answer {number}");
    ClaimId { request: request(&name), ..claim_of(1, D) }
}

/// A worker to which both ranks of P have offered a request.
fn offered(d: &mut Worker, number: u64) {
    let sources = BTreeMap::from([(P.agent, ranks(&[0])), (P1, ranks(&[0]))]);
    let (claim, prompt, address) = (claim(number), prompt(), address(1));
    d.handle(
        secs(0),
        Input::Fetch(Fetch { claim, shared: None, prompt, address: address.clone() }),
    );
    if actions(d).contains(&Action::Greet { address: address.clone() }) {
        let acquaintance = Acquaintance { engine: P.engine, sources };
        d.handle(secs(0), Input::Greeted { address, acquaintance });
    }
    for agent in [P.agent, P1] {
        let answer = Answer::Granted(Grant { left: secs(500), ..grant() });
        let message = Message { from: agent, ..answers(D, &self::claim(number), answer) };
        d.handle(secs(0), Input::Message { from: Peer { agent, ..P }, message });
    }
    actions(d);
    assert!(matches!(&events(d)[..], [Event::Offered { .. }]));
}

fn read(d: &mut Worker, number: u64, peers: &[AgentEpoch]) -> Vec<Action> {
    let peers = peers.iter().copied().collect();
    d.handle(secs(1), Input::Read { claim: claim(number), peers });
    actions(d)
}

fn ended(
    d: &mut Worker,
    number: u64,
    peer: AgentEpoch,
    how: Result<(), ReadFailure>,
) -> Vec<Action> {
    d.handle(secs(1), Input::ReadEnded { claim: claim(number), peer, how });
    actions(d)
}

fn reads(number: u64, peer: AgentEpoch) -> Action {
    Action::Read { claim: claim(number), peer }
}

fn cancels(number: u64, peer: AgentEpoch) -> Action {
    Action::Cancel { claim: claim(number), peer }
}

fn failed(failure: ReadFailure) -> [Event; 1] {
    [Event::Failed { claim: claim(1), failure: Failure::Read(failure) }]
}

fn offered_once() -> Worker {
    let mut d = worker(D, 0);
    offered(&mut d, 1);
    d
}

#[test]
fn a_failed_read_is_tried_once_more() {
    let mut d = offered_once();
    assert_eq!(read(&mut d, 1, &[P.agent, P1]), [reads(1, P.agent), reads(1, P1)]);
    assert_eq!(ended(&mut d, 1, P1, Err(ReadFailure::Transport)), [reads(1, P1)]);
    assert_eq!(ended(&mut d, 1, P.agent, Ok(())), []);
    assert_eq!(ended(&mut d, 1, P1, Ok(())).len(), 2, "both are told that it is done");
}

#[test]
fn a_read_that_fails_twice_fails_the_request_when_all_have_ended() {
    let mut d = offered_once();
    read(&mut d, 1, &[P.agent, P1]);
    ended(&mut d, 1, P1, Err(ReadFailure::Transport));
    let told = ended(&mut d, 1, P1, Err(ReadFailure::Transport));
    assert!(told.contains(&cancels(1, P.agent)), "{told:?}");
    assert!(told.contains(&Action::Send(asks(D, &claim(1), Request::Release))), "{told:?}");
    assert_eq!(events(&mut d), [], "the other read may still write");
    ended(&mut d, 1, P.agent, Err(ReadFailure::Stopped));
    assert_eq!(events(&mut d), failed(ReadFailure::Transport), "the first reason stands");
    assert!(at_rest(&d));
}

#[test]
fn what_a_retry_cannot_mend_is_not_tried_again() {
    for why in [ReadFailure::Refused, ReadFailure::PeerLost, ReadFailure::Overdue] {
        let mut d = offered_once();
        read(&mut d, 1, &[P1]);
        ended(&mut d, 1, P1, Err(why));
        assert_eq!(events(&mut d), failed(why));
        assert!(at_rest(&d));
    }
}

/// A clock never gives the blocks of an overdue read back: only its end does.
#[test]
fn the_blocks_of_an_overdue_read_are_in_quarantine() {
    let mut d = offered_once();
    read(&mut d, 1, &[P.agent]);
    d.handle(secs(30), Input::Overdue(claim(1)));
    let told = actions(&mut d);
    assert!(told.contains(&cancels(1, P.agent)));
    let release = Action::Send(asks(D, &claim(1), Request::Release));
    assert!(told.contains(&release), "P need not wait for it: {told:?}");
    d.handle_timeout(secs(100_000));
    assert_eq!(events(&mut d), []);
    assert_eq!((d.counts().quarantined, d.counts().receives), (1, 1));
    ended(&mut d, 1, P.agent, Ok(()));
    assert_eq!(events(&mut d), failed(ReadFailure::Overdue), "too late to count");
    assert_eq!(d.counts().quarantined, 0);
    assert!(at_rest(&d));
}

#[test]
fn more_reads_of_one_rank_wait_and_those_of_others_go_on() {
    let mut d = worker(D, 0);
    let most = MAX_OPEN_READS as u64;
    (0..most + 2).for_each(|number| offered(&mut d, number));
    (0..most).for_each(|number| drop(read(&mut d, number, &[P.agent])));
    assert_eq!(read(&mut d, most, &[P.agent, P1]), [reads(most, P1)]);
    assert_eq!(read(&mut d, most + 1, &[P.agent]), []);
    assert!(ended(&mut d, 0, P.agent, Ok(())).contains(&reads(most, P.agent)), "in turn");
    d.handle(secs(1), Input::Abort(claim(most + 1)));
    assert_eq!(events(&mut d), [Event::Released { claim: claim(most + 1) }], "nothing runs");
    assert!(!ended(&mut d, 1, P.agent, Ok(())).contains(&reads(most + 1, P.agent)));
}

#[test]
fn a_lost_rank_fails_what_waits_for_it() {
    let mut d = offered_once();
    read(&mut d, 1, &[P.agent, P1]);
    d.handle(secs(1), Input::PeerLost(P1));
    assert_eq!(events(&mut d), []);
    ended(&mut d, 1, P1, Err(ReadFailure::PeerLost));
    ended(&mut d, 1, P.agent, Err(ReadFailure::Stopped));
    let lost = Event::Failed { claim: claim(1), failure: Failure::PeerLost };
    assert_eq!(events(&mut d), [lost]);
    assert!(at_rest(&d));
}
