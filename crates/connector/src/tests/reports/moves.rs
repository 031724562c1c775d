//! Bytes that come in another order than they were asked for.

use std::collections::BTreeMap;

use super::*;
use crate::message::{Body, Grant};

/// The ranks of an engine whose transport keeps no order.
const RANKS: [AgentEpoch; 4] = [AgentEpoch(10), AgentEpoch(11), AgentEpoch(12), AgentEpoch(13)];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

/// What a transport has still to bring of one read.
struct Leg {
    claim: ClaimId,
    peer: AgentEpoch,
    bytes: u64,
}

fn sample(number: u64) -> ClaimId {
    let name = format!("answer {number}");
    ClaimId { request: request(&name), ..claim_of(number, D) }
}

/// A worker to which all ranks have offered a request of a lease of its own.
fn offered(d: &mut Worker, number: u64) {
    let sources = RANKS.map(|agent| (agent, ranks(&[0])));
    let (claim, address) = (sample(number), address(1));
    let fetch = Fetch { claim, shared: None, prompt: prompt(), address: address.clone() };
    d.handle(secs(0), Input::Fetch(fetch));
    if actions(d).contains(&Action::Greet { address: address.clone() }) {
        let acquaintance = Acquaintance { engine: P.engine, sources: BTreeMap::from_iter(sources) };
        d.handle(secs(0), Input::Greeted { address, acquaintance });
    }
    for agent in RANKS {
        let answer = Answer::Granted(Grant { left: secs(500), ..grant() });
        let message = Message { from: agent, ..answers(D, &sample(number), answer) };
        d.handle(secs(0), Input::Message { from: Peer { agent, ..P }, message });
    }
    actions(d);
    assert!(matches!(&events(d)[..], [Event::Offered { .. }]));
}

/// The requests that are committed by these actions, and the reads that they start.
fn told(d: &mut Worker, random: &mut Random, legs: &mut Vec<Leg>) -> Vec<ClaimId> {
    let mut committed = Vec::new();
    for action in actions(d) {
        match action {
            Action::Read { claim, peer } => {
                legs.push(Leg { claim, peer, bytes: 1 + random.next() % 1000 });
            }
            Action::Send(Message { claim, body: Body::Request(Request::Done), .. }) => {
                committed.push(claim);
            }
            other => panic!("{other:?}"),
        }
    }
    committed
}

/// Bytes come from any rank for any request, a few at a time; a read is said to have ended some
/// time after its last one. Gives how many requests were committed.
fn play(seed: u64) -> usize {
    let (mut random, mut d) = (Random(seed), worker(D, 0));
    let (mut legs, mut commits) = (Vec::new(), 0);
    let requests = 1 + random.below(3) as u64;
    (0..requests).for_each(|number| offered(&mut d, number));
    for number in 0..requests {
        let peers = RANKS.into_iter().take(1 + random.below(RANKS.len())).collect();
        d.handle(secs(1), Input::Read { claim: sample(number), peers });
        assert_eq!(told(&mut d, &mut random, &mut legs), [], "nothing has come");
    }
    while !legs.is_empty() {
        let at = random.below(legs.len());
        let few = 1 + random.next() % 400;
        if legs[at].bytes > 0 {
            legs[at].bytes = legs[at].bytes.saturating_sub(few);
            continue;
        }
        let Leg { claim, peer, .. } = legs.swap_remove(at);
        let missing = legs.iter().filter(|leg| leg.claim == claim).count();
        d.handle(secs(1), Input::ReadEnded { claim: claim.clone(), peer, how: Ok(()) });
        let committed = told(&mut d, &mut random, &mut legs);
        // Each rank that was asked is told, those that nothing was read from as well.
        let expected = if missing == 0 { vec![claim; RANKS.len()] } else { vec![] };
        assert_eq!(committed, expected, "seed {seed}: {missing} reads are missing");
        commits += usize::from(missing == 0);
    }
    assert_eq!(events(&mut d), [], "P has not answered");
    assert_eq!(commits as u64, requests);
    commits
}

/// A notice overtook the data that it was for, and blocks counted before they were there. D says
/// that it is done when every byte of every read is in its place, and before that to nobody.
#[test]
fn r91_nothing_is_committed_before_its_last_byte() {
    let commits: usize = (0..10_000).map(play).sum();
    assert!(commits > 15_000, "{commits}");
}
