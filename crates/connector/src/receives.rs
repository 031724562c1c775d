use std::collections::BTreeMap;

use crate::bounds::{Bounds, Time};
use crate::ids::{AgentEpoch, ClaimId, LeaseId, Rank, RequestId};
use crate::io::{Event, Failure, Outbox, ReadFailure, Start};
use crate::message::{Answer, Body, Request};
use crate::receive::End;
use crate::shared::Shared;
use crate::timers::Timers;

/// D's side: the requests that one worker fetches, by the claims under which it reads them.
#[derive(Debug)]
pub(crate) struct Receives {
    bounds: Bounds,
    rank: Rank,
    claims: BTreeMap<ClaimId, Shared>,
    /// The claim of each request.
    requests: BTreeMap<ClaimId, ClaimId>,
    /// The claim of each lease that takes more requests.
    open: BTreeMap<LeaseId, ClaimId>,
    timers: Timers<ClaimId>,
}

impl Receives {
    pub(crate) fn new(bounds: Bounds, rank: Rank) -> Self {
        let (claims, requests, open) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { bounds, rank, claims, requests, open, timers: Timers::new() }
    }

    /// Joins a claim of the same lease, or claims at every source and waits for those that this
    /// rank will read.
    pub(crate) fn start(&mut self, now: Time, start: Start, out: &mut Outbox) {
        let Start { claim, shared, prompt, sources } = start;
        let id = self.claim_for(&claim, shared);
        if !self.claims.contains_key(&id) {
            for (peer, readers) in &sources {
                let request = Request::Claim { rank: self.rank, readers: readers.clone() };
                out.send(*peer, &id, Body::Request(request));
            }
            let read = sources.iter().filter(|(_, readers)| !readers.is_empty());
            let mut peers = read.map(|(peer, _)| *peer).peekable();
            if peers.peek().is_none() {
                out.events.push_back(Event::Nothing { claim });
                return;
            }
            let shared = Shared::new(id.clone(), peers, now, &self.bounds);
            self.claims.insert(id.clone(), shared);
            self.open.insert(id.lease.clone(), id.clone());
        }
        let Some(shared) = self.claims.get_mut(&id).filter(|shared| shared.takes_more()) else {
            // P was told that nobody reads under it any more, and would say this.
            return out.events.push_back(Event::Failed { claim, failure: Failure::Over });
        };
        self.requests.insert(claim.clone(), id.clone());
        shared.join(claim, prompt, now, &self.bounds, out);
        self.settle(&id);
    }

    /// The claim under which a request is to be read: the one that its scheduler names, so that
    /// all ranks agree, or else the one that takes more here.
    fn claim_for(&self, claim: &ClaimId, shared: Option<RequestId>) -> ClaimId {
        match (shared, self.open.get(&claim.lease)) {
            (Some(request), _) => ClaimId { request, ..claim.clone() },
            (None, Some(open)) => open.clone(),
            (None, None) => claim.clone(),
        }
    }

    /// Whether P must not be told that nobody reads this lease.
    pub(crate) fn read_lease(&self, lease: &LeaseId) -> bool {
        self.open.contains_key(lease)
    }

    pub(crate) fn answer(
        &mut self,
        now: Time,
        peer: AgentEpoch,
        claim: &ClaimId,
        answer: Answer,
        out: &mut Outbox,
    ) {
        if let Some(shared) = self.claims.get_mut(claim) {
            shared.answer(peer, answer, now, &self.bounds, out);
            self.settle(claim);
        }
    }

    /// The engine has blocks for a request; whether it is to be read.
    pub(crate) fn read(&mut self, request: &ClaimId) -> bool {
        let shared = self.requests.get(request).and_then(|claim| self.claims.get_mut(claim));
        shared.is_some_and(|shared| shared.read(request))
    }

    pub(crate) fn reads_ended(
        &mut self,
        now: Time,
        request: &ClaimId,
        how: Result<(), ReadFailure>,
        out: &mut Outbox,
    ) {
        let bounds = self.bounds;
        self.change(request, |shared| shared.reads_ended(request, how, (now, &bounds), out));
    }

    /// The reads of a request have failed, though some still run: P need not wait for these.
    pub(crate) fn reads_fail(&mut self, request: &ClaimId, why: ReadFailure, out: &mut Outbox) {
        self.change(request, |shared| shared.end(request, End::Failed(why.into()), out));
    }

    pub(crate) fn abort(&mut self, request: &ClaimId, out: &mut Outbox) {
        self.change(request, |shared| shared.end(request, End::Released, out));
    }

    fn change(&mut self, request: &ClaimId, change: impl FnOnce(&mut Shared)) {
        let Some(claim) = self.requests.get(request).cloned() else { return };
        if let Some(shared) = self.claims.get_mut(&claim) {
            change(shared);
            self.settle(&claim);
        }
    }

    pub(crate) fn knows(&self, request: &ClaimId) -> bool {
        self.requests.contains_key(request)
    }

    /// Ends everything.
    pub(crate) fn withdraw(&mut self, out: &mut Outbox) {
        self.claims.values_mut().for_each(|shared| shared.withdraw(out));
        self.settle_all();
    }

    pub(crate) fn peer_lost(&mut self, peer: AgentEpoch, out: &mut Outbox) {
        let all = self.claims.values_mut();
        all.for_each(|shared| shared.peer_failed(peer, &Failure::PeerLost, out));
        self.settle_all();
    }

    pub(crate) fn expire(&mut self, now: Time, out: &mut Outbox) {
        while let Some(claim) = self.timers.pop(now) {
            if let Some(shared) = self.claims.get_mut(&claim) {
                shared.expire(now, &self.bounds, out);
            }
            self.settle(&claim);
        }
    }

    fn settle_all(&mut self) {
        let all: Vec<_> = self.claims.keys().cloned().collect();
        all.iter().for_each(|claim| self.settle(claim));
    }

    /// After anything happened to a claim: forgets what has ended and sets its next moment.
    fn settle(&mut self, claim: &ClaimId) {
        let Some(shared) = self.claims.get_mut(claim) else { return };
        for request in shared.take_ended() {
            self.requests.remove(&request);
        }
        self.timers.set(claim, shared.deadline());
        if !shared.takes_more() && self.open.get(&claim.lease) == Some(claim) {
            self.open.remove(&claim.lease);
        }
        if shared.has_ended() {
            self.claims.remove(claim);
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.timers.next()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }
}
