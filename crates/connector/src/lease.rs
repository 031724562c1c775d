use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::bounds::{Bounds, Time};
use crate::claim::{Claim, Notice, Place};
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

impl Desk<'_> {
    /// Lets a worker read the blocks of a lease.
    fn grant(&mut self, reader: AgentEpoch, lease: &Lease) -> ReadToken {
        let token = self.tokens.draw(&lease.id);
        let tables = lease.tables.clone();
        self.out.actions.push_back(Action::Grant { reader, token, tables });
        token
    }
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
            return self.release(id, agent, desk);
        }
        if !readers.contains(&rank) {
            return Answer::Over;
        }
        let takes = self.takes_new();
        let Some(claim) =
            known_or_new(&mut self.claims, id, takes, || Claim::new(readers, desk.now))
        else {
            return Answer::Over;
        };
        let token = match claim.place(rank, agent, readers) {
            Place::Refused => return Answer::Over,
            Place::Held(token) => token,
            Place::Free => {
                let token = desk.grant(agent, &self.lease);
                claim.seat(rank, agent, token);
                self.open += 1;
                token
            }
        };
        claim.extend(desk.now, desk.bounds);
        let Lease { prompt, ref tables, .. } = self.lease;
        Answer::Granted(Grant { token, prompt, left: claim.left(desk.now), tables: tables.clone() })
    }

    pub(crate) fn renew(&mut self, id: &ClaimId, agent: AgentEpoch, desk: &Desk<'_>) -> Answer {
        match self.claims.get_mut(id) {
            Some(claim) if claim.token_of(agent).is_some() => {
                claim.extend(desk.now, desk.bounds);
                Answer::Renewed { left: claim.left(desk.now) }
            }
            _ => Answer::Over,
        }
    }

    /// A reader asks whether what it has read so far counts. It does where the claim lives, and
    /// where this reader was counted: then it has asked before it was done.
    pub(crate) fn check(&self, id: &ClaimId, agent: AgentEpoch, number: u64) -> Answer {
        match self.claims.get(id) {
            Some(claim) if claim.is_intact_for(agent) => Answer::Intact { number },
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
    /// another rank of D may still send; it changes nothing about a claim that has ended. Nor does
    /// the word of a reader who is done: it speaks of a sample that came too late for this claim,
    /// under which other ranks may still read one that did not. It is answered as its `done` was.
    pub(crate) fn release(
        &mut self,
        id: &ClaimId,
        agent: AgentEpoch,
        desk: &mut Desk<'_>,
    ) -> Answer {
        if self.claims.get(id).is_some_and(|claim| claim.is_done(agent)) {
            return Answer::Alive;
        }
        let takes = self.takes_new();
        let new = !self.claims.contains_key(id);
        let claim = known_or_new(&mut self.claims, id, takes, || Claim::given_up(desk.now));
        let Some(claim) = claim else { return Answer::Over };
        if new || claim.lives() {
            revoke(claim.end(), desk.out);
            self.outcome.get_or_insert(Why::Released);
        }
        Answer::Released
    }

    /// A lease that has an outcome takes no new claim.
    fn takes_new(&self) -> bool {
        self.outcome.is_none() && self.claims.len() < MAX_CLAIMS
    }

    /// Ends the claims that this worker can no longer read to the end.
    pub(crate) fn peer_lost(&mut self, agent: AgentEpoch, now: Time, out: &mut Outbox) {
        for claim in self.claims.values_mut().filter(|claim| claim.token_of(agent).is_some()) {
            revoke(claim.end(), out);
            self.idle_since = now;
        }
    }

    /// Ends all claims and the lease: the memory is being taken away.
    pub(crate) fn withdraw(&mut self, now: Time, out: &mut Outbox) {
        self.claims.values_mut().for_each(|claim| revoke(claim.end(), out));
        self.idle_since = now;
        self.outcome.get_or_insert(Why::Over);
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

fn known_or_new<'a>(
    claims: &'a mut BTreeMap<ClaimId, Claim>,
    id: &ClaimId,
    takes_new: bool,
    new: impl FnOnce() -> Claim,
) -> Option<&'a mut Claim> {
    match claims.entry(id.clone()) {
        Entry::Occupied(known) => Some(known.into_mut()),
        Entry::Vacant(vacant) => takes_new.then(|| vacant.insert(new())),
    }
}
