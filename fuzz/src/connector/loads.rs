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

/// Requests under way.
type Open = BTreeMap<RequestId, Under>;

struct Under {
    claim: ClaimId,
    /// Ranks that have not spoken.
    ranks: BTreeSet<u32>,
    /// Every rank that has spoken has its share, or none to have.
    right: bool,
}

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
        for under in open.values_mut() {
            under.ranks.remove(&rank);
            under.right = false;
        }
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
        let ranks = (0..RANKS).collect();
        open.insert(claim.request.clone(), Under { claim, ranks, right: true });
    }
}

fn allocation(from: &mut Bytes<'_>) -> Allocation {
    let window = Kind::SlidingWindow { window: from.within(0, 64) };
    let groups = (0..from.below(3)).map(|_| (window, from.number())).collect();
    Allocation { tables: [].into(), resume_at: from.number(), align: from.number(), groups }
}

fn how(from: &mut Bytes<'_>) -> Ended {
    match from.below(5) {
        0 | 1 => Ended::Received,
        2 => Ended::Failed(Failure::Over),
        3 => Ended::Nothing,
        _ => Ended::Released,
    }
}

fn speak(scheduler: &mut Scheduler, open: &mut Open, rank: u32, claim: &ClaimId, how: Ended) {
    let before = scheduler.strays();
    let right = matches!(how, Ended::Received | Ended::Nothing);
    scheduler.ended(Rank(rank), claim, how);
    let waits = open.get_mut(&claim.request).filter(|under| under.claim == *claim);
    let counts = waits.is_some_and(|under| {
        let counts = under.ranks.remove(&rank);
        under.right &= right || !counts;
        counts
    });
    assert_eq!(scheduler.strays() - before, u64::from(!counts));
}

/// Takes orders and outcomes: none of a request that is gone.
fn settle(scheduler: &mut Scheduler, open: &mut Open) {
    while let Some(outcome) = scheduler.poll_outcome() {
        let received = matches!(outcome, Outcome::Received(_));
        let request = match outcome {
            Outcome::Received(request)
            | Outcome::Released(request)
            | Outcome::Failed { request, .. } => Some(request),
            Outcome::Freed(_) => None,
        };
        let under = request.and_then(|request| open.remove(&request));
        assert!(under.as_ref().is_some_and(|under| under.ranks.is_empty()), "when all have spoken");
        assert!(!received || under.is_some_and(|under| under.right), "received by every rank");
    }
    // One that was given up without blocks has none.
    open.retain(|_, under| !under.ranks.is_empty());
    assert_eq!(scheduler.requests(), open.len());
    while let Some(order) = scheduler.poll_order() {
        assert!(!matches!(order, Order::Keep(_)));
    }
}
