use std::collections::{BTreeMap, BTreeSet};

use crate::bounds::{Bounds, Time};
use crate::digest::PromptDigest;
use crate::ids::{AgentEpoch, ClaimId};
use crate::io::{Failure, Offer, Outbox, ReadFailure};
use crate::message::{Answer, Body, Grant, Request};
use crate::receive::{Commit, End, Receive};

/// One claim of this worker at one or more ranks of P, and the requests that read under it: the
/// samples of one prompt. P sees one reader, who is done when the last of them is.
#[derive(Debug)]
pub(crate) struct Shared {
    /// As P knows it: the name of the request that it was made for, which may end before others.
    id: ClaimId,
    legs: BTreeMap<AgentEpoch, Leg>,
    requests: BTreeMap<ClaimId, Receive>,
    renew_at: Time,
    /// Commits so far of requests that were not the last.
    checks: u64,
    said: Said,
    /// A request was received, so that P may count this reader.
    received: bool,
}

/// What one rank of P has answered.
#[derive(Debug)]
enum Leg {
    Asked,
    Granted {
        grant: Grant,
        /// When P lets the claim lapse, as far as D knows.
        lives_until: Time,
    },
}

/// What P knows of this reader's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Done,
    Released,
}

impl Shared {
    /// Waits for the answers of `peers`, which have been asked.
    pub(crate) fn new(
        id: ClaimId,
        peers: impl Iterator<Item = AgentEpoch>,
        now: Time,
        bounds: &Bounds,
    ) -> Self {
        Self {
            id,
            legs: peers.map(|peer| (peer, Leg::Asked)).collect(),
            requests: BTreeMap::new(),
            renew_at: now.saturating_add(bounds.renew_every),
            checks: 0,
            said: Said::Nothing,
            received: false,
        }
    }

    /// Whether a request may still join: once P was told of the end, nobody reads.
    pub(crate) fn takes_more(&self) -> bool {
        self.said == Said::Nothing
    }

    /// One more request reads under this claim.
    pub(crate) fn join(
        &mut self,
        request: ClaimId,
        prompt: PromptDigest,
        now: Time,
        bounds: &Bounds,
        out: &mut Outbox,
    ) {
        let receive = Receive::new(request.clone(), prompt, now.saturating_add(bounds.answer));
        self.requests.insert(request, receive);
        let granted = self.legs.values().filter_map(Leg::grant);
        let theirs: Vec<_> = granted.map(|grant| grant.prompt).collect();
        theirs.iter().for_each(|theirs| self.compare(theirs, out));
        self.offer(now, bounds, out);
        self.close(out);
    }

    pub(crate) fn answer(
        &mut self,
        peer: AgentEpoch,
        answer: Answer,
        now: Time,
        bounds: &Bounds,
        out: &mut Outbox,
    ) {
        match (answer, self.legs.get_mut(&peer)) {
            (Answer::Granted(grant), Some(leg @ Leg::Asked)) => {
                let lives_until = now.saturating_add(grant.left.min(bounds.oldest));
                let theirs = grant.prompt;
                *leg = Leg::Granted { grant, lives_until };
                self.compare(&theirs, out);
                self.offer(now, bounds, out);
                self.close(out);
            }
            (Answer::Renewed { left }, Some(Leg::Granted { lives_until, .. })) => {
                *lives_until = now.saturating_add(left.min(bounds.oldest));
            }
            (Answer::Intact { number }, Some(_)) => {
                self.committed(peer, Commit::Check(number), out);
            }
            (Answer::Alive, Some(_)) => self.committed(peer, Commit::Done, out),
            (Answer::Over, Some(_)) => self.peer_failed(peer, &Failure::Over, out),
            (Answer::Unknown, Some(_)) => self.peer_failed(peer, &Failure::Unknown, out),
            // Doubled, late, or news of no consequence.
            _ => {}
        }
    }

    /// Ends the requests whose prompt is not the one whose blocks P has; others may go on.
    fn compare(&mut self, theirs: &PromptDigest, out: &mut Outbox) {
        for receive in self.requests.values_mut() {
            if let Err(failure) = receive.same_prompt(theirs) {
                receive.end(End::Failed(failure), out);
            }
        }
    }

    /// Offers what P has granted to the requests that wait for it, once all is granted.
    fn offer(&mut self, now: Time, bounds: &Bounds, out: &mut Outbox) {
        let offers = self.legs.iter().map(|(peer, leg)| leg.offer(*peer, now));
        let Some(offers) = offers.collect::<Option<Vec<_>>>() else { return };
        let until = now.saturating_add(bounds.oldest);
        for receive in self.requests.values_mut() {
            receive.offered(offers.clone(), until, out);
        }
    }

    fn committed(&mut self, peer: AgentEpoch, commit: Commit, out: &mut Outbox) {
        for receive in self.requests.values_mut() {
            self.received |= receive.committed(peer, commit, out);
        }
        self.close(out);
    }

    /// A rank of P for which the claim is over: nothing more is said to it.
    pub(crate) fn peer_failed(&mut self, peer: AgentEpoch, failure: &Failure, out: &mut Outbox) {
        if self.legs.remove(&peer).is_none() {
            return;
        }
        let all = self.requests.values_mut();
        all.for_each(|receive| receive.peer_failed(peer, failure, out));
        self.close(out);
    }

    /// The engine has blocks for a request; whether it is to be read.
    pub(crate) fn read(&mut self, request: &ClaimId) -> bool {
        self.requests.get_mut(request).is_some_and(Receive::read)
    }

    /// The reads of one request have ended. P is asked whether they count: as long as others
    /// read it only has to look, after the last it may count this reader.
    pub(crate) fn reads_ended(
        &mut self,
        request: &ClaimId,
        how: Result<(), ReadFailure>,
        (now, bounds): (Time, &Bounds),
        out: &mut Outbox,
    ) {
        let other = |(id, receive): (&ClaimId, &Receive)| id != request && receive.is_open();
        let commit = match self.requests.iter().any(other) {
            true => Commit::Check(self.checks),
            false => Commit::Done,
        };
        let peers: BTreeSet<_> = self.legs.keys().copied().collect();
        let until = now.saturating_add(bounds.answer);
        let Some(receive) = self.requests.get_mut(request) else { return };
        let commits = receive.reads_ended(how, (commit, peers), until, out);
        if let Commit::Check(number) = commit
            && commits
        {
            self.checks += 1;
            self.tell_all(&Request::Check { number }, out);
        }
        self.close(out);
    }

    /// Ends one request, whatever becomes of the others.
    pub(crate) fn end(&mut self, request: &ClaimId, end: End, out: &mut Outbox) {
        if let Some(receive) = self.requests.get_mut(request) {
            receive.end(end, out);
        }
        self.close(out);
    }

    pub(crate) fn withdraw(&mut self, out: &mut Outbox) {
        let all = self.requests.values_mut();
        all.for_each(|receive| receive.end(End::Failed(Failure::Withdrawn), out));
        self.close(out);
    }

    /// Tells P what it needs to know once nobody reads any more: that this reader is done, where
    /// something that was read may count, or that nobody will read. The latter ends the claim
    /// for the other ranks of D as well, so it is said only where no request succeeded here.
    fn close(&mut self, out: &mut Outbox) {
        if self.said == Said::Nothing && !self.is_open() {
            let reads_count = self.received || self.requests.values().any(Receive::is_committing);
            let (said, request) = match reads_count {
                true => (Said::Done, Request::Done),
                false => (Said::Released, Request::Release),
            };
            self.said = said;
            self.tell_all(&request, out);
        }
        if self.said == Said::Done && !self.received && self.has_ended() {
            self.said = Said::Released;
            self.tell_all(&Request::Release, out);
        }
    }

    pub(crate) fn expire(&mut self, now: Time, bounds: &Bounds, out: &mut Outbox) {
        let lapsed = self.lapses_at().is_some_and(|at| at <= now);
        for receive in self.requests.values_mut() {
            if lapsed && receive.is_open() {
                receive.end(End::Failed(Failure::NoAnswer), out);
            }
            receive.expire(now, out);
        }
        self.close(out);
        if self.is_open() && self.renew_at <= now {
            self.renew_at = now.saturating_add(bounds.renew_every);
            self.tell_granted(&Request::Renew, out);
        }
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let renew = self.is_open().then_some(self.renew_at);
        let requests = self.requests.values().filter_map(Receive::deadline);
        requests.chain(renew).chain(self.lapses_at()).min()
    }

    /// When P has been silent for too long for those that read or mean to.
    fn lapses_at(&self) -> Option<Time> {
        let lives_until = self.legs.values().filter_map(Leg::lives_until).min();
        lives_until.filter(|_| self.is_open())
    }

    fn is_open(&self) -> bool {
        self.requests.values().any(Receive::is_open)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.requests.values().all(Receive::has_ended)
    }

    /// Forgets the requests that have ended, and says which.
    pub(crate) fn take_ended(&mut self) -> Vec<ClaimId> {
        let ended = self.requests.extract_if(.., |_, receive| receive.has_ended());
        ended.map(|(request, _)| request).collect()
    }

    fn tell_granted(&self, request: &Request, out: &mut Outbox) {
        let granted = self.legs.iter().filter(|(_, leg)| matches!(leg, Leg::Granted { .. }));
        granted.for_each(|(peer, _)| out.send(*peer, &self.id, Body::Request(request.clone())));
    }

    fn tell_all(&self, request: &Request, out: &mut Outbox) {
        let peers = self.legs.keys();
        peers.for_each(|peer| out.send(*peer, &self.id, Body::Request(request.clone())));
    }
}

impl Leg {
    fn grant(&self) -> Option<&Grant> {
        match self {
            Self::Granted { grant, .. } => Some(grant),
            Self::Asked => None,
        }
    }

    fn lives_until(&self) -> Option<Time> {
        match self {
            Self::Granted { lives_until, .. } => Some(*lives_until),
            Self::Asked => None,
        }
    }

    fn offer(&self, peer: AgentEpoch, now: Time) -> Option<Offer> {
        let Self::Granted { grant, lives_until } = self else { return None };
        let left = lives_until.saturating_sub(now);
        Some(Offer { peer, token: grant.token, left, tables: grant.tables.clone() })
    }
}
