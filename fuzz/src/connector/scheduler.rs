//! A scheduler under any sequence of finished requests, freed leases and parameters.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::connector::params::{Address, RankAddress};
use ::connector::{
    EngineEpoch, Finished, LeaseId, Nonce, Order, Outcome, PromptDigest, Rank, RequestId, Scheduler,
};
use kv_layout::BlockTable;

use super::texts::legal_params;
use crate::{Bytes, json};

/// Ranks of the engine.
const RANKS: u32 = 3;

/// Each lease is granted once while it lives and ends once, when the last of its ranks says so.
pub fn scheduler(input: &[u8]) {
    let mut from = Bytes::new(input);
    let Some(mut scheduler) = make() else { return };
    let mut live: Vec<(LeaseId, BTreeSet<u32>)> = Vec::new();
    for _ in 0..256 {
        if from.is_empty() {
            break;
        }
        match from.below(4) {
            0 => finish(&mut scheduler, &mut live, &mut from),
            1 | 2 => freed(&mut scheduler, &mut live, &mut from),
            _ => admit(&scheduler, &mut from),
        }
        assert_eq!(scheduler.leases(), live.len());
    }
    for (lease, ranks) in live {
        ranks.iter().for_each(|rank| scheduler.freed(&lease, Rank(*rank)));
        assert_eq!(scheduler.poll_outcome(), Some(Outcome::Freed(lease)));
    }
    assert_eq!(scheduler.leases(), 0);
}

fn make() -> Option<Scheduler> {
    let rank = |_| RankAddress { host: "h".to_owned(), port: 1 };
    let others = (1..RANKS).map(rank).collect();
    let address = Address { engine_id: "p".to_owned(), tp_size: RANKS, first: rank(0), others };
    Scheduler::new(EngineEpoch(1), address).ok()
}

fn finish(
    scheduler: &mut Scheduler,
    live: &mut Vec<(LeaseId, BTreeSet<u32>)>,
    from: &mut Bytes<'_>,
) {
    let Some(id) = lease_id(from) else { return };
    let valid = if from.chance(8) { 0 } else { from.number() };
    let tables = tables(from);
    let fits = valid > 0 && tables.len() <= 64 && live.iter().all(|(lease, _)| *lease != id);
    let finished = Finished {
        request: id.request.clone(),
        nonce: id.nonce,
        prompt: PromptDigest { valid, sha256: [0; 32] },
        tables,
    };
    let granted = scheduler.finish(finished);
    assert_eq!(granted.is_ok(), fits);
    if let Ok(params) = granted {
        let order = scheduler.poll_order();
        assert!(matches!(order, Some(Order::Keep(lease)) if lease.id == id));
        assert_eq!((&params.lease, params.tokens), (&id, valid));
        live.push((id, (0..RANKS).collect()));
    }
}

fn tables(from: &mut Bytes<'_>) -> Arc<[BlockTable]> {
    let count = if from.chance(8) { from.within(60, 68) } else { from.within(0, 2) };
    let table = || BlockTable { first_token: 0, ids: [1, 2].into() };
    (0..count).map(|_| table()).collect()
}

fn freed(
    scheduler: &mut Scheduler,
    live: &mut Vec<(LeaseId, BTreeSet<u32>)>,
    from: &mut Bytes<'_>,
) {
    let Some(id) = lease_id(from) else { return };
    let rank = from.within(0, RANKS);
    let at = live.iter().position(|(lease, _)| *lease == id);
    let last = at.is_some_and(|at| {
        live[at].1.remove(&rank);
        live[at].1.is_empty()
    });
    scheduler.freed(&id, Rank(rank));
    assert_eq!(scheduler.poll_outcome(), last.then_some(Outcome::Freed(id)));
    if let Some(at) = at.filter(|_| last) {
        live.remove(at);
    }
}

fn lease_id(from: &mut Bytes<'_>) -> Option<LeaseId> {
    let request = RequestId::new(from.pick(&["a", "b"])).ok()?;
    Some(LeaseId { engine: EngineEpoch(1), request, nonce: Nonce(from.within(0, 2).into()) })
}

fn admit(scheduler: &Scheduler, from: &mut Bytes<'_>) {
    let mut params = legal_params();
    if from.chance(2) {
        json::spoil(&mut params, &mut from.clone());
    }
    let Ok(request) = RequestId::new("q") else { return };
    if let Ok(remote) = scheduler.admit(request, &params) {
        assert_eq!(remote.claim.engine, EngineEpoch(1));
        assert!(remote.tokens > 0);
    }
}
