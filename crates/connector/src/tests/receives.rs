//! D's rules, each bound at its last moment and at its end.

use std::collections::{BTreeMap, BTreeSet};

use super::support::*;
use crate::message::{Answer, Body, Grant, Message, Request};
use crate::*;

/// What was said to whom.
type Sent = Vec<(AgentEpoch, Request)>;

struct Decode {
    worker: Worker,
}

/// Another rank of the engine of `P`.
const P1: AgentEpoch = AgentEpoch(11);

impl Decode {
    /// One that has claimed at P at the time 0.
    fn claiming() -> Self {
        Self::claiming_at(sources(&[0])).0
    }

    fn claiming_at(sources: BTreeMap<AgentEpoch, BTreeSet<Rank>>) -> (Self, Sent) {
        let mut d = Self { worker: worker(D, 0) };
        start(&mut d.worker, secs(0), claim(), sources);
        let sent = d.sent();
        (d, sent)
    }

    fn reading() -> Self {
        let mut d = Self::claiming();
        d.answer(secs(0), Answer::Granted(grant()));
        assert!(matches!(&events(&mut d.worker)[..], [Event::Offered { .. }]));
        d.read(secs(0), &[P.agent]);
        d
    }

    /// The engine has blocks, into which these ranks are read.
    fn read(&mut self, now: Time, peers: &[AgentEpoch]) {
        let (claim, peers) = (claim(), peers.iter().copied().collect());
        self.worker.handle(now, Input::Read { claim, peers });
        let reads = actions(&mut self.worker);
        assert!(reads.iter().all(|action| matches!(action, Action::Read { .. })), "{reads:?}");
    }

    /// The read of a rank is complete.
    fn read_done(&mut self, now: Time, peer: AgentEpoch) -> Sent {
        self.handle(now, Input::ReadEnded { claim: claim(), peer, how: Ok(()) })
    }

    /// The read of a rank has failed, or was stopped.
    fn read_failed(&mut self, now: Time, peer: AgentEpoch) -> Sent {
        let how = Err(ReadFailure::Refused);
        self.handle(now, Input::ReadEnded { claim: claim(), peer, how })
    }

    /// One that asked P for a commit at the time 1.
    fn committing() -> Self {
        let mut d = Self::reading();
        assert_eq!(d.read_done(secs(1), P.agent), [(P.agent, Request::Done)]);
        d
    }

    fn handle(&mut self, now: Time, input: Input) -> Sent {
        self.worker.handle(now, input);
        self.sent()
    }

    fn sent(&mut self) -> Sent {
        let sent = actions(&mut self.worker).into_iter().filter_map(|action| match action {
            Action::Send(Message { to, body: Body::Request(request), .. }) => Some((to, request)),
            Action::Cancel { .. } => None,
            other => panic!("not D's: {other:?}"),
        });
        sent.collect()
    }

    fn answer(&mut self, now: Time, answer: Answer) -> Sent {
        self.answer_from(now, P.agent, answer)
    }

    fn answer_from(&mut self, now: Time, agent: AgentEpoch, answer: Answer) -> Sent {
        let message = Message { from: agent, ..answers(D, &claim(), answer) };
        self.handle(now, Input::Message { from: Peer { agent, ..P }, message })
    }

    fn until(&mut self, now: Time) -> Sent {
        self.worker.handle_timeout(now);
        self.sent()
    }

    fn end(&mut self) -> Option<Event> {
        let mut events = events(&mut self.worker);
        assert!(events.len() <= 1, "one end: {events:?}");
        assert_eq!(events.is_empty(), !at_rest(&self.worker));
        events.pop()
    }
}

fn claim() -> ClaimId {
    claim_of(1, D)
}

fn failed(failure: Failure) -> Option<Event> {
    Some(Event::Failed { claim: claim(), failure })
}

fn released() -> Option<Event> {
    Some(Event::Released { claim: claim() })
}

fn received() -> Option<Event> {
    Some(Event::Received { claim: claim() })
}

fn release() -> Sent {
    vec![(P.agent, Request::Release)]
}

#[test]
fn one_hand_off() {
    let (mut d, sent) = Decode::claiming_at(sources(&[0, 1]));
    assert_eq!(sent, [(P.agent, to_claim(0, &[0, 1]))]);
    assert_eq!(d.answer(secs(1), Answer::Granted(Grant { left: secs(9), ..grant() })), []);
    let offer =
        Offer { peer: P.agent, token: ReadToken(77), left: secs(9), tables: grant().tables };
    assert_eq!(events(&mut d.worker), [Event::Offered { claim: claim(), offers: vec![offer] }]);
    d.read(secs(2), &[P.agent]);
    assert_eq!(d.read_done(secs(2), P.agent), [(P.agent, Request::Done)]);
    assert_eq!(d.end(), None);
    assert_eq!(d.answer(secs(3), Answer::Alive), []);
    assert_eq!(d.end(), received());
}

#[test]
fn refused_before_a_byte_is_read() {
    let theirs = |prompt| Answer::Granted(Grant { prompt, ..grant() });
    let longer = PromptDigest { valid: 4, ..prompt() };
    let other = PromptDigest { sha256: [0; 32], ..prompt() };
    for (prompt, failure) in
        [(longer, Failure::Valid { ours: 3, theirs: 4 }), (other, Failure::Digest)]
    {
        let mut d = Decode::claiming();
        assert_eq!(d.answer(secs(0), theirs(prompt)), release());
        assert_eq!(d.end(), failed(failure));
    }
}

#[test]
fn an_answer_within_5_s() {
    let mut d = Decode::claiming();
    assert_eq!(d.answer(secs(0), Answer::Pending), []);
    assert_eq!(d.until(before(secs(5))), []);
    assert_eq!(d.end(), None);
    assert_eq!(d.until(secs(5)), release());
    assert_eq!(d.end(), failed(Failure::NoAnswer));
}

#[test]
fn a_commit_within_5_s() {
    let mut d = Decode::committing();
    assert_eq!(d.until(before(secs(6))), [], "no renewal after done");
    assert_eq!(d.end(), None);
    assert_eq!(d.until(secs(6)), release());
    assert_eq!(d.end(), failed(Failure::NoAnswer));
}

#[test]
fn no_lease_no_reads() {
    for (answer, failure) in [(Answer::Unknown, Failure::Unknown), (Answer::Over, Failure::Over)] {
        let mut d = Decode::claiming();
        assert_eq!(d.answer(secs(1), answer), []);
        assert_eq!(d.end(), failed(failure));
    }
}

#[test]
fn over_at_the_commit() {
    let mut d = Decode::committing();
    assert_eq!(d.answer(secs(2), Answer::Over), []);
    assert_eq!(d.end(), failed(Failure::Over));
}

#[test]
fn renewed_every_5_s() {
    let mut d = Decode::reading();
    let renew = [(P.agent, Request::Renew)];
    assert_eq!(d.until(before(secs(5))), []);
    assert_eq!(d.until(secs(5)), renew);
    d.answer(secs(5), Answer::Renewed { left: secs(20) });
    assert_eq!(d.until(before(secs(10))), []);
    assert_eq!(d.until(secs(10)), renew);
}

#[test]
fn silent_until_the_claim_has_lapsed() {
    let mut d = Decode::reading();
    d.until(secs(5));
    d.answer(secs(5), Answer::Renewed { left: secs(20) });
    d.until(before(secs(25)));
    assert_eq!(d.worker.counts().receives, 1);
    assert_eq!(d.until(secs(25)), release());
    assert_eq!(events(&mut d.worker), [], "reads may still touch the blocks");
    d.until(secs(100_000));
    assert_eq!(events(&mut d.worker), [], "and no clock says that they do not");
    d.read_failed(secs(100_000), P.agent);
    assert_eq!(d.end(), failed(Failure::NoAnswer));
}

#[test]
fn reading_ends_after_600_s() {
    let mut d = Decode::reading();
    for now in (5..600).step_by(5) {
        d.until(secs(now));
        d.answer(secs(now), Answer::Renewed { left: secs(u64::MAX) });
    }
    d.until(before(secs(600)));
    assert_eq!(d.worker.poll_timeout(), Some(secs(600)));
    assert_eq!(d.until(secs(600)), release());
    assert_eq!(d.worker.poll_timeout(), None);
}

#[test]
fn abort_in_each_state() {
    let mut d = Decode::claiming();
    assert_eq!(d.handle(secs(0), Input::Abort(claim())), release());
    assert_eq!(d.end(), released());
    assert_eq!(d.answer(secs(1), Answer::Granted(grant())), [], "too late");
    assert_eq!(events(&mut d.worker), []);

    let mut d = Decode::reading();
    d.worker.handle(secs(1), Input::Abort(claim()));
    let stop = Action::Cancel { claim: claim(), peer: P.agent };
    let release_first = Action::Send(asks(D, &claim(), Request::Release));
    assert_eq!(actions(&mut d.worker), [release_first, stop]);
    assert_eq!(events(&mut d.worker), []);
    d.handle(secs(2), Input::Abort(claim()));
    assert_eq!(d.read_failed(secs(2), P.agent), []);
    assert_eq!(d.end(), released());

    let mut d = Decode::committing();
    assert_eq!(d.handle(secs(1), Input::Abort(claim())), release());
    assert_eq!(d.end(), released());
}

#[test]
fn peer_lost_in_each_state() {
    let lost = Input::PeerLost(P.agent);
    for mut d in [Decode::claiming(), Decode::committing()] {
        assert_eq!(d.handle(secs(1), lost.clone()), []);
        assert_eq!(d.end(), failed(Failure::PeerLost));
    }
    let mut d = Decode::reading();
    assert_eq!(d.handle(secs(1), lost), []);
    assert_eq!(events(&mut d.worker), []);
    d.read_failed(secs(1), P.agent);
    assert_eq!(d.end(), failed(Failure::PeerLost));
}

#[test]
fn reads_that_end_while_they_are_stopped_do_not_count() {
    let mut d = Decode::reading();
    d.answer(secs(1), Answer::Over);
    assert_eq!(d.read_done(secs(1), P.agent), []);
    assert_eq!(d.end(), failed(Failure::Over));
}

#[test]
fn reads_that_fail() {
    let mut d = Decode::reading();
    assert_eq!(d.read_failed(secs(1), P.agent), release());
    assert_eq!(d.end(), failed(Failure::Read(ReadFailure::Refused)));
}

#[test]
fn what_comes_twice_or_out_of_turn_changes_nothing() {
    let mut d = Decode::claiming();
    d.answer(secs(0), Answer::Alive);
    d.answer(secs(0), Answer::Renewed { left: secs(0) });
    d.read_done(secs(0), P.agent);
    d.read_failed(secs(0), P.agent);
    let again = Fetch { claim: claim(), shared: None, prompt: prompt(), address: address(1) };
    assert_eq!(d.handle(secs(0), Input::Fetch(again)), []);
    d.answer(secs(0), Answer::Granted(grant()));
    d.answer(secs(0), Answer::Granted(Grant { token: ReadToken(1), ..grant() }));
    d.answer(secs(0), Answer::Alive);
    assert!(matches!(&events(&mut d.worker)[..], [Event::Offered { .. }]));
    d.read_done(secs(0), P.agent);
    d.read(secs(0), &[P.agent]);
    d.handle(secs(0), Input::Read { claim: claim(), peers: [P1].into() });
    assert_eq!(d.read_done(secs(0), P1), [], "nothing is read there");
    d.read_done(secs(0), P.agent);
    assert_eq!(d.read_done(secs(0), P.agent), []);
    d.answer(secs(0), Answer::Granted(grant()));
    d.answer_from(secs(0), P1, Answer::Over);
    d.answer(secs(0), Answer::Alive);
    assert_eq!(d.end(), received());
}

fn two_ranks() -> BTreeMap<AgentEpoch, BTreeSet<Rank>> {
    let untouched = AgentEpoch(12);
    BTreeMap::from([(P.agent, ranks(&[0])), (P1, ranks(&[0])), (untouched, ranks(&[]))])
}

#[test]
fn two_ranks_of_p_succeed_together() {
    let (mut d, sent) = Decode::claiming_at(two_ranks());
    assert_eq!(sent.len(), 3);
    assert_eq!(sent[2].1, to_claim(0, &[]), "the rank that nobody reads is told");
    d.answer(secs(0), Answer::Granted(grant()));
    assert_eq!(events(&mut d.worker), []);
    assert_eq!(d.until(secs(4)), []);
    d.answer_from(secs(4), P1, Answer::Granted(Grant { token: ReadToken(78), ..grant() }));
    let offered = events(&mut d.worker);
    let [Event::Offered { offers, .. }] = &offered[..] else { panic!("{offered:?}") };
    let short: Vec<_> = offers.iter().map(|offer| (offer.peer, offer.token, offer.left)).collect();
    assert_eq!(short, [(P.agent, ReadToken(77), secs(16)), (P1, ReadToken(78), secs(20))]);
    d.read(secs(4), &[P.agent, P1]);
    assert_eq!(d.read_done(secs(4), P1), [], "half of it");
    let done = d.read_done(secs(4), P.agent);
    assert_eq!(done, [(P.agent, Request::Done), (P1, Request::Done)]);
    d.answer_from(secs(4), P1, Answer::Alive);
    d.answer_from(secs(4), P1, Answer::Over);
    d.handle(secs(4), Input::PeerLost(P1));
    assert_eq!(d.end(), None);
    d.answer(secs(4), Answer::Alive);
    assert_eq!(d.end(), received());
}

/// A peer's word for a time is limited before anybody adds it to another.
#[test]
fn no_claim_is_said_to_live_longer_than_600_s() {
    let (mut d, _) = Decode::claiming_at(two_ranks());
    let forever = Time::MAX;
    d.answer(secs(0), Answer::Granted(grant()));
    d.answer(secs(0), Answer::Renewed { left: forever });
    d.answer_from(secs(0), P1, Answer::Granted(Grant { left: forever, ..grant() }));
    let offered = events(&mut d.worker);
    let [Event::Offered { offers, .. }] = &offered[..] else { panic!("{offered:?}") };
    assert!(offers.iter().all(|offer| offer.left == secs(600)));
}

#[test]
fn two_ranks_of_p_fail_together() {
    let (mut d, _) = Decode::claiming_at(two_ranks());
    d.answer(secs(0), Answer::Granted(grant()));
    assert_eq!(d.answer_from(secs(0), P1, Answer::Unknown), release());
    assert_eq!(d.end(), failed(Failure::Unknown));
}

#[test]
fn nothing_to_read() {
    let (mut d, sent) = Decode::claiming_at(sources(&[]));
    assert_eq!(sent, [(P.agent, to_claim(0, &[]))]);
    assert_eq!(d.end(), Some(Event::Nothing { claim: claim() }));
}

#[test]
fn answers_of_other_lives_change_nothing() {
    let mut d = Decode::claiming();
    let older = Message { to: AgentEpoch(0), ..answers(D, &claim(), Answer::Unknown) };
    d.handle(secs(0), Input::Message { from: P, message: older });
    let message = answers(D, &claim(), Answer::Unknown);
    let other_engine = Peer { engine: EngineEpoch(9), ..P };
    d.handle(secs(0), Input::Message { from: other_engine, message });
    assert_eq!(d.worker.counts().misdirected, 2);
    assert_eq!(d.worker.counts().receives, 1);
}
