//! Context parallelism: ranks that keep every n-th block of a sequence, MLA in blocks of 16.

use kv_layout::{BlockTable, CacheLayout, EngineShape, Kind, Layer, PageOrder, Span};

use crate::kit::{Engine, blocks, keys, model, prompt, read, region, shared, single, table};

fn layout(ways: u32, rank: u32) -> CacheLayout {
    single(region(64, 1000), shared(16, ways, rank), vec![keys("mla", Kind::Mla, 0..1, 4, 16)])
}

/// All ranks of an engine, of which `rank` has `table`, and the others ids that no test names.
fn engine(ways: u32, rank: u32, own: &BlockTable) -> Engine {
    let other: Vec<u32> = (900..920).collect();
    Engine::ranks((0..ways).map(|at| {
        let table = if at == rank { own.clone() } else { table(0, &other) };
        (layout(ways, at), table)
    }))
}

/// What D's rank `l` of L, with `local` from token `first` on, reads from P's rank `r` of R.
fn paired(
    (l, ways_l, local, first, hit): (u32, u32, &[u32], u64, u64),
    (r, ways_r, remote): (u32, u32, &[u32]),
    span: Span,
) -> Vec<(u32, u32)> {
    let from = engine(ways_r, r, &table(0, remote));
    let to = engine(ways_l, l, &table(first, local));
    blocks(&read(&from, &to, l as usize, &[hit], span), r as usize)
}

#[test]
fn g08_dcp_one_to_two_takes_every_other_block() {
    // Rank 1 of 2 has blocks 1 and 3 of the sequence; D has blocks 0, 1 and 2.
    let pairs = paired((0, 1, &[100, 101, 102], 0, 0), (1, 2, &[200, 201]), prompt(48));
    assert_eq!(pairs, [(200, 101)]);
}

#[test]
fn g08_dcp_two_to_one_without_a_block_of_ones_own_takes_nothing() {
    // Rank 1 of 2 has block 1, and the sequence has only block 0.
    assert_eq!(paired((1, 2, &[100], 0, 0), (0, 1, &[200]), prompt(16)), []);
    // With one more, it takes that.
    assert_eq!(paired((1, 2, &[100], 0, 0), (0, 1, &[200, 201]), prompt(32)), [(201, 100)]);
}

#[test]
fn g08_dcp_two_to_four_behind_three_cached_blocks() {
    // D's rank 0 of 2 has blocks 0, 2 and 4 already and wants block 6; P's rank 2 of 4 has
    // blocks 2 and 6.
    let pairs = paired((0, 2, &[100], 96, 96), (2, 4, &[200, 201]), prompt(112));
    assert_eq!(pairs, [(201, 100)]);
}

#[test]
fn g08_dcp_of_equal_size_takes_what_lies_behind_the_cached_blocks() {
    let remote = [200, 201, 202, 203];
    for rank in [0, 1] {
        let pairs = paired((rank, 2, &[100, 101], 64, 64), (rank, 2, &remote), prompt(128));
        assert_eq!(pairs, [(202, 100), (203, 101)], "rank {rank}");
    }
}

#[test]
fn g09_dcp_source_ranks() {
    /// D's rank, T and dcp of both sides, source ranks.
    type Case = (usize, u32, u32, u32, u32, &'static [usize]);
    let cases: [Case; 5] = [
        (0, 1, 8, 1, 8, &[0, 1, 2, 3, 4, 5, 6, 7]),
        (0, 4, 4, 1, 4, &[0, 1, 2, 3]),
        (2, 4, 4, 4, 4, &[2]),
        (0, 2, 4, 2, 4, &[0, 2]),
        (3, 4, 2, 4, 2, &[1]),
    ];
    let model = model(vec![Layer::attention("mla", Kind::Mla, 1, 4, 0)]);
    for (rank, t_d, t_p, dcp_d, dcp_p, sources) in cases {
        let engine = |tensor, context| {
            let shape =
                EngineShape { tensor, context, ..EngineShape::single(16, PageOrder::Joint) };
            Engine::of(&model, shape, prompt(1000))
        };
        let (from, to) = (engine(t_p, dcp_p), engine(t_d, dcp_d));
        let readers = crate::kit::readers(&from, &to);
        let source = |(index, set): (usize, &Vec<usize>)| set.contains(&rank).then_some(index);
        let found: Vec<usize> = readers.iter().enumerate().filter_map(source).collect();
        assert_eq!(found, sources, "rank {rank} of {t_d} from {t_p}, dcp {dcp_d} from {dcp_p}");
        // Each rank that is waited for is one that really reads, and the other way round.
        for target in 0..to.layouts.len() {
            let plan = read(&from, &to, target, &[], prompt(1000));
            for (index, copies) in plan.reads.iter().enumerate() {
                assert_eq!(!copies.is_empty(), readers[index].contains(&target));
            }
        }
    }
}
