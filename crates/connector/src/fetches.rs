use std::collections::BTreeSet;

use crate::bounds::{Bounds, Time};
use crate::ids::{AgentEpoch, ClaimId, Rank};
use crate::io::{Event, Failure, Fetch, Outbox, ReadFailure, Start};
use crate::message::{Answer, Body, Request};
use crate::params::Address;
use crate::peers::{Acquaintance, Asked, Peers};
use crate::reads::{Reads, Settled};
use crate::receives::Receives;

/// D's side of one worker: a request first needs to know its engine, then claims, then reads.
/// Routes between the three.
#[derive(Debug)]
pub(crate) struct Fetches {
    peers: Peers,
    receives: Receives,
    reads: Reads,
}

impl Fetches {
    pub(crate) fn new(bounds: Bounds, rank: Rank) -> Self {
        Self {
            peers: Peers::new(bounds),
            receives: Receives::new(bounds, rank),
            reads: Reads::default(),
        }
    }

    pub(crate) fn fetch(&mut self, now: Time, fetch: Fetch, out: &mut Outbox) {
        if !self.knows(&fetch.claim) {
            let asked = self.peers.ask(now, fetch, out);
            self.asked(now, asked, out);
        }
    }

    /// Refuses a request while there is no memory for it. One that is under way ends by itself.
    pub(crate) fn refuse(&self, claim: &ClaimId, out: &mut Outbox) {
        if !self.knows(claim) {
            let (claim, failure) = (claim.clone(), Failure::Withdrawn);
            out.events.push_back(Event::Failed { claim, failure });
        }
    }

    fn knows(&self, claim: &ClaimId) -> bool {
        self.receives.knows(claim) || self.peers.waits(claim)
    }

    pub(crate) fn greeted(
        &mut self,
        now: Time,
        address: &Address,
        acquaintance: &Acquaintance,
        out: &mut Outbox,
    ) {
        for asked in self.peers.greeted(now, address, acquaintance, out) {
            self.asked(now, asked, out);
        }
    }

    pub(crate) fn not_greeted(
        &mut self,
        now: Time,
        address: &Address,
        failure: &Failure,
        out: &mut Outbox,
    ) {
        for asked in self.peers.not_greeted(now, address, failure) {
            self.asked(now, asked, out);
        }
    }

    fn asked(&mut self, now: Time, asked: Asked, out: &mut Outbox) {
        match asked {
            Asked::Known(fetch, Acquaintance { sources, .. }) => {
                let Fetch { claim, shared, prompt, .. } = fetch;
                self.receives.start(now, Start { claim, shared, prompt, sources }, out);
                self.stop(now, out);
            }
            Asked::Failed(claim, failure) => {
                out.events.push_back(Event::Failed { claim, failure });
            }
            // Others of the same lease read it.
            Asked::Ended(claim, _) if self.receives.read_lease(&claim.lease) => {}
            Asked::Ended(claim, Acquaintance { sources, .. }) => {
                for peer in sources.into_keys() {
                    out.send(peer, &claim, Body::Request(Request::Release));
                }
            }
            Asked::Waits => {}
        }
    }

    pub(crate) fn answer(
        &mut self,
        now: Time,
        peer: AgentEpoch,
        claim: &ClaimId,
        answer: Answer,
        out: &mut Outbox,
    ) {
        self.receives.answer(now, peer, claim, answer, out);
        self.stop(now, out);
    }

    pub(crate) fn read(
        &mut self,
        now: Time,
        claim: &ClaimId,
        peers: BTreeSet<AgentEpoch>,
        out: &mut Outbox,
    ) {
        if self.receives.read(claim) {
            let settled = self.reads.start(claim, peers, out);
            self.settled(now, settled, out);
        }
    }

    pub(crate) fn read_ended(
        &mut self,
        now: Time,
        claim: &ClaimId,
        peer: AgentEpoch,
        how: Result<(), ReadFailure>,
        out: &mut Outbox,
    ) {
        let settled = self.reads.ended(claim, peer, how, out);
        self.settled(now, settled, out);
        self.given_up(now, claim, out);
    }

    pub(crate) fn overdue(&mut self, now: Time, claim: &ClaimId, out: &mut Outbox) {
        self.reads.overdue(claim, out);
        self.given_up(now, claim, out);
    }

    fn given_up(&mut self, now: Time, claim: &ClaimId, out: &mut Outbox) {
        if let Some(why) = self.reads.given_up(claim) {
            self.receives.reads_fail(claim, why, out);
            self.stop(now, out);
        }
    }

    pub(crate) fn abort(&mut self, now: Time, claim: &ClaimId, out: &mut Outbox) {
        if self.peers.abort(claim) {
            out.events.push_back(Event::Released { claim: claim.clone() });
        }
        self.receives.abort(claim, out);
        self.stop(now, out);
    }

    pub(crate) fn peer_lost(&mut self, now: Time, peer: AgentEpoch, out: &mut Outbox) {
        self.peers.peer_lost(peer);
        self.receives.peer_lost(peer, out);
        self.stop(now, out);
        let settled = self.reads.peer_lost(peer, out);
        self.settled(now, settled, out);
    }

    pub(crate) fn withdraw(&mut self, now: Time, out: &mut Outbox) {
        for claim in self.peers.forget_waiting() {
            out.events.push_back(Event::Failed { claim, failure: Failure::Withdrawn });
        }
        self.receives.withdraw(out);
        self.stop(now, out);
    }

    pub(crate) fn expire(&mut self, now: Time, out: &mut Outbox) {
        for claim in self.peers.expire(now) {
            out.events.push_back(Event::Failed { claim, failure: Failure::NoAnswer });
        }
        self.receives.expire(now, out);
        self.stop(now, out);
    }

    /// Stops the reads of requests that have come to their end meanwhile.
    fn stop(&mut self, now: Time, out: &mut Outbox) {
        for claim in std::mem::take(&mut out.stops) {
            let settled = self.reads.stop(&claim, out);
            self.settled(now, settled, out);
        }
    }

    fn settled(&mut self, now: Time, settled: impl IntoIterator<Item = Settled>, out: &mut Outbox) {
        for (claim, how) in settled {
            self.receives.reads_ended(now, &claim, how, out);
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.peers.next().into_iter().chain(self.receives.next()).min()
    }

    /// Requests under way.
    pub(crate) fn len(&self) -> usize {
        self.peers.len() + self.receives.len()
    }

    pub(crate) fn known(&self) -> usize {
        self.peers.known()
    }

    pub(crate) fn quarantined(&self) -> usize {
        self.reads.quarantined()
    }
}
