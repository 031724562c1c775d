use kv_layout::BlockTable;

use super::support::{D, P, lease_id, prompt, request};
use crate::params::{Address, ParamsError, RankAddress};
use crate::*;

/// An engine of so many ranks.
fn address(ranks: u16) -> Address {
    let rank = |port| RankAddress { host: "h".into(), port };
    let others = (2..=ranks).map(rank).collect();
    Address { engine_id: "p".into(), tp_size: ranks.into(), first: rank(1), others }
}

pub(super) fn scheduler(ranks: u16) -> Scheduler {
    Scheduler::new(P.engine, address(ranks)).unwrap()
}

fn finished(tables: usize, blocks: u32) -> Finished {
    let table = BlockTable { first_token: 0, ids: (0..blocks).collect() };
    let tables = vec![table; tables].into();
    Finished { request: request("prompt"), nonce: Nonce(1), prompt: prompt(), tables }
}

#[test]
fn freed_when_every_rank_has_freed() {
    let mut p = scheduler(2);
    p.finish(finished(1, 3)).unwrap();
    let Some(Order::Keep(lease)) = p.poll_order() else { panic!("every worker must keep it") };
    assert_eq!(lease.id, lease_id(1));
    assert_eq!(p.finish(finished(1, 3)), Err(FinishError::Duplicate));
    assert_eq!(p.poll_order(), None);
    p.freed(&lease.id, Rank(1));
    p.freed(&lease.id, Rank(1));
    assert_eq!((p.leases(), p.poll_outcome()), (1, None), "the same rank twice counts once");
    p.freed(&lease.id, Rank(0));
    p.freed(&lease.id, Rank(0));
    assert_eq!(p.poll_outcome(), Some(Outcome::Freed(lease.id)));
    assert_eq!((p.leases(), p.poll_outcome()), (0, None));
}

#[test]
fn decode_reads_what_prefill_wrote() {
    let params = scheduler(2).finish(finished(1, 3)).unwrap();
    let d = Scheduler::new(D.engine, address(1)).unwrap();
    let admitted = d.admit(request("answer"), &params.to_json()).unwrap();
    let claim = ClaimId { lease: lease_id(1), engine: D.engine, request: request("answer") };
    assert_eq!(admitted.claim, claim);
    assert_eq!((admitted.tokens, admitted.address), (3, address(2)));
}

#[test]
fn what_no_peer_would_take() {
    let mut p = scheduler(1);
    let size = |tables, blocks| Err(FinishError::Size { tables, blocks });
    assert_eq!(p.finish(finished(65, 0)), size(65, 0));
    assert_eq!(p.finish(finished(2, 1_000_001)), size(2, 2_000_002));
    let mut nothing = finished(1, 3);
    nothing.prompt.valid = 0;
    assert_eq!(p.finish(nothing), Err(FinishError::NoTokens));
    assert_eq!(p.leases(), 0);
    let mut nowhere = address(1);
    nowhere.first.host.clear();
    let refused = Scheduler::new(P.engine, nowhere).unwrap_err();
    assert!(matches!(refused, ParamsError::Field { field: "remote_host", .. }));
}

/// The memory of a lost worker needs no lease.
#[test]
fn freed_when_the_last_worker_is_lost() {
    let mut p = scheduler(2);
    p.finish(finished(1, 3)).unwrap();
    p.freed(&lease_id(1), Rank(0));
    p.worker_lost(Rank(1));
    assert_eq!(p.poll_outcome(), Some(Outcome::Freed(lease_id(1))));
    assert_eq!(p.leases(), 0);
}

#[test]
fn an_engine_that_only_fetches_promises_nothing() {
    let mut d = Scheduler::of_decode(EngineEpoch(2), 2);
    let tables = [].into();
    let finished = Finished { request: request("r"), nonce: Nonce(1), prompt: prompt(), tables };
    assert_eq!(d.finish(finished), Err(FinishError::NoAddress));
    assert_eq!((d.poll_order(), d.leases()), (None, 0));
}
