//! Patterns, lists and copies of any numbers.

use strided::{BlockCopy, Blocks, Dim, MergeRuns, Pattern, Region, RegionId};

use crate::{Bytes, allowance};

/// How many ranges of a walk are looked at.
const LOOKED_AT: usize = 64;

/// A copy between two sides that somebody described.
pub fn strides(input: &[u8]) {
    let mut from = Bytes::new(input);
    let count = from.below(8);
    let (source, target) = (side(&mut from, count), side(&mut from, count));
    let (Some((a, source)), Some((b, target))) = (source, target) else { return };
    let Ok(copy) = BlockCopy::new(source, target) else { return };
    let fits = a.check(copy.source()).is_ok() && b.check(copy.target()).is_ok();
    // A walk holds no list.
    let ranges = || copy.ranges(a.block_stride, b.block_stride).take(LOOKED_AT);
    let mut sum = 0_u64;
    allowance::within(0, "a walk", || {
        for pair in ranges() {
            assert!(pair.len > 0);
            sum = sum.saturating_add(pair.len);
            if fits {
                inside(&a, pair.source, pair.len);
                inside(&b, pair.target, pair.len);
            }
        }
    });
    assert!(sum <= copy.bytes());
    let merged: u64 = MergeRuns::merged(ranges()).fold(0, |sum, run| sum.saturating_add(run.len));
    assert_eq!(merged, sum);
}

fn inside(region: &Region, offset: u64, len: u64) {
    let end = offset.checked_add(len);
    assert!(end.is_some_and(|end| region.bytes().is_ok_and(|bytes| end <= bytes)));
}

fn side(from: &mut Bytes<'_>, count: usize) -> Option<(Region, Blocks)> {
    let region = Region { block_stride: from.number(), block_count: from.small() };
    let _ = region.bytes();
    let pattern = pattern(from)?;
    let ids: Vec<u32> = (0..count).map(|_| from.small()).collect();
    let blocks = Blocks::new(RegionId(from.small()), ids, pattern).ok()?;
    assert_eq!(Some(blocks.bytes()), pattern.bytes().checked_mul(count as u64));
    seek(&blocks, &region, from);
    Some((region, blocks))
}

/// The rest after a seek is what is left.
fn seek(blocks: &Blocks, region: &Region, from: &mut Bytes<'_>) {
    let mut walk = blocks.walk(region.block_stride);
    let to = from.number();
    walk.seek(to);
    let left = walk.clone().take(LOOKED_AT).fold(0_u64, |sum, range| sum.saturating_add(range.len));
    assert!(left <= blocks.bytes().saturating_sub(to));
    let limit = from.number();
    if let Some(taken) = walk.take_up_to(limit) {
        assert!(0 < taken.len && taken.len <= limit);
    }
    let _ = walk.peek();
}

fn pattern(from: &mut Bytes<'_>) -> Option<Pattern> {
    let mut dims = Vec::new();
    for _ in 0..from.below(7) {
        dims.push(Dim { count: from.small(), stride: from.number() });
    }
    let (offset, len) = (from.number(), from.number());
    let pattern = Pattern::new(offset, &dims, len).ok()?;
    let product = dims.iter().try_fold(len, |bytes, dim| bytes.checked_mul(dim.count.into()));
    assert_eq!(product, Some(pattern.bytes()));
    assert_eq!(pattern.elements().checked_mul(pattern.element_len()), product);
    assert!(pattern.end() >= pattern.offset() + pattern.element_len());
    Some(pattern)
}
