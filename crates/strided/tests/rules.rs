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
