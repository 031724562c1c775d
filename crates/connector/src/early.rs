use std::collections::{BTreeMap, BTreeSet};

use crate::bounds::Time;
use crate::ids::{AgentEpoch, ClaimId, LeaseId};
use crate::limits::MAX_EARLY;
use crate::message::Request;
use crate::timers::Timers;

/// Requests that overtook P's own scheduler: they wait for their lease, for a short time.
/// Limited per peer, so that garbage costs only its sender.
#[derive(Debug)]
pub(crate) struct Early {
    requests: BTreeMap<AgentEpoch, BTreeMap<ClaimId, Request>>,
    timers: Timers<(AgentEpoch, ClaimId)>,
}

impl Early {
    pub(crate) fn new() -> Self {
        Self { requests: BTreeMap::new(), timers: Timers::new() }
    }

    /// Keeps a request until `until`, or says that there is no room. A later request of the same
    /// claim takes the place of the one before, without more time; what was given up stays so.
    pub(crate) fn hold(
        &mut self,
        agent: AgentEpoch,
        claim: &ClaimId,
        request: Request,
        until: Time,
    ) -> bool {
        let of_peer = self.requests.entry(agent).or_default();
        if let Some(before) = of_peer.get_mut(claim) {
            if *before != Request::Release {
                *before = request;
            }
            return true;
        }
        if of_peer.len() >= MAX_EARLY {
            return false;
        }
        of_peer.insert(claim.clone(), request);
        self.timers.set(&(agent, claim.clone()), Some(until));
        true
    }

    /// Takes what waits for a lease, in the order in which it is to be served: nobody is granted
    /// a claim that another rank has given up, and nobody's release ends what others wait for.
    pub(crate) fn take(&mut self, lease: &LeaseId) -> Vec<(AgentEpoch, ClaimId, Request)> {
        let waiting = self.requests.iter().flat_map(|(agent, of_peer)| {
            of_peer
                .keys()
                .filter(|claim| claim.lease == *lease)
                .map(|claim| (*agent, claim.clone()))
        });
        let keys: Vec<_> = waiting.collect();
        let mut taken: Vec<_> = keys.into_iter().filter_map(|key| self.remove(key)).collect();
        let released: BTreeSet<_> = taken
            .iter()
            .filter(|(.., request)| *request == Request::Release)
            .map(|(_, claim, _)| claim.clone())
            .collect();
        taken.sort_by_key(|(_, claim, request)| {
            (released.contains(claim), *request != Request::Release)
        });
        taken
    }

    /// Takes one request that waited too long.
    pub(crate) fn pop(&mut self, now: Time) -> Option<(AgentEpoch, ClaimId, Request)> {
        let key = self.timers.pop(now)?;
        self.remove(key)
    }

    pub(crate) fn forget(&mut self, agent: AgentEpoch) {
        for claim in self.requests.remove(&agent).unwrap_or_default().into_keys() {
            self.timers.set(&(agent, claim), None);
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.timers.next()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.values().map(BTreeMap::len).sum()
    }

    fn remove(&mut self, key: (AgentEpoch, ClaimId)) -> Option<(AgentEpoch, ClaimId, Request)> {
        self.timers.set(&key, None);
        let (agent, claim) = key;
        let of_peer = self.requests.get_mut(&agent)?;
        let request = of_peer.remove(&claim)?;
        if of_peer.is_empty() {
            self.requests.remove(&agent);
        }
        Some((agent, claim, request))
    }
}
