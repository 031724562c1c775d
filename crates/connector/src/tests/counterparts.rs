use std::collections::{BTreeMap, BTreeSet};

use crate::{Rank, counterparts};

fn set<T: Ord + Clone>(of: &[T]) -> BTreeSet<T> {
    of.iter().cloned().collect()
}

/// Ranks 0 and 2 of P are read, 1 and 3 are not: one word from one rank of D frees each.
#[test]
fn readers_claim_and_tellers_free() {
    let readers = [set(&[0, 1]), set(&[]), set(&[1]), set(&[])];
    let first = BTreeMap::from([(0, set(&[Rank(0), Rank(1)]))]);
    let second = BTreeMap::from([
        (0, set(&[Rank(0), Rank(1)])),
        (1, set(&[])),
        (2, set(&[Rank(1)])),
        (3, set(&[])),
    ]);
    assert_eq!(counterparts(&readers, 2, Rank(0)), first);
    assert_eq!(counterparts(&readers, 2, Rank(1)), second);
}

/// Every rank of P hears of every request from at least one rank of D, and from one alone where
/// nobody reads it.
#[test]
fn nobody_is_forgotten() {
    let unread: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); 7];
    for ranks in 1..9_u32 {
        let of = |rank| counterparts(&unread, ranks as usize, Rank(rank)).into_keys();
        let mut told: Vec<usize> = (0..ranks).flat_map(of).collect();
        told.sort_unstable();
        assert_eq!(told, [0, 1, 2, 3, 4, 5, 6], "{ranks} ranks");
    }
}
