use std::collections::BTreeMap;

use crate::bounds::{Bounds, Time};
use crate::early::Early;
use crate::ids::{AgentEpoch, ClaimId, LeaseId, ReadToken};
use crate::io::{Event, Lease, Outbox};
use crate::lease::{Desk, Held};
use crate::message::{Answer, Body, Request};
use crate::timers::Timers;
use crate::tokens::Tokens;

/// P's side: the leases of one worker and the requests that concern them.
#[derive(Debug)]
pub(crate) struct Sends {
    bounds: Bounds,
    tokens: Tokens,
    leases: BTreeMap<LeaseId, Held>,
    early: Early,
    timers: Timers<LeaseId>,
    refused: u64,
    /// The memory is being taken away, or gone.
    withdrawn: bool,
}

impl Sends {
    pub(crate) fn new(bounds: Bounds, seed: [u8; 32]) -> Self {
        Self {
            bounds,
            tokens: Tokens::new(seed),
            leases: BTreeMap::new(),
            early: Early::new(),
            timers: Timers::new(),
            refused: 0,
            withdrawn: false,
        }
    }

    /// The scheduler's promise; requests that came before it are served now.
    pub(crate) fn lease(&mut self, now: Time, lease: Lease, out: &mut Outbox) {
        let id = lease.id.clone();
        let held = self.leases.entry(id.clone()).or_insert_with(|| Held::new(lease, now));
        if self.withdrawn {
            held.withdraw(now, out);
        }
        for (agent, claim, request) in self.early.take(&id) {
            self.answer_one(now, agent, &claim, request, out);
        }
        self.settle(&id, out);
    }

    pub(crate) fn request(
        &mut self,
        now: Time,
        agent: AgentEpoch,
        claim: &ClaimId,
        request: Request,
        out: &mut Outbox,
    ) {
        self.answer_one(now, agent, claim, request, out);
        self.settle(&claim.lease, out);
    }

    /// Answers one request, whatever then becomes of its lease.
    fn answer_one(
        &mut self,
        now: Time,
        agent: AgentEpoch,
        claim: &ClaimId,
        request: Request,
        out: &mut Outbox,
    ) {
        let answer = match self.leases.get_mut(&claim.lease) {
            Some(held) => {
                let mut desk =
                    Desk { now, bounds: &self.bounds, tokens: &mut self.tokens, out: &mut *out };
                serve(held, agent, claim, &request, &mut desk)
            }
            None => self.without_lease(now, agent, claim, request),
        };
        self.answer(agent, claim, answer, out);
    }

    /// Answers what is not known here, or not yet.
    fn without_lease(
        &mut self,
        now: Time,
        agent: AgentEpoch,
        claim: &ClaimId,
        request: Request,
    ) -> Answer {
        match request {
            Request::Renew | Request::Check { .. } | Request::Done => Answer::Over,
            Request::Claim { .. } | Request::Release => {
                let until = now.saturating_add(self.bounds.pending);
                let held = self.early.hold(agent, claim, request, until);
                if held { Answer::Pending } else { Answer::Unknown }
            }
        }
    }

    /// Answers a request that cannot concern a lease of this worker's life.
    pub(crate) fn refuse(&mut self, agent: AgentEpoch, claim: &ClaimId, out: &mut Outbox) {
        self.answer(agent, claim, Answer::Unknown, out);
    }

    fn answer(&mut self, to: AgentEpoch, claim: &ClaimId, answer: Answer, out: &mut Outbox) {
        self.refused += u64::from(matches!(answer, Answer::Over | Answer::Unknown));
        out.send(to, claim, Body::Answer(answer));
    }

    pub(crate) fn peer_lost(&mut self, now: Time, agent: AgentEpoch, out: &mut Outbox) {
        self.early.forget(agent);
        self.leases.values_mut().for_each(|held| held.peer_lost(agent, now, out));
        let all: Vec<_> = self.leases.keys().cloned().collect();
        all.iter().for_each(|lease| self.settle(lease, out));
    }

    /// Ends every lease: its blocks are about to go.
    pub(crate) fn withdraw(&mut self, now: Time, out: &mut Outbox) {
        self.withdrawn = true;
        self.leases.values_mut().for_each(|held| held.withdraw(now, out));
        let all: Vec<_> = self.leases.keys().cloned().collect();
        all.iter().for_each(|lease| self.settle(lease, out));
    }

    pub(crate) fn restored(&mut self) {
        self.withdrawn = false;
    }

    pub(crate) fn revoked(&mut self, token: ReadToken, out: &mut Outbox) {
        let Some(lease) = self.tokens.end(token) else { return };
        if let Some(held) = self.leases.get_mut(&lease) {
            held.revoked();
        }
        self.settle(&lease, out);
    }

    pub(crate) fn expire(&mut self, now: Time, out: &mut Outbox) {
        while let Some((agent, claim, _)) = self.early.pop(now) {
            self.answer(agent, &claim, Answer::Unknown, out);
        }
        while let Some(id) = self.timers.pop(now) {
            if let Some(held) = self.leases.get_mut(&id) {
                held.expire(now, &self.bounds, out);
            }
            self.settle(&id, out);
        }
    }

    /// After anything happened to a lease: gives its blocks back or sets its next moment.
    fn settle(&mut self, id: &LeaseId, out: &mut Outbox) {
        let Some(held) = self.leases.get(id) else { return };
        let freed = held.freed();
        self.timers.set(id, held.deadline(&self.bounds));
        if let Some(why) = freed {
            self.leases.remove(id);
            out.events.push_back(Event::Freed { lease: id.clone(), why });
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.early.next().into_iter().chain(self.timers.next()).min()
    }

    pub(crate) fn leases(&self) -> usize {
        self.leases.len()
    }

    pub(crate) fn claims(&self) -> usize {
        self.leases.values().map(|held| held.living().count()).sum()
    }

    pub(crate) fn tokens(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn early(&self) -> usize {
        self.early.len()
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }
}

fn serve(
    held: &mut Held,
    agent: AgentEpoch,
    claim: &ClaimId,
    request: &Request,
    desk: &mut Desk<'_>,
) -> Answer {
    match request {
        Request::Claim { rank, readers } => held.claim(claim, agent, *rank, readers, desk),
        Request::Renew => held.renew(claim, agent, desk),
        Request::Done => held.done(claim, agent, desk),
        Request::Release => held.release(claim, desk),
        Request::Check { number } => held.check(claim, agent, *number),
    }
}
