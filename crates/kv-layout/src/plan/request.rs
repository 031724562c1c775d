//! The plan of one request: the copies of each batch of layers are worked out once, and put
//! where each layer lies.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use strided::{BlockCopy, Blocks, RegionId};

use super::bytes::{self, Draft, Walked};
use super::pieces::{List, Lists, Slots};
use super::planner::{Asked, Batch, Planner, Rank};
use super::shape::{Anchor, Shape};
use super::{Plan, PlanError, Side};

pub(super) fn plan(planner: &Planner, asked: Asked<'_>) -> Result<Plan, PlanError> {
    let reads = planner.sources.iter().map(|rank| Vec::with_capacity(rank.readings));
    let mut plan = Plan { reads: reads.collect(), zero: Vec::new() };
    let (mut lists, mut drafts) = (Lists::new(planner, asked), Drafts::new());
    let mut batches = vec![None; planner.batches.len()];
    for layer in &planner.layers {
        let name = planner.name(layer);
        for had in &planner.hads[layer.hads.clone()] {
            let batch = planner.batches[had.batch];
            let copies = match &mut batches[had.batch] {
                Some(copies) => copies,
                none => none.insert(Copies::new(planner, batch, name, &mut lists, &mut drafts)?),
            };
            let source = planner.shapes[batch.shape].readings[batch.reading].source;
            let from = Place { side: Side::Source, rank: &planner.sources[source], at: had.at };
            let to = Place { side: Side::Target, rank: &planner.own, at: layer.at };
            copies.put(from, to, name, &mut plan.reads[source], &mut plan.zero)?;
        }
    }
    Ok(plan)
}

/// What is copied of every layer of a batch, and what is zeroed, from where its page begins.
#[derive(Clone)]
struct Copies {
    copies: Vec<Bound>,
    /// With the largest id.
    zero: Vec<(Blocks, u32)>,
}

/// A copy and the largest ids of both its sides.
#[derive(Clone)]
struct Bound {
    copy: BlockCopy,
    from: u32,
    to: u32,
}

/// The copies of each reading of a shape, by its slots: batches differ in their blocks, but
/// seldom in what they move of one.
type Drafts = BTreeMap<(usize, usize, Slots), Vec<Draft>>;

impl Copies {
    /// Works them out for the first layer of the batch, called `name`.
    fn new(
        planner: &Planner,
        batch: Batch,
        name: &str,
        lists: &mut Lists<'_>,
        drafts: &mut Drafts,
    ) -> Result<Self, PlanError> {
        let Shape { readings, parts } = &planner.shapes[batch.shape];
        let reading = &readings[batch.reading];
        let paired = lists.of(batch.pairing, name)?;
        let mut made = Self { copies: Vec::new(), zero: Vec::new() };
        let block_sizes = planner.block_sizes(batch.pairing);
        for piece in &paired.pieces {
            reading.allows(name, piece, block_sizes)?;
            let drafts = match drafts.entry((batch.shape, batch.reading, piece.slots)) {
                Entry::Occupied(made) => made.into_mut(),
                Entry::Vacant(free) => free.insert(bytes::drafts(reading, piece.slots)?),
            };
            for Draft { from, to } in drafts {
                let (source, target) = (blocks(from, &piece.source)?, blocks(to, &piece.target)?);
                let copy = BlockCopy::new(source, target)?;
                let (from, to) = (piece.source.largest, piece.target.largest);
                made.copies.push(Bound { copy, from, to });
            }
        }
        // The first reading of a layer sees to the holes for all.
        for piece in paired.holes.iter().filter(|_| batch.reading == 0) {
            for part in parts {
                for walk in bytes::holes(part, piece.slots)? {
                    made.zero.push((blocks(&walk, &piece.target)?, piece.target.largest));
                }
            }
        }
        Ok(made)
    }

    /// Adds those of the layer `name`, which lies at `from` and `to`.
    fn put(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        name: &str,
        copies: &mut Vec<BlockCopy>,
        zero: &mut Vec<Blocks>,
    ) -> Result<(), PlanError> {
        for bound in &self.copies {
            let (source, target) = (bound.copy.source(), bound.copy.target());
            let copy = bound.copy.at(from.of(source)?, to.of(target)?)?;
            from.check(copy.source(), bound.from, name)?;
            to.check(copy.target(), bound.to, name)?;
            copies.push(copy);
            bytes::fuse_last(copies)?;
        }
        for (blocks, largest) in &self.zero {
            let (region, offset) = to.of(blocks)?;
            let blocks = blocks.at(region, offset)?;
            to.check(&blocks, *largest, name)?;
            zero.push(blocks);
        }
        Ok(())
    }
}

fn blocks(walk: &Walked, list: &List) -> Result<Blocks, strided::Error> {
    Blocks::new(RegionId(walk.region), Arc::clone(&list.ids), walk.pattern)
}

/// Where a layer lies at one rank.
#[derive(Clone, Copy)]
struct Place<'a> {
    side: Side,
    rank: &'a Rank,
    at: Anchor,
}

impl Place<'_> {
    /// Where the bytes lie that a walk counts from where the page begins.
    fn of(self, walk: &Blocks) -> Result<(RegionId, u64), strided::Error> {
        let RegionId(region) = walk.region();
        let region = self.at.region.checked_add(region).ok_or(strided::Error::TooLarge)?;
        let offset = self.at.offset.checked_add(walk.pattern().offset());
        Ok((RegionId(region), offset.ok_or(strided::Error::TooLarge)?))
    }

    /// Checks that every byte lies in the region; the largest id stands for all of them.
    fn check(self, blocks: &Blocks, largest: u32, name: &str) -> Result<(), PlanError> {
        let (side, id) = (self.side, blocks.region());
        let layer = || name.to_owned();
        let Some(region) = self.rank.regions.get(id.0 as usize) else {
            return Err(PlanError::Layout { side, layer: layer(), field: "region", value: id.0 });
        };
        let sound = region.check_pattern(id, blocks.pattern());
        let sound = sound.and_then(|()| region.check_ids(id, &[largest]));
        // What is wrong is said of the first offender, which need not be the largest id.
        sound.or_else(|_| region.check(blocks)).map_err(|why| {
            let layer = layer();
            PlanError::Bytes { side, layer, why }
        })
    }
}
