//! How a decode worker gets to know prefill engines.

use super::support::*;
use crate::message::{Body, Request};
use crate::*;

fn fetch(nonce: u64, port: u16) -> Input {
    Input::Fetch(Fetch {
        claim: claim_of(nonce, D),
        shared: None,
        prompt: prompt(),
        address: address(port),
    })
}

fn greeted(engine: EngineEpoch, port: u16) -> Input {
    let acquaintance = Acquaintance { engine, sources: sources(&[0]) };
    Input::Greeted { address: address(port), acquaintance }
}

fn not_greeted(port: u16) -> Input {
    Input::NotGreeted { address: address(port), failure: Failure::Handshake }
}

fn greet(port: u16) -> Action {
    Action::Greet { address: address(port) }
}

fn failed(nonce: u64, failure: Failure) -> Event {
    Event::Failed { claim: claim_of(nonce, D), failure }
}

/// The leases that are claimed.
fn claimed(worker: &mut Worker) -> Vec<u64> {
    let claim = |action| match action {
        Action::Send(message) => {
            let claims = matches!(message.body, Body::Request(Request::Claim { .. }));
            claims.then_some(message.claim.lease.nonce.0)
        }
        _ => None,
    };
    actions(worker).into_iter().filter_map(claim).collect()
}

#[test]
fn sixteen_requests_share_one_handshake() {
    let mut d = worker(D, 0);
    (0..16).for_each(|nonce| d.handle(secs(0), fetch(nonce, 1)));
    assert_eq!(actions(&mut d), [greet(1)]);
    assert_eq!(d.counts().receives, 16);
    d.handle(secs(1), greeted(P.engine, 1));
    assert_eq!(claimed(&mut d), (0..16).collect::<Vec<_>>());
    d.handle(secs(2), fetch(16, 1));
    assert_eq!(claimed(&mut d), [16], "known by now");
    assert_eq!(d.counts().engines, 1);
}

#[test]
fn engines_are_greeted_side_by_side() {
    let mut d = worker(D, 0);
    d.handle(secs(0), fetch(1, 1));
    d.handle(secs(0), fetch(2, 2));
    assert_eq!(actions(&mut d), [greet(1), greet(2)]);
    d.handle(secs(0), greeted(P.engine, 2));
    assert_eq!(claimed(&mut d), [2]);
}

/// All that wait get the same answer, and the next one tries again at once.
#[test]
fn a_failed_handshake_fails_those_that_wait() {
    let mut d = worker(D, 0);
    d.handle(secs(0), fetch(1, 1));
    d.handle(secs(0), fetch(2, 1));
    d.handle(secs(1), not_greeted(1));
    let both = [failed(1, Failure::Handshake), failed(2, Failure::Handshake)];
    assert_eq!(events(&mut d), both);
    assert_eq!(actions(&mut d), [greet(1)]);
    d.handle(secs(1), fetch(3, 1));
    assert_eq!(actions(&mut d), [greet(1)]);
    d.handle(secs(1), greeted(P.engine, 1));
    assert_eq!(claimed(&mut d), [3]);
}

#[test]
fn failures_in_a_row_are_answered_from_memory_for_1_2_4_s() {
    let mut d = worker(D, 0);
    let mut now = secs(0);
    for back_off in [0, 1, 2, 4, 4] {
        d.handle(now, fetch(1, 1));
        assert_eq!(actions(&mut d), [greet(1)], "after {now:?}");
        d.handle(now, not_greeted(1));
        assert_eq!(events(&mut d), [failed(1, Failure::Handshake)]);
        if back_off > 0 {
            d.handle(before(now + secs(back_off)), fetch(2, 1));
            assert_eq!(events(&mut d), [failed(2, Failure::Handshake)]);
            assert_eq!(actions(&mut d), []);
        }
        now += secs(back_off);
    }
    d.handle_timeout(now + secs(4));
    assert!(at_rest(&d), "an engine that nobody asks for is forgotten");
    d.handle(now + secs(4), fetch(1, 1));
    d.handle(now + secs(4), not_greeted(1));
    d.handle(now + secs(4), fetch(3, 1));
    assert_eq!(actions(&mut d), [greet(1), greet(1)], "the first failure again");
}

#[test]
fn a_handshake_within_10_s() {
    let mut d = worker(D, 0);
    d.handle(secs(0), fetch(1, 1));
    d.handle_timeout(before(secs(10)));
    assert_eq!(events(&mut d), []);
    d.handle_timeout(secs(10));
    assert_eq!(events(&mut d), [failed(1, Failure::NoAnswer)]);
    d.handle(secs(12), fetch(2, 1));
    d.handle(secs(13), fetch(3, 1));
    assert_eq!(actions(&mut d), [greet(1)], "the same handshake goes on");
    assert_eq!(d.poll_timeout(), Some(secs(22)), "for who comes later as long");
    d.handle_timeout(secs(22));
    assert_eq!(events(&mut d), [failed(2, Failure::NoAnswer), failed(3, Failure::NoAnswer)]);
    d.handle(secs(23), fetch(4, 1));
    d.handle(secs(24), greeted(P.engine, 1));
    assert_eq!(claimed(&mut d), [4]);
}

/// Parameters of another life must not make an engine absent that is there.
#[test]
fn a_known_engine_stays_known_while_another_life_of_it_is_looked_for() {
    let mut d = worker(D, 0);
    d.handle(secs(0), fetch(1, 1));
    d.handle(secs(0), greeted(P.engine, 1));
    actions(&mut d);
    let mut stale = claim_of(2, D);
    stale.lease.engine = EngineEpoch(9);
    let (prompt, at) = (prompt(), address(1));
    d.handle(
        secs(1),
        Input::Fetch(Fetch { claim: stale.clone(), shared: None, prompt, address: at }),
    );
    assert_eq!(actions(&mut d), [greet(1)]);
    d.handle(secs(1), fetch(3, 1));
    assert_eq!(claimed(&mut d), [3], "meanwhile");
    d.handle(secs(1), not_greeted(1));
    let failure = Failure::Handshake;
    assert_eq!(events(&mut d), [Event::Failed { claim: stale, failure }]);
    d.handle(secs(1), fetch(4, 1));
    assert_eq!(claimed(&mut d), [4], "and after it");
}

/// Whatever parameters call an engine, it is known by where it answers.
#[test]
fn another_name_is_no_other_engine() {
    let mut d = worker(D, 0);
    d.handle(secs(0), fetch(1, 1));
    d.handle(secs(0), greeted(P.engine, 1));
    actions(&mut d);
    let named = crate::params::Address { engine_id: "x".into(), tp_size: 9, ..address(1) };
    let fetch = Fetch { claim: claim_of(2, D), shared: None, prompt: prompt(), address: named };
    d.handle(secs(0), Input::Fetch(fetch));
    assert_eq!(claimed(&mut d), [2]);
}

#[test]
fn the_first_of_too_many_engines_is_forgotten() {
    let mut d = worker(D, 0);
    for port in 1..=4097 {
        d.handle(secs(0), fetch(port.into(), port));
        d.handle(secs(0), greeted(P.engine, port));
    }
    actions(&mut d);
    assert_eq!(d.counts().engines, 4096);
    d.handle(secs(0), fetch(9999, 1));
    assert_eq!(actions(&mut d), [greet(1)]);
}

#[test]
fn given_up_before_the_engine_is_known() {
    let mut d = worker(D, 0);
    d.handle(secs(0), fetch(1, 1));
    d.handle(secs(0), Input::Abort(claim_of(1, D)));
    assert_eq!(events(&mut d), [Event::Released { claim: claim_of(1, D) }]);
    d.handle(secs(0), greeted(P.engine, 1));
    assert_eq!(claimed(&mut d), [0_u64; 0]);
    assert!(at_rest(&d));
}

/// The parameters name a life of the engine: another one cannot have what they promise.
#[test]
fn another_life_of_the_engine() {
    let mut d = worker(D, 0);
    d.handle(secs(0), fetch(1, 1));
    d.handle(secs(0), greeted(EngineEpoch(9), 1));
    assert_eq!(events(&mut d), [failed(1, Failure::Unknown)]);
    actions(&mut d);
    d.handle(before(secs(1)), fetch(2, 1));
    assert_eq!(events(&mut d), [failed(2, Failure::Unknown)], "this was just looked at");
    d.handle(secs(1), fetch(3, 1));
    assert_eq!(actions(&mut d), [greet(1)], "the engine may have been started anew");
    d.handle(secs(1), greeted(P.engine, 1));
    assert_eq!(claimed(&mut d), [3]);
}

#[test]
fn a_lost_peer_is_greeted_anew() {
    let mut d = worker(D, 0);
    d.handle(secs(0), fetch(1, 1));
    d.handle(secs(0), greeted(P.engine, 1));
    actions(&mut d);
    d.handle(secs(0), Input::PeerLost(P.agent));
    assert_eq!(events(&mut d), [failed(1, Failure::PeerLost)]);
    assert_eq!(d.counts().engines, 0);
    d.handle(secs(0), fetch(2, 1));
    assert_eq!(actions(&mut d), [greet(1)]);
}

/// Else P would keep the blocks of each request that was rejected on a cold channel for 30 s.
#[test]
fn p_is_told_of_requests_that_ended_before_it_was_known() {
    let mut d = worker(D, 0);
    (1..=3).for_each(|nonce| d.handle(secs(0), fetch(nonce, 1)));
    d.handle(secs(5), fetch(4, 2));
    d.handle(secs(5), Input::Abort(claim_of(2, D)));
    assert_eq!(events(&mut d), [Event::Released { claim: claim_of(2, D) }]);
    d.handle_timeout(secs(10));
    let late = |nonce| failed(nonce, Failure::NoAnswer);
    assert_eq!(events(&mut d), [late(1), late(3)]);
    assert_eq!(actions(&mut d), [greet(1), greet(2)]);
    d.handle(secs(11), greeted(P.engine, 1));
    let released = [2, 1, 3].map(|nonce| {
        let claim = claim_of(nonce, D);
        Action::Send(asks(D, &claim, Request::Release))
    });
    assert_eq!(actions(&mut d), released);
    // Another life of it made no such promise.
    d.handle(secs(11), Input::Abort(claim_of(4, D)));
    d.handle(secs(11), greeted(E.engine, 2));
    assert_eq!(actions(&mut d), []);
    assert!(at_rest(&d));
}

/// Memory for engines is limited: for one too many the one that was met first goes, also at the
/// driver, and is greeted anew when it is asked for.
#[test]
fn of_4097_engines_the_first_is_forgotten() {
    let mut d = worker(D, 0);
    for port in 1..=4097 {
        d.handle(secs(0), fetch(port.into(), port));
        assert_eq!(actions(&mut d), [greet(port)]);
        d.handle(secs(0), greeted(P.engine, port));
        let ranks = address(1).ranks().cloned().collect();
        let forgotten = actions(&mut d).contains(&Action::Forget { ranks });
        assert_eq!(forgotten, port == 4097);
    }
    assert_eq!(d.counts().engines, 4096);
    d.handle(secs(0), fetch(5000, 1));
    assert_eq!(actions(&mut d), [greet(1)]);
    d.handle(secs(0), fetch(5001, 2));
    assert_eq!(claimed(&mut d), [5001]);
}
