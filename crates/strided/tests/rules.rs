//! What is refused, what fuses, and what costs nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use strided::{BlockCopy, Blocks, Dim, Error, MergeRuns, Pattern, Region, RegionId};

fn dim(count: u32, stride: u64) -> Dim {
    Dim { count, stride }
}

fn blocks(ids: &[u32], pattern: Pattern) -> Blocks {
    Blocks::new(RegionId(3), ids, pattern).unwrap()
}

#[test]
fn dimensions_that_continue_each_other_fuse() {
    let whole = Pattern::contiguous(64, 4096).unwrap();
    assert_eq!(Pattern::new(64, &[dim(4, 1024), dim(16, 64)], 64), Ok(whole));
    assert_eq!(Pattern::new(64, &[dim(1, 7), dim(4, 1024), dim(1, 0)], 1024), Ok(whole));
    let rows = Pattern::new(0, &[dim(2, 512), dim(4, 128)], 64).unwrap();
    assert_eq!(rows.dims(), [dim(8, 128)]);
}

#[test]
fn a_dimension_may_run_against_the_strides() {
    // Tokens outside heads in memory, walked head by head.
    let pattern = Pattern::new(0, &[dim(2, 32), dim(3, 64)], 32).unwrap();
    let starts: Vec<u64> = blocks(&[0], pattern).walk(192).map(|range| range.offset).collect();
    assert_eq!(starts, [0, 64, 128, 32, 96, 160]);
}

#[test]
fn what_is_not_a_pattern_is_refused() {
    assert_eq!(Pattern::contiguous(0, 0), Err(Error::Empty));
    assert_eq!(Pattern::new(0, &[dim(0, 8)], 8), Err(Error::Empty));
    assert_eq!(Pattern::new(0, &[dim(2, 4)], 8), Err(Error::Overlap { stride: 4, extent: 8 }));
    assert_eq!(Pattern::new(0, &[dim(2, 0)], 8), Err(Error::Overlap { stride: 0, extent: 8 }));
    assert_eq!(Pattern::contiguous(1, u64::MAX), Err(Error::TooLarge));
    let five = [dim(2, 1 << 20), dim(2, 1 << 16), dim(2, 1 << 12), dim(2, 1 << 8), dim(2, 16)];
    assert_eq!(Pattern::new(0, &five, 8), Err(Error::TooManyDims { dims: 5 }));
}

#[test]
fn a_region_refuses_what_it_does_not_have() {
    let region = Region { block_stride: 100, block_count: 10 };
    let whole = Pattern::contiguous(0, 100).unwrap();
    assert_eq!(region.check(&blocks(&[0, 9], whole)), Ok(()));
    assert_eq!(
        region.check(&blocks(&[0, 10], whole)),
        Err(Error::UnknownBlock { region: RegionId(3), id: 10, count: 10 })
    );
    let beyond = Pattern::contiguous(1, 100).unwrap();
    assert_eq!(
        region.check(&blocks(&[0], beyond)),
        Err(Error::BeyondBlock { region: RegionId(3), end: 101, block_stride: 100 })
    );
    let huge = Region { block_stride: u64::MAX, block_count: 2 };
    assert_eq!(huge.check(&blocks(&[0], whole)), Err(Error::TooLarge));
}

#[test]
fn a_copy_refuses_sides_that_do_not_pair() {
    let page = Pattern::contiguous(0, 64).unwrap();
    let half = Pattern::contiguous(0, 32).unwrap();
    assert_eq!(
        BlockCopy::new(blocks(&[1, 2], page), blocks(&[1], page)),
        Err(Error::BlockCounts { source: 2, target: 1 })
    );
    assert_eq!(
        BlockCopy::new(blocks(&[1], page), blocks(&[1], half)),
        Err(Error::ByteCounts { source: 64, target: 32 })
    );
}

#[test]
fn pages_that_are_adjacent_on_both_sides_merge() {
    let page = Pattern::contiguous(0, 64).unwrap();
    let copy = BlockCopy::new(blocks(&[4, 5, 6, 9], page), blocks(&[1, 2, 7, 8], page)).unwrap();
    let merged: Vec<(u64, u64, u64)> = MergeRuns::merged(copy.ranges(64, 64))
        .map(|pair| (pair.source / 64, pair.target / 64, pair.len / 64))
        .collect();
    assert_eq!(merged, [(4, 1, 2), (6, 7, 1), (9, 8, 1)]);
}

#[test]
fn walking_and_merging_allocate_nothing() {
    let ids: Vec<u32> = (0..1000).collect();
    let rows = Pattern::new(0, &[dim(4, 4096), dim(64, 64)], 32).unwrap();
    let copy = BlockCopy::new(blocks(&ids, rows), blocks(&ids, rows)).unwrap();
    let mut ranges = 0;
    let spent = allocation_counter::measure(|| {
        ranges = MergeRuns::merged(copy.ranges(16_384, 16_384)).count();
    });
    assert_eq!(ranges, 1000 * 256);
    assert_eq!(spent.count_total, 0);
}

/// 160 regions (keys and values of 80 layers) of 118 blocks each: 18,880 pages, which are one
/// range a region where the ids follow each other on both sides.
#[test]
fn contiguous_ids_of_160_regions_merge_from_18_880_ranges_to_160() {
    let page = Pattern::contiguous(0, 4096).unwrap();
    let ids = |first: u32| -> std::sync::Arc<[u32]> { (first..first + 118).collect() };
    let (source, target) = (ids(40), ids(7));
    let side = |region, ids: &std::sync::Arc<[u32]>| {
        Blocks::new(RegionId(region), std::sync::Arc::clone(ids), page).unwrap()
    };
    let copies: Vec<BlockCopy> = (0..160)
        .map(|region| BlockCopy::new(side(region, &source), side(region, &target)).unwrap())
        .collect();
    let ranges = |copy: &BlockCopy| copy.ranges(4096, 4096);
    assert_eq!(copies.iter().flat_map(ranges).count(), 18_880);
    let merged = copies.iter().flat_map(|copy| MergeRuns::merged(ranges(copy)));
    let lens: Vec<u64> = merged.map(|range| range.len).collect();
    assert_eq!(lens, [118 * 4096; 160]);
}

#[test]
fn a_copy_elsewhere_walks_as_it_did() {
    let rows = Pattern::new(8, &[dim(3, 64)], 16).unwrap();
    let copy = BlockCopy::new(blocks(&[4, 6], rows), blocks(&[1, 2], rows)).unwrap();
    let moved = copy.at((RegionId(5), 24), (RegionId(7), 0)).unwrap();
    assert_eq!((moved.source().region(), moved.target().region()), (RegionId(5), RegionId(7)));
    assert_eq!(*moved.source().pattern(), Pattern::new(24, &[dim(3, 64)], 16).unwrap());
    assert_eq!(*moved.target().pattern(), Pattern::new(0, &[dim(3, 64)], 16).unwrap());
    assert_eq!(moved.source().ids(), copy.source().ids());
    let last = u64::MAX - (2 * 64 + 16);
    assert_eq!(rows.at(last).map(|pattern| pattern.end()), Ok(u64::MAX));
    assert_eq!(rows.at(last + 1), Err(Error::TooLarge));
}
