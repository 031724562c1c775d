use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{LeaseId, Rank};

/// P's side of a scheduler: which leases still bind the blocks of which ranks.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// The ranks of each live lease that have not freed it.
    live: BTreeMap<LeaseId, BTreeSet<Rank>>,
}

impl Promises {
    /// Binds the blocks of all ranks; false where the lease is there already.
    pub(crate) fn make(&mut self, lease: &LeaseId, ranks: impl Iterator<Item = Rank>) -> bool {
        if self.live.contains_key(lease) {
            return false;
        }
        self.live.insert(lease.clone(), ranks.collect());
        true
    }

    /// One rank has freed the lease; true once, when the last one did.
    pub(crate) fn freed(&mut self, lease: &LeaseId, rank: Rank) -> bool {
        let Some(ranks) = self.live.get_mut(lease) else { return false };
        ranks.remove(&rank);
        ranks.is_empty() && self.live.remove(lease).is_some()
    }

    /// A worker is gone and its memory with it. Gives the leases that no rank binds any more.
    pub(crate) fn worker_lost(&mut self, rank: Rank) -> Vec<LeaseId> {
        let all: Vec<_> = self.live.keys().cloned().collect();
        all.into_iter().filter(|lease| self.freed(lease, rank)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }
}
