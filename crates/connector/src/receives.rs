use std::collections::BTreeMap;

use crate::bounds::{Bounds, Time};
use crate::ids::{AgentEpoch, ClaimId, Rank};
use crate::io::{Event, Failure, Outbox, ReadFailure, Start};
use crate::message::{Answer, Body, Request};
use crate::receive::{End, Receive};
use crate::timers::Timers;

/// D's side: the requests that one worker fetches.
#[derive(Debug)]
pub(crate) struct Receives {
    bounds: Bounds,
    rank: Rank,
    requests: BTreeMap<ClaimId, Receive>,
    timers: Timers<ClaimId>,
}

impl Receives {
    pub(crate) fn new(bounds: Bounds, rank: Rank) -> Self {
        Self { bounds, rank, requests: BTreeMap::new(), timers: Timers::new() }
    }

    /// Claims at every source, and waits for those that this rank will read.
    pub(crate) fn start(&mut self, now: Time, start: Start, out: &mut Outbox) {
        let Start { claim, prompt, sources } = start;
        for (peer, readers) in &sources {
            let request = Request::Claim { rank: self.rank, readers: readers.clone() };
            out.send(*peer, &claim, Body::Request(request));
        }
        let read = sources.iter().filter(|(_, readers)| !readers.is_empty());
        let mut peers = read.map(|(peer, _)| *peer).peekable();
        if peers.peek().is_none() {
            out.events.push_back(Event::Nothing { claim });
            return;
        }
        let receive = Receive::new(claim.clone(), prompt, peers, now, &self.bounds);
        self.requests.insert(claim.clone(), receive);
        self.settle(&claim);
    }

    pub(crate) fn answer(
        &mut self,
        now: Time,
        peer: AgentEpoch,
        claim: &ClaimId,
        answer: Answer,
        out: &mut Outbox,
    ) {
        if let Some(receive) = self.requests.get_mut(claim) {
            receive.answer(peer, answer, now, &self.bounds, out);
            self.settle(claim);
        }
    }

    /// The engine has blocks for a request; whether it is to be read.
    pub(crate) fn read(&mut self, claim: &ClaimId) -> bool {
        self.requests.get_mut(claim).is_some_and(Receive::read)
    }

    pub(crate) fn reads_ended(
        &mut self,
        now: Time,
        claim: &ClaimId,
        how: Result<(), ReadFailure>,
        out: &mut Outbox,
    ) {
        if let Some(receive) = self.requests.get_mut(claim) {
            receive.reads_ended(how, now, &self.bounds, out);
            self.settle(claim);
        }
    }

    /// The reads of a request have failed, though some still run: P need not wait for these.
    pub(crate) fn reads_fail(&mut self, claim: &ClaimId, why: ReadFailure, out: &mut Outbox) {
        if let Some(receive) = self.requests.get_mut(claim) {
            receive.end(End::Failed(why.into()), out);
        }
    }

    pub(crate) fn knows(&self, claim: &ClaimId) -> bool {
        self.requests.contains_key(claim)
    }

    /// Ends everything.
    pub(crate) fn withdraw(&mut self, out: &mut Outbox) {
        let all: Vec<_> = self.requests.keys().cloned().collect();
        for claim in all {
            if let Some(receive) = self.requests.get_mut(&claim) {
                receive.end(End::Failed(Failure::Withdrawn), out);
            }
            self.settle(&claim);
        }
    }

    pub(crate) fn abort(&mut self, claim: &ClaimId, out: &mut Outbox) {
        if let Some(receive) = self.requests.get_mut(claim) {
            receive.end(End::Released, out);
            self.settle(claim);
        }
    }

    pub(crate) fn peer_lost(&mut self, peer: AgentEpoch, out: &mut Outbox) {
        self.requests.values_mut().for_each(|receive| receive.peer_lost(peer, out));
        let all: Vec<_> = self.requests.keys().cloned().collect();
        all.iter().for_each(|claim| self.settle(claim));
    }

    pub(crate) fn expire(&mut self, now: Time, out: &mut Outbox) {
        while let Some(claim) = self.timers.pop(now) {
            if let Some(receive) = self.requests.get_mut(&claim) {
                receive.expire(now, &self.bounds, out);
            }
            self.settle(&claim);
        }
    }

    /// After anything happened to a request: forgets it or sets its next moment.
    fn settle(&mut self, claim: &ClaimId) {
        let Some(receive) = self.requests.get(claim) else { return };
        self.timers.set(claim, receive.deadline());
        if receive.has_ended() {
            self.requests.remove(claim);
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.timers.next()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }
}
