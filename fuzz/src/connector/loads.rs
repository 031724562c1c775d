//! A decode engine's scheduler under any sequence of what its engine and its ranks say.

use std::collections::{BTreeMap, BTreeSet};

use ::connector::params::{Address, RankAddress};
use ::connector::{
    Allocation, ClaimId, Ended, EngineEpoch, Failure, LeaseId, Nonce, Order, Outcome, PromptDigest,
    Rank, RemotePrefill, RequestId, Scheduler,
};
use kv_layout::Kind;

use crate::Bytes;

/// Ranks of the engine.
const RANKS: u32 = 3;

/// Requests under way, with the ranks that have not spoken.
type Open = BTreeMap<RequestId, (ClaimId, BTreeSet<u32>)>;

/// Each request has one outcome at most, when the last of its ranks has spoken.
pub fn loads(input: &[u8]) {
    let mut from = Bytes::new(input);
    let Some((mut scheduler, at)) = make() else { return };
    let mut open = Open::new();
    for _ in 0..256 {
        if from.is_empty() {
            break;
        }
        let Some(claim) = claim(&mut from) else { return };
        match from.below(6) {
            0 | 1 => fetch(&mut scheduler, &mut open, claim, at.clone()),
            2 => scheduler.allocate(&claim.request, allocation(&mut from)),
            3 => scheduler.release(&claim.request),
            _ => {
                let rank = from.within(0, RANKS);
                speak(&mut scheduler, &mut open, rank, &claim, how(&mut from));
            }
        }
        settle(&mut scheduler, &mut open);
    }
    for rank in 0..RANKS {
        scheduler.worker_lost(Rank(rank));
        open.values_mut().for_each(|(_, ranks)| ranks.retain(|other| *other != rank));
        settle(&mut scheduler, &mut open);
    }
    assert_eq!(scheduler.requests(), 0);
}

fn make() -> Option<(Scheduler, Address)> {
    let rank = |_| RankAddress { host: "h".to_owned(), port: 1 };
    let others = (1..RANKS).map(rank).collect();
    let at = Address { engine_id: "d".to_owned(), tp_size: RANKS, first: rank(0), others };
    Some((Scheduler::new(EngineEpoch(2), at.clone()).ok()?, at))
}

fn claim(from: &mut Bytes<'_>) -> Option<ClaimId> {
    let request = RequestId::new(from.pick(&["a", "b", "c"])).ok()?;
    let nonce = Nonce(from.within(0, 1).into());
    let lease = LeaseId { engine: EngineEpoch(1), request: request.clone(), nonce };
    Some(ClaimId { lease, engine: EngineEpoch(2), request })
}

fn fetch(scheduler: &mut Scheduler, open: &mut Open, claim: ClaimId, address: Address) {
    let prompt = PromptDigest { valid: 1, sha256: [0; 32] };
    let remote = RemotePrefill { claim: claim.clone(), address, tokens: 1 };
    let fresh = !open.contains_key(&claim.request);
    assert_eq!(scheduler.fetch(remote, prompt).is_ok(), fresh);
    if fresh {
        open.insert(claim.request.clone(), (claim, (0..RANKS).collect()));
    }
}

fn allocation(from: &mut Bytes<'_>) -> Allocation {
    let window = Kind::SlidingWindow { window: from.within(0, 64) };
    let groups = (0..from.below(3)).map(|_| (window, from.number())).collect();
    Allocation { resume_at: from.number(), align: from.number(), groups }
}

fn how(from: &mut Bytes<'_>) -> Ended {
    match from.below(3) {
        0 => Ended::Received,
        1 => Ended::Failed(Failure::Over),
        _ => Ended::Released,
    }
}

fn speak(scheduler: &mut Scheduler, open: &mut Open, rank: u32, claim: &ClaimId, how: Ended) {
    let before = scheduler.strays();
    scheduler.ended(Rank(rank), claim, how);
    let waits = open.get_mut(&claim.request).filter(|(open, _)| open == claim);
    let counts = waits.is_some_and(|(_, ranks)| ranks.remove(&rank));
    assert_eq!(scheduler.strays() - before, u64::from(!counts));
}

/// Takes orders and outcomes: none of a request that is gone.
fn settle(scheduler: &mut Scheduler, open: &mut Open) {
    while let Some(outcome) = scheduler.poll_outcome() {
        let request = match outcome {
            Outcome::Received(request)
            | Outcome::Released(request)
            | Outcome::Failed { request, .. } => Some(request),
            Outcome::Freed(_) => None,
        };
        let of = request.and_then(|request| open.remove(&request));
        assert!(of.is_some_and(|(_, ranks)| ranks.is_empty()), "one, when the last has spoken");
    }
    // One that was given up without blocks has none.
    open.retain(|_, (_, ranks)| !ranks.is_empty());
    assert_eq!(scheduler.requests(), open.len());
    while let Some(order) = scheduler.poll_order() {
        assert!(!matches!(order, Order::Keep(_)));
    }
}
