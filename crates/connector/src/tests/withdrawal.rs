//! An engine that takes its memory away.

use super::support::*;
use crate::message::{Answer, Body};
use crate::*;

fn answered(worker: &mut Worker) -> Vec<Answer> {
    let answer = |action| match action {
        Action::Send(message) => match message.body {
            Body::Answer(answer) => Some(answer),
            Body::Request(_) => None,
        },
        _ => None,
    };
    actions(worker).into_iter().filter_map(answer).collect()
}

fn claims(worker: &mut Worker, claim: &ClaimId) {
    let message = asks(D, claim, to_claim(0, &[0]));
    worker.handle(secs(0), Input::Message { from: D, message });
}

/// Nobody may read any more before the memory goes: the tokens are revoked first.
#[test]
fn p_withdraws_when_the_last_token_is_revoked() {
    let mut p = worker(P, 0);
    let claim = claim_of(1, D);
    p.handle(secs(0), Input::Lease(lease(1)));
    claims(&mut p, &claim);
    let granted = answered(&mut p);
    let [Answer::Granted(grant)] = &granted[..] else { panic!("{granted:?}") };
    p.handle(secs(1), Input::Withdraw);
    assert_eq!(actions(&mut p), [Action::Revoke { token: grant.token }]);
    assert_eq!(events(&mut p), []);
    p.handle(secs(2), Input::Revoked(grant.token));
    let freed = Event::Freed { lease: lease_id(1), why: Why::Over };
    assert_eq!(events(&mut p), [freed, Event::Withdrawn]);
    assert!(at_rest(&p));
    // What is promised meanwhile cannot be kept.
    p.handle(secs(3), Input::Lease(lease(2)));
    assert_eq!(events(&mut p), [Event::Freed { lease: lease_id(2), why: Why::Over }]);
    p.handle(secs(4), Input::Restored);
    p.handle(secs(4), Input::Lease(lease(3)));
    claims(&mut p, &claim_of(3, D));
    assert!(matches!(&answered(&mut p)[..], [Answer::Granted(_)]));
}

#[test]
fn d_withdraws_when_the_last_read_has_ended() {
    let mut d = worker(D, 0);
    let claim = claim_of(1, D);
    start(&mut d, secs(0), claim.clone(), sources(&[0]));
    let message = answers(D, &claim, Answer::Granted(grant()));
    d.handle(secs(0), Input::Message { from: P, message });
    d.handle(secs(0), Input::Read { claim: claim.clone(), peers: [P.agent].into() });
    events(&mut d);
    d.handle(secs(1), Input::Withdraw);
    let again = Fetch { claim: claim.clone(), shared: None, prompt: prompt(), address: address(1) };
    d.handle(secs(1), Input::Fetch(again));
    assert_eq!(events(&mut d), [], "not even where it is asked for again");
    let how = Err(ReadFailure::Stopped);
    d.handle(secs(2), Input::ReadEnded { claim: claim.clone(), peer: P.agent, how });
    let failed = Event::Failed { claim, failure: Failure::Withdrawn };
    assert_eq!(events(&mut d), [failed, Event::Withdrawn]);
    let fetch =
        Fetch { claim: claim_of(2, D), shared: None, prompt: prompt(), address: address(1) };
    d.handle(secs(3), Input::Fetch(fetch));
    let refused = Event::Failed { claim: claim_of(2, D), failure: Failure::Withdrawn };
    assert_eq!(events(&mut d), [refused]);
    assert!(at_rest(&d));
}

#[test]
fn at_rest_it_is_said_at_once() {
    let mut worker = worker(P, 0);
    worker.handle(secs(0), Input::Withdraw);
    worker.handle(secs(0), Input::Withdraw);
    assert_eq!(events(&mut worker), [Event::Withdrawn, Event::Withdrawn], "once each time");
}
