use proptest::prelude::*;

use super::*;

fn local(id: u64, len: u64, grain: u64) -> LocalMemory {
    let parts = len.div_ceil(grain);
    let exposures: Vec<_> = (0..parts).map(|part| Exposure { key: part, base: 0 }).collect();
    LocalMemory { id, exposed: RemoteMemory::new(len, grain, &exposures).unwrap() }
}

fn remote(len: u64, grain: u64) -> RemoteMemory {
    let part = |part| Exposure { key: 100 + part, base: 1_000_000 * (part + 1) };
    let exposures: Vec<_> = (0..len.div_ceil(grain)).map(part).collect();
    RemoteMemory::new(len, grain, &exposures).unwrap()
}

/// Local offset, key, address and length of each operation.
fn lowered(limit: u64, grains: (u64, u64), moves: &[(u64, u64, u64)]) -> Vec<[u64; 4]> {
    let (local, remote) = (local(7, 64, grains.0), remote(64, grains.1));
    let mut plan = Plan::new(limit);
    for &(local_at, remote_at, len) in moves {
        plan.add(&local, &remote, Move { local: local_at, remote: remote_at, len }).unwrap();
    }
    let row = |segment: &Segment| [segment.offset, segment.key, segment.address, segment.len];
    plan.segments().iter().map(row).collect()
}

#[test]
fn moves_side_by_side_become_one_and_long_ones_are_cut() {
    let whole = (64, 64);
    let first = 1_000_000;
    for (limit, grains, moves, expected) in [
        (99, whole, vec![(0, 8, 8), (8, 16, 8)], vec![[0, 100, first + 8, 16]]),
        // Side by side on one side only.
        (
            99,
            whole,
            vec![(0, 8, 8), (8, 24, 8)],
            vec![[0, 100, first + 8, 8], [8, 100, first + 24, 8]],
        ),
        (99, whole, vec![(8, 0, 8), (0, 8, 8)], vec![[8, 100, first, 8], [0, 100, first + 8, 8]]),
        // The limit fills up what is there before another one begins.
        (
            10,
            whole,
            vec![(0, 0, 8), (8, 8, 14)],
            vec![[0, 100, first, 10], [10, 100, first + 10, 10], [20, 100, first + 20, 2]],
        ),
        // Parts end on both sides at places of their own.
        (99, (16, 32), vec![(8, 24, 16)], vec![[8, 100, first + 24, 8], [16, 101, 2 * first, 8]]),
        (
            99,
            (16, 64),
            vec![(8, 0, 8), (16, 8, 8)],
            vec![[8, 100, first, 8], [16, 100, first + 8, 8]],
        ),
        (99, whole, vec![(3, 5, 0)], vec![]),
    ] {
        assert_eq!(lowered(limit, grains, &moves), expected, "{moves:?}");
    }
}

#[test]
fn bytes_that_are_not_there_are_refused() {
    let (local, remote) = (local(7, 64, 64), remote(32, 32));
    for (bytes, expected) in [
        (Move { local: 60, remote: 0, len: 5 }, PlanError::Local { end: 65, len: 64 }),
        (Move { local: 0, remote: 30, len: 3 }, PlanError::Remote { end: 33, len: 32 }),
        (Move { local: 1, remote: 0, len: u64::MAX }, PlanError::Local { end: u64::MAX, len: 64 }),
    ] {
        assert_eq!(Plan::new(8).add(&local, &remote, bytes), Err(expected));
    }
    let mut plan = Plan::new(1);
    let (local, remote) =
        (super::tests::local(1, 1 << 21, 1 << 21), super::tests::remote(1 << 21, 1 << 21));
    let bytes = Move { local: 0, remote: 0, len: (1 << 20) + 1 };
    assert_eq!(plan.add(&local, &remote, bytes), Err(PlanError::TooMany { most: 1 << 20 }));
}

#[test]
fn a_peers_numbers_must_go_together() {
    let part = Exposure { key: 1, base: 0 };
    for (len, grain, parts, good) in [
        (64, 64, 1, true),
        (65, 64, 2, true),
        (65, 64, 1, false),
        (64, 64, 2, false),
        (0, 64, 0, false),
        (64, 0, 1, false),
        (u64::MAX, 2, 1, false),
        (MAX_PARTS + 1, 1, 65537, false),
    ] {
        let exposures = vec![part; parts];
        assert_eq!(RemoteMemory::new(len, grain, &exposures).is_some(), good, "{len} {grain}");
    }
    let high = Exposure { key: 1, base: u64::MAX - 8 };
    assert_eq!(RemoteMemory::new(64, 64, &[high]), None);
}

proptest! {
    /// Byte by byte, whatever was merged and cut.
    #[test]
    fn every_byte_goes_where_its_move_says(
        limit in 1_u64..20,
        grains in (1_u64..40, 1_u64..40),
        moves in prop::collection::vec((0_u64..32, 0_u64..32, 0_u64..32), 0..12),
    ) {
        let address = |at: u64| (100 + at / grains.1, 1_000_000 * (at / grains.1 + 1) + at % grains.1);
        let expected: Vec<_> = moves
            .iter()
            .flat_map(|&(from, to, len)| (0..len).map(move |byte| (from + byte, to + byte)))
            .map(|(from, to)| (from, address(to)))
            .collect();
        let operations = lowered(limit, grains, &moves);
        let bytes = operations.iter().flat_map(|&[offset, key, address, len]| {
            (0..len).map(move |byte| (offset + byte, (key, address + byte)))
        });
        prop_assert_eq!(bytes.collect::<Vec<_>>(), expected);
        for [offset, _, _, len] in operations {
            prop_assert!(len > 0 && len <= limit);
            prop_assert_eq!(offset / grains.0, (offset + len - 1) / grains.0);
        }
    }
}
