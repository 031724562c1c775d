use std::collections::{BTreeMap, BTreeSet};

use crate::bounds::{Bounds, Time};
use crate::claim::{Claim, Notice};
use crate::ids::{AgentEpoch, ClaimId, Rank, ReadToken};
use crate::io::{Action, Lease, Outbox, Why};
use crate::limits::MAX_CLAIMS;
use crate::message::{Answer, Grant};
use crate::tokens::Tokens;

/// One lease as P keeps it: its claims, its outcome and its open tokens. It is given back when
/// it has an outcome, no claim lives and no token is open.
#[derive(Debug)]
pub(crate) struct Held {
    lease: Lease,
    born: Time,
    /// Since when no claim lives, if none does.
    idle_since: Time,
    claims: BTreeMap<ClaimId, Claim>,
    outcome: Option<Why>,
    /// Tokens given and not yet reported revoked.
    open: usize,
}

/// What the rules need around them.
pub(crate) struct Desk<'a> {
    pub(crate) now: Time,
    pub(crate) bounds: &'a Bounds,
    pub(crate) tokens: &'a mut Tokens,
    pub(crate) out: &'a mut Outbox,
}

impl Held {
    pub(crate) fn new(lease: Lease, now: Time) -> Self {
        let claims = BTreeMap::new();
        Self { lease, born: now, idle_since: now, claims, outcome: None, open: 0 }
    }

    pub(crate) fn claim(
        &mut self,
        id: &ClaimId,
        agent: AgentEpoch,
        rank: Rank,
        readers: &BTreeSet<Rank>,
        desk: &mut Desk<'_>,
    ) -> Answer {
        if readers.is_empty() {
            return self.release(id, desk);
        }
        if !readers.contains(&rank) || !self.knows(id, || Claim::new(readers, desk.now)) {
            return Answer::Over;
        }
        let Some(claim) = self.claims.get_mut(id) else { return Answer::Over };
        let token = match claim.token_of(agent) {
            Some(token) => token,
            None if claim.admits(rank, agent, readers) => {
                let token = desk.tokens.draw(&self.lease.id);
                claim.seat(rank, agent, token);
                self.open += 1;
                let tables = self.lease.tables.clone();
                desk.out.actions.push_back(Action::Grant { reader: agent, token, tables });
                token
            }
            None => return Answer::Over,
        };
        claim.extend(desk.now, desk.bounds);
        self.grant(id, token, desk.now)
    }

    /// Whether the claim is known by now: a lease that has an outcome takes no new one.
    fn knows(&mut self, id: &ClaimId, new: impl FnOnce() -> Claim) -> bool {
        let known = self.claims.contains_key(id);
        let takes = self.outcome.is_none() && self.claims.len() < MAX_CLAIMS;
        if !known && takes {
            self.claims.insert(id.clone(), new());
        }
        known || takes
    }

    fn grant(&self, id: &ClaimId, token: ReadToken, now: Time) -> Answer {
        let Lease { prompt, ref tables, .. } = self.lease;
        Answer::Granted(Grant { token, prompt, left: self.left(id, now), tables: tables.clone() })
    }

    fn left(&self, id: &ClaimId, now: Time) -> Time {
        let until = self.claims.get(id).and_then(Claim::deadline);
        until.unwrap_or(now).saturating_sub(now)
    }

    pub(crate) fn renew(&mut self, id: &ClaimId, agent: AgentEpoch, desk: &Desk<'_>) -> Answer {
        match self.claims.get_mut(id) {
            Some(claim) if claim.token_of(agent).is_some() => {
                claim.extend(desk.now, desk.bounds);
                Answer::Renewed { left: self.left(id, desk.now) }
            }
            _ => Answer::Over,
        }
    }

    pub(crate) fn done(&mut self, id: &ClaimId, agent: AgentEpoch, desk: &mut Desk<'_>) -> Answer {
        let Some(claim) = self.claims.get_mut(id) else { return Answer::Over };
        match claim.done(agent) {
            Notice::Refused => return Answer::Over,
            Notice::Again => return Answer::Alive,
            Notice::Counted(token) => desk.out.actions.push_back(Action::Revoke { token }),
        }
        if claim.all_done() {
            claim.end();
            self.outcome.get_or_insert(Why::Satisfied);
        }
        Answer::Alive
    }

    /// The claimant's word that nobody will read. It counts before the claim itself, which
    /// another rank of D may still send; it changes nothing about a claim that has ended.
    pub(crate) fn release(&mut self, id: &ClaimId, desk: &mut Desk<'_>) -> Answer {
        let new = !self.claims.contains_key(id);
        if !self.knows(id, || Claim::ended(desk.now)) {
            return Answer::Over;
        }
        let ends = self.claims.get_mut(id).filter(|claim| claim.lives());
        if let Some(claim) = ends {
            revoke(claim.end(), desk.out);
        } else if !new {
            return Answer::Released;
        }
        self.outcome.get_or_insert(Why::Released);
        Answer::Released
    }

    /// Ends the claims that this worker can no longer read to the end.
    pub(crate) fn peer_lost(&mut self, agent: AgentEpoch, now: Time, out: &mut Outbox) {
        for claim in self.claims.values_mut().filter(|claim| claim.token_of(agent).is_some()) {
            revoke(claim.end(), out);
            self.idle_since = now;
        }
    }

    /// Ends what has come to its time.
    pub(crate) fn expire(&mut self, now: Time, bounds: &Bounds, out: &mut Outbox) {
        for claim in self.claims.values_mut() {
            if let Some(until) = claim.deadline().filter(|until| *until <= now) {
                revoke(claim.end(), out);
                self.idle_since = self.idle_since.max(until);
            }
        }
        if self.outcome.is_none() && self.over_at(bounds) <= now {
            self.outcome = Some(Why::Over);
        }
    }

    /// When the lease is over although nobody said so.
    fn over_at(&self, bounds: &Bounds) -> Time {
        let oldest = self.born.saturating_add(bounds.oldest);
        if self.living().next().is_some() {
            return oldest;
        }
        oldest.min(self.idle_since.saturating_add(bounds.unclaimed))
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(crate) fn deadline(&self, bounds: &Bounds) -> Option<Time> {
        let over = self.outcome.is_none().then(|| self.over_at(bounds));
        self.living().filter_map(Claim::deadline).chain(over).min()
    }

    pub(crate) fn living(&self) -> impl Iterator<Item = &Claim> {
        self.claims.values().filter(|claim| claim.lives())
    }

    /// A token of this lease can no longer be used.
    pub(crate) fn revoked(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// How the lease ended, once its blocks may be used again.
    pub(crate) fn freed(&self) -> Option<Why> {
        let quiet = self.open == 0 && self.living().next().is_none();
        self.outcome.filter(|_| quiet)
    }
}

fn revoke(tokens: Vec<ReadToken>, out: &mut Outbox) {
    out.actions.extend(tokens.into_iter().map(|token| Action::Revoke { token }));
}
