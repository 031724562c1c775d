//! What must hold, worked out from what can be seen from outside the machines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use connector::message::{Answer, Request};
use connector::{AgentEpoch, ClaimId, LeaseId, Rank, Why};

use super::claims::Claims;
use super::events::Who;
use super::setup::{MS, SEC};

/// A rule that somebody broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oracle {
    /// Every frame is the message that it was made of.
    Codec,
    /// A read token is given once and revoked once.
    Tokens,
    /// Nothing is read for a request that has ended.
    Reads,
    /// A read writes only into blocks of its own request.
    WriteAfterFree,
    /// P's blocks are not used again while they are sent.
    FreedWhileServed,
    /// D's blocks are not used again while a read may write them.
    FreedUnderRead,
    /// Blocks are given back once, by their owner.
    FreedTwice,
    /// P frees a lease only when no claim of it lives.
    FreedUnderClaim,
    /// P frees a lease within its bounds.
    LateFree,
    /// Where peers can be reached, P is told of every request that nobody will read.
    Untold,
    /// What was released is never granted, and what has ended never said to be intact.
    Revived,
    /// A worker of D has one claim of a lease at a time.
    OneClaim,
    /// D waits for nobody longer than its bounds say.
    LateEnd,
    /// Everything ends once, and as its state allows.
    Ends,
    /// What D publishes is what the prefill of its own lease wrote.
    WrongBytes,
    /// A model that goes on from what D publishes gives the logits that it gives without a
    /// hand-off, bit for bit.
    OtherLogits,
    /// What was read after P had freed it is never received.
    StaleRead,
    /// Nobody touches memory that was withdrawn.
    Withdrawn,
    /// A dead peer is forgotten in time.
    DeadPeer,
    /// Queues and windows stay within their limits.
    Limits,
    /// Everything comes to rest within the bounds.
    Unsettled,
    /// At rest nothing is left.
    Leak,
    /// Where nothing goes wrong, every request is served.
    Unserved,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How long a claim lives, at least and at most, whatever the clocks: 20 s, 1 % off.
const CLAIM_MIN: u64 = 19_800 * MS;
const CLAIM_MAX: u64 = 20_210 * MS;

/// A lease is over when nobody has claimed it for 30 s, 1 % off.
const UNCLAIMED_MAX: u64 = 30_310 * MS;

/// Claims and leases end at 600 s, whatever happens.
const OLDEST_MIN: u64 = 590 * SEC;

/// What is seen of the leases of all prefill engines.
#[derive(Debug, Default)]
pub(crate) struct Oracles {
    /// What the workers of D have claimed.
    pub(crate) claims: Claims,
    leases: BTreeMap<LeaseId, Watched>,
}

#[derive(Debug)]
struct Watched {
    engine: usize,
    request: u32,
    /// Number of the prefill that wrote its blocks.
    write: u32,
    born: u64,
    ranks: BTreeMap<usize, AtRank>,
}

/// A lease at one rank.
#[derive(Debug, Default)]
struct AtRank {
    kept: u64,
    freed: Option<u64>,
    claims: BTreeMap<ClaimId, Claimed>,
}

#[derive(Debug, Default)]
struct Claimed {
    readers: BTreeSet<Rank>,
    agents: BTreeSet<AgentEpoch>,
    /// Who has given it up, and been heard.
    released: BTreeSet<AgentEpoch>,
    alive: BTreeSet<AgentEpoch>,
    /// The last granted or renewed answer.
    answered: Option<u64>,
    ended: Option<u64>,
}

impl Claimed {
    /// What a peer has said of it, if it came before the lease.
    fn forget(&mut self, peer: AgentEpoch) {
        self.released.remove(&peer);
    }

    /// The last moment at which it may live.
    fn end(&self) -> u64 {
        let lapses = self.answered.map(|at| at + CLAIM_MAX);
        self.ended.or(lapses).unwrap_or(0)
    }

    fn lives(&self, now: u64) -> bool {
        self.ended.is_none() && self.answered.is_some_and(|at| now < at + CLAIM_MIN)
    }
}

impl Oracles {
    pub(crate) fn granted(
        &mut self,
        now: u64,
        engine: usize,
        lease: &LeaseId,
        (request, write): (u32, u32),
    ) {
        let watched = Watched { engine, request, write, born: now, ranks: BTreeMap::new() };
        self.leases.insert(lease.clone(), watched);
    }

    pub(crate) fn request_of(&self, lease: &LeaseId) -> Option<u32> {
        self.leases.get(lease).map(|watched| watched.request)
    }

    pub(crate) fn born(&self, lease: &LeaseId) -> Option<u64> {
        self.leases.get(lease).map(|watched| watched.born)
    }

    pub(crate) fn write_of(&self, lease: &LeaseId) -> Option<u32> {
        self.leases.get(lease).map(|watched| watched.write)
    }

    fn at(&mut self, who: Who, lease: &LeaseId) -> Option<&mut AtRank> {
        self.leases.get_mut(lease).map(|watched| watched.ranks.entry(who.rank).or_default())
    }

    pub(crate) fn kept(&mut self, now: u64, who: Who, lease: &LeaseId) {
        if let Some(at) = self.at(who, lease) {
            at.kept = now;
        }
    }

    /// D asks P's rank.
    pub(crate) fn asked(&mut self, who: Who, from: AgentEpoch, claim: &ClaimId, request: &Request) {
        let Some(at) = self.at(who, &claim.lease) else { return };
        let claimed = at.claims.entry(claim.clone()).or_default();
        match request {
            Request::Claim { readers, .. } if !readers.is_empty() => {
                claimed.readers.extend(readers.iter().copied());
            }
            Request::Claim { .. } | Request::Release => {
                // The word of a reader who was counted is about a sample that came too late.
                if !claimed.alive.contains(&from) {
                    claimed.released.insert(from);
                }
            }
            Request::Renew | Request::Done | Request::Check { .. } => {}
        }
    }

    /// P's rank answers. Gives the rule that this breaks.
    pub(crate) fn answered(
        &mut self,
        now: u64,
        who: Who,
        to: AgentEpoch,
        claim: &ClaimId,
        answer: &Answer,
    ) -> Option<(Oracle, String)> {
        let at = self.at(who, &claim.lease)?;
        let claimed = at.claims.entry(claim.clone()).or_default();
        match answer {
            Answer::Granted(_) if !claimed.released.is_empty() => {
                let what = format!("{who:?} grants {claim:?}, which was released");
                return Some((Oracle::Revived, what));
            }
            Answer::Granted(_) => {
                claimed.answered = Some(now);
                claimed.agents.insert(to);
            }
            Answer::Intact { .. } if claimed.ended.is_some() && !claimed.alive.contains(&to) => {
                let what = format!("{who:?} calls {claim:?} intact, which has ended");
                return Some((Oracle::Revived, what));
            }
            Answer::Renewed { .. } => claimed.answered = Some(now),
            Answer::Alive => {
                claimed.alive.insert(to);
                if claimed.alive.len() >= claimed.readers.len() {
                    claimed.ended.get_or_insert(now);
                }
            }
            Answer::Released => {
                claimed.ended.get_or_insert(now);
            }
            // It came before the lease and waited in vain.
            Answer::Unknown => claimed.forget(to),
            Answer::Pending | Answer::Over | Answer::Intact { .. } => {}
        }
        None
    }

    /// A worker takes a peer for dead.
    pub(crate) fn peer_lost(&mut self, now: u64, who: Who, peer: AgentEpoch) {
        for watched in self.leases.values_mut().filter(|watched| watched.engine == who.engine) {
            let Some(at) = watched.ranks.get_mut(&who.rank) else { continue };
            if at.kept == 0 {
                // What waits for the lease is forgotten with whom it came from.
                at.claims.values_mut().for_each(|claimed| claimed.forget(peer));
            }
            let of = |claimed: &&mut Claimed| {
                claimed.agents.contains(&peer) && !claimed.alive.contains(&peer)
            };
            for claimed in at.claims.values_mut().filter(of) {
                claimed.ended.get_or_insert(now);
            }
        }
    }

    /// A worker ends all its claims, since its memory is to be taken away.
    pub(crate) fn withdraws(&mut self, now: u64, who: Who) {
        for watched in self.leases.values_mut().filter(|watched| watched.engine == who.engine) {
            let at = watched.ranks.get_mut(&who.rank);
            at.into_iter().flat_map(|at| at.claims.values_mut()).for_each(|claimed| {
                claimed.ended.get_or_insert(now);
            });
        }
    }

    /// P's rank frees a lease. Gives the rule that this breaks. `stood` is until when it stood
    /// still.
    pub(crate) fn freed(
        &mut self,
        now: u64,
        who: Who,
        lease: &LeaseId,
        why: Why,
        stood: u64,
    ) -> Option<(Oracle, String)> {
        let born = self.leases.get(lease)?.born;
        let at = self.at(who, lease)?;
        if at.freed.replace(now).is_some() {
            return Some((Oracle::FreedTwice, format!("rank {} frees {lease:?} twice", who.rank)));
        }
        let lives = at.claims.iter().find(|(_, claimed)| claimed.lives(now));
        if let Some((claim, claimed)) = lives.filter(|_| now < born + OLDEST_MIN) {
            let what = format!("{who:?} frees under {claim:?}, {claimed:?}");
            return Some((Oracle::FreedUnderClaim, what));
        }
        let end = at.claims.values().map(Claimed::end).max().unwrap_or(0).max(at.kept);
        let bound = match why {
            Why::Satisfied | Why::Released => SEC,
            Why::Over => UNCLAIMED_MAX + SEC,
        };
        let what = || format!("{who:?} frees ({why:?}) at {now}, {end} was the end");
        (now > end.max(stood) + bound).then(|| (Oracle::LateFree, what()))
    }

    /// When the last rank freed a lease.
    pub(crate) fn returned(&self, lease: &LeaseId) -> Option<u64> {
        self.leases.get(lease)?.ranks.values().filter_map(|at| at.freed).max()
    }

    /// Ranks of P that were read after they had freed a lease.
    pub(crate) fn stale(&self, lease: &LeaseId, taken: &BTreeMap<usize, u64>) -> Option<usize> {
        let watched = self.leases.get(lease)?;
        let stale = |(rank, at): (&usize, &u64)| {
            let freed = watched.ranks.get(rank).and_then(|rank| rank.freed);
            freed.is_some_and(|freed| freed < *at).then_some(*rank)
        };
        taken.iter().find_map(stale)
    }

    /// What a dead worker kept is gone.
    pub(crate) fn died(&mut self, now: u64, who: Who) {
        for watched in self.leases.values_mut().filter(|watched| watched.engine == who.engine) {
            watched.ranks.entry(who.rank).or_default().freed.get_or_insert(now);
        }
    }

    /// Leases that a worker was told to keep and never freed.
    pub(crate) fn kept_by(&self, lease: &LeaseId, rank: usize) -> bool {
        let at = self.leases.get(lease).and_then(|watched| watched.ranks.get(&rank));
        at.is_some_and(|at| at.kept > 0 && at.freed.is_none())
    }
}
