use std::sync::Arc;

use kv_layout::BlockTable;

use super::support::*;
use crate::*;

/// What a scheduler and its workers say crosses processes whole, and nothing half.
#[test]
fn orders_and_words_come_out_as_they_went_in() {
    let claim = claim_of(1, P);
    let table = BlockTable { first_token: 32, ids: [7, 9].into() };
    let tables: Arc<[BlockTable]> = [table].into();
    let groups = vec![(kv_layout::Kind::SlidingWindow { window: 64 }, 16)];
    let blocks = Allocation { tables: tables.clone(), resume_at: 99, align: 1, groups };
    let orders = vec![
        Order::Keep(Lease { id: claim.lease.clone(), prompt: prompt(), tables }),
        Order::Fetch(Fetch {
            claim: claim.clone(),
            prompt: prompt(),
            address: address(1),
            shared: Some(request("r")),
        }),
        Order::Read { claim: claim.clone(), blocks: blocks.into() },
        Order::Abort(claim.clone()),
    ];
    let packed = serde_json::to_vec(&orders).unwrap();
    assert_eq!(serde_json::from_slice::<Vec<Order>>(&packed).unwrap(), orders);
    let how = Ended::Failed(Failure::Read(ReadFailure::Overdue));
    let freed = Word::Freed { lease: claim.lease.clone(), why: Why::Released };
    let words = vec![freed, Word::Ended { claim, how }];
    let packed = serde_json::to_vec(&words).unwrap();
    assert_eq!(serde_json::from_slice::<Vec<Word>>(&packed).unwrap(), words);
}
