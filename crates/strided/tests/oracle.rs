//! Patterns, walks and copies against byte lists spelled out one by one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use proptest::collection::vec;
use proptest::prelude::*;
use strided::{BlockCopy, Blocks, Dim, Error, MergeRuns, Pattern, Region, RegionId};

/// A pattern as its caller describes it.
#[derive(Clone, Debug)]
struct Plain {
    offset: u64,
    dims: Vec<(u32, u64)>,
    len: u64,
}

impl Plain {
    fn pattern(&self) -> Result<Pattern, Error> {
        let dims: Vec<Dim> =
            self.dims.iter().map(|&(count, stride)| Dim { count, stride }).collect();
        Pattern::new(self.offset, &dims, self.len)
    }

    /// Every byte of one block in walk order.
    fn bytes(&self) -> Vec<u64> {
        let mut starts = vec![self.offset];
        for &(count, stride) in &self.dims {
            let steps = |start: u64| (0..u64::from(count)).map(move |step| start + step * stride);
            starts = starts.into_iter().flat_map(steps).collect();
        }
        starts.into_iter().flat_map(|start| start..start + self.len).collect()
    }
}

fn plain() -> impl Strategy<Value = Plain> {
    let dim = (1_u32..4, prop_oneof![0_u64..64, (0_u64..16).prop_map(|n| n * 8)]);
    (0_u64..32, vec(dim, 0..5), 1_u64..9).prop_map(|(offset, dims, len)| Plain {
        offset,
        dims,
        len,
    })
}

/// Two sound patterns of as many bytes: the same counts in another order, other strides.
fn pairing() -> impl Strategy<Value = (Plain, Plain)> {
    let side = |counts: Vec<u32>, len: u64| {
        let gaps = vec(0_u64..9, counts.len());
        (Just(counts).prop_shuffle(), 0_u64..32, gaps, any::<bool>()).prop_map(
            move |(counts, offset, gaps, reversed)| {
                let mut extent = len;
                let mut dims = Vec::new();
                for (&count, gap) in counts.iter().zip(gaps) {
                    let stride = extent + gap;
                    dims.push((count, stride));
                    extent += u64::from(count - 1) * stride;
                }
                if reversed {
                    dims.reverse();
                }
                Plain { offset, dims, len }
            },
        )
    };
    (vec(1_u32..4, 0..4), 1_u32..4, 1_u64..9).prop_flat_map(move |(counts, split, len)| {
        let mut finer = counts.clone();
        finer.push(split);
        (side(counts, len * u64::from(split)), side(finer, len))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_pattern_visits_exactly_its_bytes_in_order_or_is_refused(plain in plain(), ids in vec(0_u32..6, 0..4)) {
        let bytes = plain.bytes();
        let mut distinct = bytes.clone();
        distinct.sort_unstable();
        distinct.dedup();
        match plain.pattern() {
            Ok(pattern) => {
                prop_assert_eq!(distinct.len(), bytes.len());
                prop_assert_eq!(pattern.bytes(), bytes.len() as u64);
                prop_assert_eq!(pattern.end(), bytes.iter().max().unwrap() + 1);
                let blocks = Blocks::new(RegionId(0), ids.clone(), pattern).unwrap();
                let walked: Vec<u64> =
                    blocks.walk(1000).flat_map(|range| range.offset..range.offset + range.len).collect();
                let wanted: Vec<u64> = ids
                    .iter()
                    .flat_map(|&id| bytes.iter().map(move |byte| u64::from(id) * 1000 + byte))
                    .collect();
                prop_assert_eq!(walked, wanted);
            }
            // Interleaved dimensions that happen not to collide are refused as well: the proof
            // of no overlap asks each dimension to step over all smaller ones.
            Err(Error::Overlap { .. }) => prop_assert!(!nested(&plain)),
            Err(Error::TooManyDims { .. }) => prop_assert!(plain.dims.len() > 4),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn a_walk_can_stop_and_seek_anywhere(plain in plain(), ids in vec(0_u32..6, 1..4), cuts in vec(0_u64..40, 1..30)) {
        prop_assume!(plain.pattern().is_ok());
        let blocks = Blocks::new(RegionId(0), ids, plain.pattern().unwrap()).unwrap();
        let all: Vec<u64> = blocks.walk(1000).flat_map(|r| r.offset..r.offset + r.len).collect();
        let mut walk = blocks.walk(1000);
        let mut at = 0;
        for cut in cuts {
            if let Some(range) = walk.take_up_to(cut) {
                prop_assert!(range.len <= cut);
                for byte in range.offset..range.offset + range.len {
                    prop_assert_eq!(byte, all[at]);
                    at += 1;
                }
            } else {
                prop_assert!(cut == 0 || at == all.len());
                at = (at * 7 + 3) % (all.len() + 2);
                walk.seek(at as u64);
                at = at.min(all.len());
            }
        }
    }

    #[test]
    fn a_copy_moves_the_nth_byte_to_the_nth_byte(
        (from, to) in pairing(), source in vec(0_u32..9, 1..4), seed in 0_u32..7,
    ) {
        let target: Vec<u32> = source.iter().map(|id| (id + seed) % 9).collect();
        let wanted: Vec<(u64, u64)> = source
            .iter()
            .zip(&target)
            .flat_map(|(&s, &t)| {
                let pair = move |(a, b)| (u64::from(s) * 1000 + a, u64::from(t) * 1000 + b);
                from.bytes().into_iter().zip(to.bytes()).map(pair)
            })
            .collect();
        let copy = BlockCopy::new(
            Blocks::new(RegionId(0), source.clone(), from.pattern().unwrap()).unwrap(),
            Blocks::new(RegionId(1), target, to.pattern().unwrap()).unwrap(),
        )
        .unwrap();
        let spread = |pairs: &mut dyn Iterator<Item = strided::RangePair>| -> Vec<(u64, u64)> {
            pairs.flat_map(|p| (0..p.len).map(move |i| (p.source + i, p.target + i))).collect()
        };
        prop_assert_eq!(&spread(&mut copy.ranges(1000, 1000)), &wanted);
        let merged: Vec<_> = MergeRuns::merged(copy.ranges(1000, 1000)).collect();
        prop_assert_eq!(&spread(&mut merged.iter().copied()), &wanted);
        for pair in merged.windows(2) {
            prop_assert!(pair[0].join(&pair[1]).is_none());
        }
    }

    #[test]
    fn lowering_any_copy_allocates_nothing((from, to) in pairing(), ids in vec(0_u32..9, 0..40)) {
        let side = |plain: &Plain| {
            Blocks::new(RegionId(0), ids.clone(), plain.pattern().unwrap()).unwrap()
        };
        let copy = BlockCopy::new(side(&from), side(&to)).unwrap();
        let mut bytes = [0; 2];
        let spent = allocation_counter::measure(|| {
            bytes[0] = copy.ranges(1000, 1000).map(|pair| pair.len).sum();
            bytes[1] = MergeRuns::merged(copy.ranges(1000, 1000)).map(|pair| pair.len).sum();
        });
        prop_assert_eq!(bytes, [copy.bytes(); 2]);
        prop_assert_eq!(spent.count_total, 0);
    }

    #[test]
    fn no_numbers_panic(offset: u64, dims in vec((any::<u32>(), any::<u64>()), 0..6), len: u64,
                        id: u32, stride: u64, count: u32, seek: u64) {
        let plain = Plain { offset, dims, len };
        if let Ok(pattern) = plain.pattern() {
            let region = Region { block_stride: stride, block_count: count };
            if let Ok(blocks) = Blocks::new(RegionId(0), [id, id], pattern) {
                let _ = region.check(&blocks);
                let mut walk = blocks.walk(stride);
                walk.seek(seek);
                let _ = walk.take_up_to(seek);
                let _ = walk.next();
            }
        }
    }
}

/// Whether each dimension steps over all that the smaller ones span.
fn nested(plain: &Plain) -> bool {
    let mut dims: Vec<(u32, u64)> = plain.dims.iter().copied().filter(|d| d.0 > 1).collect();
    dims.sort_by_key(|d| d.1);
    let mut extent = plain.len;
    dims.iter().all(|&(count, stride)| {
        let steps_over = stride >= extent;
        extent += u64::from(count - 1) * stride;
        steps_over
    })
}
