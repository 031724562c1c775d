use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kv_layout::{BlockTable, Kind, Loaded, restart_at};
use serde::{Deserialize, Serialize};

use crate::ids::{ClaimId, LeaseId, Rank, RequestId};
use crate::io::Failure;

/// D's side of a scheduler: the requests that its ranks fetch, until every rank has said how it
/// ended. A request is received if all of them received their share.
#[derive(Debug)]
pub(crate) struct Loads {
    ranks: BTreeSet<Rank>,
    requests: BTreeMap<RequestId, Load>,
    /// The requests of each lease, of which there are several where one prompt has several
    /// samples.
    leases: BTreeMap<LeaseId, BTreeSet<RequestId>>,
}

#[derive(Debug)]
struct Load {
    claim: ClaimId,
    /// The request under whose claim it is read.
    shared: RequestId,
    /// Ranks that have not said how it ended.
    open: BTreeSet<Rank>,
    failure: Option<Failure>,
    /// Ranks that had nothing to read.
    idle: BTreeSet<Rank>,
    /// The engine does not want it any more.
    released: bool,
    blocks: Option<Arc<Allocation>>,
}

/// What a decode engine knows of the blocks that it has given to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The blocks to be filled, one table for each KV cache group. They may leave out at the
    /// front what the prefix cache had.
    pub tables: Arc<[BlockTable]>,
    /// First position that it will compute itself if the load succeeds.
    pub resume_at: u64,
    /// Tokens in whose steps it can start; 1 where it can start anywhere.
    pub align: u64,
    /// Of each KV cache group, what its layers see and how many tokens its own prefix cache had:
    /// 0 where the blocks of these are among those that are read into.
    pub groups: Vec<(Kind, u64)>,
}

/// How one rank ended a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// Its share is there.
    Received,
    /// It is not.
    Failed(Failure),
    /// It was given up. Unless the scheduler wished that, it has failed.
    Released,
    /// There is nothing to read at this rank.
    Nothing,
}

/// How a request ended over all ranks. Nothing can touch its blocks any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    Received,
    Failed {
        failure: Failure,
        recompute_from: Option<u64>,
    },
    Released,
    /// The engine gave it up before it had blocks: it does not wait for this.
    Unheard,
}

/// What the other ranks must be told of one rank's word.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// Nothing.
    Counted,
    /// To give the request up: it cannot succeed any more.
    First(ClaimId),
    /// All have spoken.
    Last(RequestId, Sum),
    /// It is of no request that waits for this rank.
    Stray,
}

impl Loads {
    pub(crate) fn new(ranks: impl Iterator<Item = Rank>) -> Self {
        Self { ranks: ranks.collect(), requests: BTreeMap::new(), leases: BTreeMap::new() }
    }

    /// Gives the request under whose claim it is to be read: that of other samples of the same
    /// prompt, where every rank still reads one of them. `None` where a request of this name is
    /// under way.
    ///
    /// This is decided here, since all ranks must come to P under one name, and a rank that is
    /// done with a claim can read no more under it. A rank whose word is still on its way is not
    /// known of: the new sample then fails, and the others do not.
    pub(crate) fn begin(&mut self, claim: &ClaimId) -> Option<RequestId> {
        if self.requests.contains_key(&claim.request) {
            return None;
        }
        let shared = self.shared(&claim.lease).unwrap_or_else(|| claim.request.clone());
        self.leases.entry(claim.lease.clone()).or_default().insert(claim.request.clone());
        let load = Load {
            claim: claim.clone(),
            shared: shared.clone(),
            open: self.ranks.clone(),
            failure: None,
            idle: BTreeSet::new(),
            released: false,
            blocks: None,
        };
        self.requests.insert(claim.request.clone(), load);
        Some(shared)
    }

    /// The name of a claim of a lease that goes on at every rank.
    fn shared(&self, lease: &LeaseId) -> Option<RequestId> {
        let samples = self.leases.get(lease)?.iter().filter_map(|name| self.requests.get(name));
        let wanted = |load: &&Load| load.failure.is_none() && !load.released;
        let samples: Vec<&Load> = samples.filter(wanted).collect();
        let goes_on = |name: &RequestId| {
            self.ranks.iter().all(|rank| {
                let mut under = samples.iter().filter(|load| load.shared == *name);
                under.any(|load| load.open.contains(rank) || load.idle.contains(rank))
            })
        };
        let names: BTreeSet<_> = samples.iter().map(|load| &load.shared).collect();
        names.into_iter().find(|name| goes_on(name)).cloned()
    }

    fn forget(&mut self, claim: &ClaimId) {
        self.requests.remove(&claim.request);
        if let Some(samples) = self.leases.get_mut(&claim.lease) {
            samples.remove(&claim.request);
            if samples.is_empty() {
                self.leases.remove(&claim.lease);
            }
        }
    }

    /// The engine has given blocks to a request. Gives its claim if they are to be filled.
    pub(crate) fn allocate(
        &mut self,
        request: &RequestId,
        blocks: Arc<Allocation>,
    ) -> Option<ClaimId> {
        let load = self.requests.get_mut(request)?;
        if load.released || load.blocks.is_some() {
            return None;
        }
        load.blocks = Some(blocks);
        Some(load.claim.clone())
    }

    /// The engine does not want a request any more. Gives its claim, once.
    pub(crate) fn release(&mut self, request: &RequestId) -> Option<ClaimId> {
        let load = self.requests.get_mut(request).filter(|load| !load.released)?;
        load.released = true;
        Some(load.claim.clone())
    }

    /// One rank says how it ended a request.
    pub(crate) fn ended(&mut self, rank: Rank, claim: &ClaimId, how: Ended) -> Vote {
        let Some(load) = self.requests.get_mut(&claim.request) else { return Vote::Stray };
        if load.claim != *claim || !load.open.remove(&rank) {
            return Vote::Stray;
        }
        if how == Ended::Nothing {
            load.idle.insert(rank);
        }
        let first = load.failure.is_none() && !load.released;
        match how {
            Ended::Failed(failure) if first => load.failure = Some(failure),
            Ended::Released if first => load.failure = Some(Failure::GivenUp),
            _ => {}
        }
        if !load.open.is_empty() {
            let given_up = first && load.failure.is_some();
            return if given_up { Vote::First(claim.clone()) } else { Vote::Counted };
        }
        let sum = load.sum();
        self.forget(claim);
        Vote::Last(claim.request.clone(), sum)
    }

    /// A rank is gone, and with it what it had received: it has to be spoken for, also where it
    /// has spoken. Gives the claims.
    pub(crate) fn lost(&mut self, rank: Rank) -> Vec<ClaimId> {
        let lost = self.requests.values_mut().map(|load| {
            load.open.insert(rank);
            load.claim.clone()
        });
        lost.collect()
    }

    /// The memory of every rank is being taken away: nothing that is under way is received,
    /// whatever ranks have said or will say.
    pub(crate) fn withdraw(&mut self) {
        for load in self.requests.values_mut() {
            load.failure.get_or_insert(Failure::Withdrawn);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }
}

impl Load {
    fn sum(&mut self) -> Sum {
        match (self.released, self.failure.take()) {
            (true, _) if self.blocks.is_none() => Sum::Unheard,
            (true, _) => Sum::Released,
            (false, None) => Sum::Received,
            (false, Some(failure)) => {
                let recompute_from = self.blocks.as_ref().map(|blocks| blocks.without_load());
                Sum::Failed { failure, recompute_from }
            }
        }
    }
}

impl Allocation {
    /// The last position from which all groups can go on with what they had before. What the
    /// other ranks and groups have received does not count: no commit covers a part.
    fn without_load(&self) -> u64 {
        if self.groups.is_empty() {
            // Of nothing it is known that it is there.
            return 0;
        }
        let group = |&(kind, hit): &(Kind, u64)| Loaded {
            kind,
            hit,
            // A state that was not loaded is missing whatever its hit.
            failed: std::iter::once(hit..self.resume_at.max(hit.saturating_add(1))).collect(),
        };
        let groups: Vec<_> = self.groups.iter().map(group).collect();
        restart_at(&groups, self.resume_at, self.align)
    }
}
