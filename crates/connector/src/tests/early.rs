//! What overtakes P's own scheduler, when it was given up before the lease came.

use super::support::*;
use crate::message::{Answer, Body, Message, Request};
use crate::*;

/// What a worker answers to requests that come before the lease, once it is there.
fn answers_to_early(asked: &[(Peer, Request)]) -> Vec<Answer> {
    let mut p = worker(P, 0);
    let claim = claim_of(1, D);
    for (from, request) in asked {
        let message = asks(*from, &claim, request.clone());
        p.handle(secs(0), Input::Message { from: *from, message });
    }
    let pending = actions(&mut p);
    assert_eq!(pending.len(), asked.len());
    p.handle(secs(1), Input::Lease(lease(1)));
    let freed = Event::Freed { lease: lease_id(1), why: Why::Released };
    assert_eq!(events(&mut p), [freed]);
    let answer = |action| match action {
        Action::Send(Message { body: Body::Answer(answer), .. }) => answer,
        other => panic!("nothing is granted, nothing to revoke: {other:?}"),
    };
    actions(&mut p).into_iter().map(answer).collect()
}

/// A doubled or delayed frame.
#[test]
fn a_claim_that_comes_after_its_release_is_not_kept() {
    let asked = [(D, to_claim(0, &[0])), (D, Request::Release), (D, to_claim(0, &[0]))];
    assert_eq!(answers_to_early(&asked), [Answer::Released]);
}

/// Ranks of one engine speak on their own channels; one of them has given up.
#[test]
fn a_release_by_one_rank_goes_before_the_claim_of_another() {
    let asked = [(D, to_claim(0, &[0, 1])), (D1, Request::Release)];
    assert_eq!(answers_to_early(&asked), [Answer::Released, Answer::Over]);
}
