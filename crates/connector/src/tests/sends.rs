//! P's rules, each bound at its last moment and at its end.

use super::support::*;
use crate::message::{Answer, Body, Message, Request};
use crate::*;

/// A prefill worker whose transport revokes at once unless told otherwise.
struct Prefill {
    worker: Worker,
    /// Tokens that the transport still sends under.
    sending: Vec<ReadToken>,
    slow: bool,
}

impl Prefill {
    fn new() -> Self {
        Self { worker: worker(P, 0), sending: Vec::new(), slow: false }
    }

    /// One that holds lease 1 since the time 0.
    fn with_lease() -> Self {
        let mut p = Self::new();
        p.handle(secs(0), Input::Lease(lease(1)));
        p
    }

    fn handle(&mut self, now: Time, input: Input) -> Vec<Answer> {
        self.worker.handle(now, input);
        self.carry_out(now)
    }

    /// Does what the worker wants, and gives the answers that it sent.
    fn carry_out(&mut self, now: Time) -> Vec<Answer> {
        let mut sent = Vec::new();
        while let Some(action) = self.worker.poll_action() {
            match action {
                Action::Send(Message { body: Body::Answer(answer), .. }) => sent.push(answer),
                Action::Revoke { token } if !self.slow => {
                    self.worker.handle(now, Input::Revoked(token));
                }
                Action::Revoke { token } => self.sending.push(token),
                Action::Grant { .. } => {}
                other => panic!("not P's: {other:?}"),
            }
        }
        sent
    }

    fn ask(&mut self, now: Time, from: Peer, request: Request) -> Answer {
        self.ask_about(now, from, &claim_of(1, from), request)
    }

    fn ask_about(&mut self, now: Time, from: Peer, claim: &ClaimId, request: Request) -> Answer {
        let message = asks(from, claim, request);
        let mut sent = self.handle(now, Input::Message { from, message });
        assert_eq!(sent.len(), 1, "each request has one answer");
        sent.remove(0)
    }

    fn claim(&mut self, now: Time, from: Peer) -> Answer {
        self.ask(now, from, to_claim(0, &[0]))
    }

    /// How lease 1 ended by now.
    fn freed(&mut self, now: Time) -> Option<Why> {
        self.worker.handle_timeout(now);
        self.carry_out(now);
        events(&mut self.worker).into_iter().find_map(|event| match event {
            Event::Freed { lease, why } if lease == lease_id(1) => Some(why),
            _ => None,
        })
    }
}

fn renewed(left: u64) -> Answer {
    Answer::Renewed { left: secs(left) }
}

#[test]
fn a_grant_names_everything() {
    let mut p = Prefill::with_lease();
    let Answer::Granted(first) = p.claim(secs(3), D) else { panic!("granted") };
    assert_eq!((first.prompt, first.left), (prompt(), secs(20)));
    assert_eq!(first.tables, lease(1).tables);
    let Answer::Granted(again) = p.claim(secs(4), D) else { panic!("granted") };
    assert_eq!(again, first, "the same claim twice counts once");
    let Answer::Granted(other) = p.claim(secs(4), E) else { panic!("granted") };
    assert_ne!(other.token, first.token);
    assert_eq!(p.worker.counts().claims, 2);
}

#[test]
fn transport_is_told_before_the_reader() {
    let mut p = worker(P, 0);
    p.handle(secs(0), Input::Lease(lease(1)));
    let message = asks(D, &claim_of(1, D), to_claim(0, &[0]));
    p.handle(secs(0), Input::Message { from: D, message });
    let actions = actions(&mut p);
    let [Action::Grant { reader, token, tables }, Action::Send(answer)] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((*reader, tables), (D.agent, &lease(1).tables));
    let Body::Answer(Answer::Granted(grant)) = &answer.body else { panic!("{answer:?}") };
    assert_eq!(grant.token, *token);
}

#[test]
fn unclaimed_30_s() {
    let mut p = Prefill::with_lease();
    assert_eq!(p.freed(before(secs(30))), None);
    assert_eq!(p.freed(secs(30)), Some(Why::Over));
    assert!(at_rest(&p.worker));
}

#[test]
fn claim_lives_20_s_after_the_last_answered_renewal() {
    let mut p = Prefill::with_lease();
    p.claim(secs(5), D);
    assert_eq!(p.ask(before(secs(25)), D, Request::Renew), renewed(20));
    assert_eq!(p.ask(secs(26), D, Request::Renew), renewed(20));
    assert_eq!(p.ask(before(secs(46)), D, Request::Done), Answer::Alive);
    assert_eq!(p.freed(before(secs(46))), Some(Why::Satisfied));
}

#[test]
fn nothing_late_revives_a_claim() {
    for late in [Request::Renew, Request::Done, to_claim(0, &[0])] {
        let mut p = Prefill::with_lease();
        p.claim(secs(5), D);
        assert_eq!(p.ask(secs(25), D, late), Answer::Over);
        assert_eq!(p.worker.counts().claims, 0);
        assert_eq!(p.worker.counts().refused, 1);
    }
}

#[test]
fn a_lapse_leaves_the_lease_as_it_was() {
    let mut p = Prefill::with_lease();
    p.claim(secs(5), D);
    assert_eq!(p.freed(secs(25)), None);
    assert_eq!(p.worker.counts(), Counts { leases: 1, ..Counts::default() });
    assert!(matches!(p.claim(before(secs(55)), E), Answer::Granted(_)));
    assert_eq!(p.ask(secs(56), E, Request::Done), Answer::Alive);
    assert_eq!(p.freed(secs(56)), Some(Why::Satisfied));
}

#[test]
fn no_living_claim_for_30_s_after_a_lapse() {
    let mut p = Prefill::with_lease();
    p.claim(secs(5), D);
    assert_eq!(p.freed(before(secs(55))), None);
    assert_eq!(p.freed(secs(55)), Some(Why::Over));

    let mut asleep = Prefill::with_lease();
    asleep.claim(secs(5), D);
    assert_eq!(asleep.freed(secs(55)), Some(Why::Over), "also when woken only then");
}

#[test]
fn a_lapse_after_a_release_frees() {
    let mut p = Prefill::with_lease();
    p.claim(secs(1), D);
    p.claim(secs(2), E);
    assert_eq!(p.ask(secs(3), D, Request::Release), Answer::Released);
    assert_eq!(p.freed(before(secs(22))), None, "the other claim lives");
    assert_eq!(p.freed(secs(22)), Some(Why::Released));
}

#[test]
fn nothing_is_older_than_600_s() {
    let mut p = Prefill::with_lease();
    p.claim(secs(10), D);
    for now in (20..=590).step_by(10) {
        assert_eq!(p.ask(secs(now), D, Request::Renew), renewed(20), "at {now} s");
    }
    assert_eq!(
        p.ask(secs(600), D, Request::Renew),
        renewed(10),
        "the lease is over, not the claim"
    );
    assert_eq!(p.claim(secs(600), E), Answer::Over, "a lease that is over takes no claim");
    assert_eq!(
        p.ask(before(secs(610)), D, Request::Renew),
        Answer::Renewed { left: Time::from_nanos(1) }
    );
    assert_eq!(p.freed(secs(610)), Some(Why::Over));
}

#[test]
fn done_counts_once_per_reader() {
    let mut p = Prefill::with_lease();
    p.ask(secs(1), D, to_claim(0, &[0, 1]));
    p.ask(secs(1), D1, to_claim(1, &[0, 1]));
    assert_eq!(p.ask(secs(2), D, Request::Done), Answer::Alive);
    assert_eq!(p.ask(secs(2), D, Request::Done), Answer::Alive);
    assert_eq!(p.freed(secs(2)), None);
    assert_eq!(p.worker.counts().tokens, 1, "who is done reads no more");
    assert_eq!(p.ask(secs(3), D, Request::Renew), Answer::Over, "nor renews");
    assert_eq!(p.ask(secs(3), D1, Request::Done), Answer::Alive);
    assert_eq!(p.freed(secs(3)), Some(Why::Satisfied));
}

#[test]
fn a_reader_that_never_claims_keeps_the_claim_from_its_end() {
    let mut p = Prefill::with_lease();
    p.ask(secs(1), D, to_claim(0, &[0, 1]));
    assert_eq!(p.ask(secs(2), D, Request::Done), Answer::Alive);
    p.claim(secs(3), E);
    assert_eq!(p.ask(secs(4), E, Request::Done), Answer::Alive);
    assert_eq!(p.freed(before(secs(21))), None, "satisfied, but one claim lives");
    assert_eq!(p.freed(secs(21)), Some(Why::Satisfied));
}

#[test]
fn who_may_read() {
    let mut p = Prefill::with_lease();
    assert_eq!(p.ask(secs(0), D, to_claim(2, &[0, 1])), Answer::Over, "not in its own set");
    p.ask(secs(0), D, to_claim(0, &[0, 1]));
    assert_eq!(p.ask(secs(0), D1, to_claim(1, &[1])), Answer::Over, "another set");
    assert_eq!(p.ask(secs(0), D1, to_claim(0, &[0, 1])), Answer::Over, "a rank that is taken");
    assert_eq!(p.ask(secs(0), D, to_claim(1, &[0, 1])), Answer::Over, "two ranks for one worker");
    assert_eq!(p.ask(secs(0), D1, Request::Done), Answer::Over, "no reader");
    assert_eq!(p.ask(secs(0), D1, Request::Renew), Answer::Over, "no reader");
    assert!(matches!(p.ask(secs(0), D1, to_claim(1, &[0, 1])), Answer::Granted(_)));
}

#[test]
fn empty_reader_set_frees() {
    let mut p = Prefill::with_lease();
    assert_eq!(p.ask(secs(1), D, to_claim(0, &[])), Answer::Released);
    assert_eq!(p.freed(secs(1)), Some(Why::Released));
    assert!(at_rest(&p.worker));
}

#[test]
fn a_release_before_the_claim_ends_it() {
    let mut p = Prefill::with_lease();
    p.claim(secs(0), E);
    assert_eq!(p.ask(secs(1), D1, Request::Release), Answer::Released);
    assert_eq!(p.ask(secs(1), D, to_claim(0, &[0, 1])), Answer::Over);
    assert_eq!(p.ask(secs(1), E, Request::Done), Answer::Alive);
    assert_eq!(p.freed(secs(1)), Some(Why::Released));
}

#[test]
fn two_claims_of_one_lease() {
    let mut p = Prefill::with_lease();
    p.claim(secs(0), D);
    p.claim(secs(0), E);
    assert_eq!(p.ask(secs(1), D, Request::Done), Answer::Alive);
    assert_eq!(p.freed(secs(1)), None, "the other still reads");
    assert_eq!(p.ask(secs(2), E, Request::Done), Answer::Alive);
    assert_eq!(p.freed(secs(2)), Some(Why::Satisfied));
}

#[test]
fn pending_2_s_then_unknown() {
    let mut p = Prefill::new();
    assert_eq!(p.claim(secs(1), D), Answer::Pending);
    assert_eq!(p.claim(secs(2), D), Answer::Pending, "asking again does not start it again");
    p.worker.handle_timeout(before(secs(3)));
    assert_eq!(p.carry_out(secs(3)), []);
    p.worker.handle_timeout(secs(3));
    assert_eq!(p.carry_out(secs(3)), [Answer::Unknown]);
    assert!(at_rest(&p.worker));
}

#[test]
fn a_lease_answers_those_who_came_before_it() {
    let mut p = Prefill::new();
    assert_eq!(p.claim(secs(0), D), Answer::Pending);
    assert_eq!(p.claim(secs(1), E), Answer::Pending);
    assert_eq!(p.ask(secs(1), E, Request::Release), Answer::Pending);
    let now = before(secs(2));
    let answers = p.handle(now, Input::Lease(lease(1)));
    assert!(matches!(&answers[..], [Answer::Granted(_), Answer::Released]), "{answers:?}");
    assert_eq!(p.ask(now, D, Request::Done), Answer::Alive);
    assert_eq!(p.freed(now), Some(Why::Released));
    assert!(at_rest(&p.worker));
}

#[test]
fn garbage_costs_only_its_sender() {
    let mut p = Prefill::new();
    for nonce in 1000..1256 {
        assert_eq!(
            p.ask_about(secs(0), D, &claim_of(nonce, D), to_claim(0, &[0])),
            Answer::Pending
        );
    }
    assert_eq!(p.claim(secs(0), D), Answer::Unknown, "no room left for this peer");
    assert_eq!(p.claim(secs(0), E), Answer::Pending);
    p.handle(secs(1), Input::PeerLost(D.agent));
    assert_eq!(p.worker.counts().early, 1);
}

#[test]
fn a_lease_takes_64_claims() {
    let mut p = Prefill::with_lease();
    let mut ask = |name: u32| {
        let claim = ClaimId { request: request(&name.to_string()), ..claim_of(1, D) };
        p.ask_about(secs(0), D, &claim, to_claim(0, &[0]))
    };
    assert!((0..64).all(|name| matches!(ask(name), Answer::Granted(_))));
    assert_eq!(ask(64), Answer::Over);
    assert!(matches!(ask(63), Answer::Granted(_)));
}

#[test]
fn other_lives_are_answered_and_change_nothing() {
    let mut p = Prefill::with_lease();
    let older = LeaseId { engine: EngineEpoch(0), ..lease_id(1) };
    let claim = ClaimId { lease: older, ..claim_of(1, D) };
    assert_eq!(p.ask_about(secs(0), D, &claim, to_claim(0, &[0])), Answer::Unknown);

    let to_older = Message { to: AgentEpoch(0), ..asks(D, &claim_of(1, D), Request::Release) };
    let answer = p.handle(secs(0), Input::Message { from: D, message: to_older });
    assert_eq!(answer, [Answer::Unknown]);

    // Who speaks for another gets no answer at all.
    let message = asks(D, &claim_of(1, D), Request::Release);
    assert_eq!(p.handle(secs(0), Input::Message { from: D1, message }), []);
    let message = asks(E, &claim_of(1, D), Request::Release);
    assert_eq!(p.handle(secs(0), Input::Message { from: E, message }), []);

    let expected = Counts { leases: 1, refused: 2, misdirected: 4, ..Counts::default() };
    assert_eq!(p.worker.counts(), expected);
}

#[test]
fn what_is_unknown_is_over() {
    let mut p = Prefill::new();
    assert_eq!(p.ask(secs(0), D, Request::Renew), Answer::Over);
    assert_eq!(p.ask(secs(0), D, Request::Done), Answer::Over);
    assert!(at_rest(&p.worker));
}

#[test]
fn a_lost_reader_ends_its_claim_and_no_other() {
    let mut p = Prefill::with_lease();
    p.ask(secs(1), D, to_claim(0, &[0, 1]));
    p.ask(secs(1), D1, to_claim(1, &[0, 1]));
    p.claim(secs(1), E);
    p.handle(secs(2), Input::PeerLost(D.agent));
    assert_eq!(p.ask(secs(2), D1, Request::Done), Answer::Over);
    p.handle(secs(3), Input::PeerLost(E.agent));
    assert_eq!(p.freed(before(secs(33))), None);
    assert_eq!(p.freed(secs(33)), Some(Why::Over));
}

#[test]
fn losing_a_reader_that_is_done_changes_nothing() {
    let mut p = Prefill::with_lease();
    p.ask(secs(1), D, to_claim(0, &[0, 1]));
    p.ask(secs(1), D1, to_claim(1, &[0, 1]));
    p.ask(secs(2), D, Request::Done);
    p.handle(secs(3), Input::PeerLost(D.agent));
    assert_eq!(p.ask(secs(4), D1, Request::Done), Answer::Alive);
    assert_eq!(p.freed(secs(4)), Some(Why::Satisfied));
}

#[test]
fn blocks_are_free_only_when_every_token_is_revoked() {
    let mut p = Prefill::with_lease();
    p.slow = true;
    p.claim(secs(0), D);
    p.claim(secs(0), E);
    p.ask(secs(1), D, Request::Release);
    p.ask(secs(1), E, Request::Release);
    let tokens = std::mem::take(&mut p.sending);
    assert_eq!(tokens.len(), 2);
    assert_eq!(p.freed(secs(10_000)), None, "no clock frees what is being sent");
    assert_eq!(p.claim(secs(10_000), D1), Answer::Over);
    p.handle(secs(10_000), Input::Revoked(tokens[0]));
    p.handle(secs(10_000), Input::Revoked(tokens[0]));
    assert_eq!(p.freed(secs(10_000)), None);
    p.handle(secs(10_000), Input::Revoked(tokens[1]));
    assert_eq!(p.freed(secs(10_000)), Some(Why::Released));
    assert!(at_rest(&p.worker));
}

#[test]
fn time_never_runs_back() {
    let mut p = Prefill::new();
    p.worker.handle_timeout(secs(100));
    p.handle(secs(5), Input::Lease(lease(1)));
    assert_eq!(p.freed(before(secs(130))), None);
    assert_eq!(p.freed(secs(130)), Some(Why::Over));
}
