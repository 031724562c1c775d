//! Where an engine that allocates like vLLM puts each layer.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use strided::Region;

use crate::{
    CacheLayout, ContextShare, GroupLayout, Grouping, Layer, LayerPart, Model, Part, PlacedLayer,
    Role, Tile,
};

/// How the bytes of a slot lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PageOrder {
    /// One region a slot, heads outside tokens, key and value of a token side by side (vLLM's
    /// `LBHNC`).
    Joint,
    /// The same with tokens outside heads (`LBNHC`).
    TokensOutside,
    /// Two regions a slot, one of keys and one of values, heads outside tokens.
    Apart,
    /// One region for all slots, a row of pages for each block (`BLHNC`).
    BlockOutermost,
}

/// One rank's share of a model: its layers, and of each part the units that it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The layers with the rank's own number of units.
    pub model: Model,
    /// First unit of each part of each layer, counted over the whole model.
    pub first_units: Vec<Vec<u32>>,
    /// The rank's share of a sequence.
    pub context: ContextShare,
}

impl Shard {
    /// All of a model.
    #[must_use]
    pub fn whole(model: &Model) -> Self {
        let zeros = |layer: &Layer| vec![0; layer.parts.len()];
        Self {
            model: model.clone(),
            first_units: model.layers.iter().map(zeros).collect(),
            context: ContextShare::default(),
        }
    }
}

/// How a rank places what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How the bytes of a slot lie.
    pub order: PageOrder,
    /// Tokens of a kernel block, where blocks are cut for the kernel.
    pub kernel_block: Option<u32>,
    /// Blocks of the pool.
    pub block_count: u32,
}

impl CacheLayout {
    /// The layout of one rank that keeps all of `model`.
    #[must_use]
    pub fn new(model: &Model, grouping: &Grouping, order: PageOrder, block_count: u32) -> Self {
        let placement = Placement { order, kernel_block: None, block_count };
        Self::of_shard(&Shard::whole(model), grouping, placement)
    }

    /// The layout of one rank. `grouping` is that of the shard's layers; layers of a group that
    /// the rank does not keep leave their slot empty.
    #[must_use]
    pub fn of_shard(shard: &Shard, grouping: &Grouping, placement: Placement) -> Self {
        let slots = Slots::new(shard, grouping, placement);
        let mut layers = Vec::new();
        for (index, group) in (0_u32..).zip(&grouping.groups) {
            for (slot, &layer) in group.layers.iter().enumerate() {
                let placed =
                    Placer { slots: &slots, slot, group: index, block_size: group.block_size };
                layers.extend(placed.place(shard, layer));
            }
        }
        let group = |group: &crate::Group| GroupLayout {
            block_size: group.block_size,
            context: if group.kind.is_recurrent() {
                ContextShare::default()
            } else {
                shard.context
            },
        };
        let groups = grouping.groups.iter().map(group).collect();
        Self { regions: slots.regions, groups, layers }
    }
}

/// Where each slot's page begins: region and offset in the block, for keys and for values.
struct Slots {
    placement: Placement,
    regions: Vec<Region>,
    starts: Vec<[(u32, u64); 2]>,
}

impl Slots {
    fn new(shard: &Shard, grouping: &Grouping, placement: Placement) -> Self {
        let mut slots = Self { placement, regions: Vec::new(), starts: Vec::new() };
        let mut row = 0_u64;
        for (slot, &page) in grouping.slot_bytes.iter().enumerate() {
            let keys = match placement.order {
                PageOrder::Apart => key_page(shard, grouping, slot, page).unwrap_or(page),
                _ => page,
            };
            if placement.order == PageOrder::BlockOutermost {
                slots.starts.push([(0, row); 2]);
                row = row.saturating_add(page);
                continue;
            }
            let first = slots.push(keys);
            let second = if keys < page { slots.push(page - keys) } else { first };
            slots.starts.push([(first, 0), (second, 0)]);
        }
        if row > 0 {
            slots.push(row);
        }
        slots
    }

    fn push(&mut self, block_stride: u64) -> u32 {
        let block_count = self.placement.block_count;
        self.regions.push(Region { block_stride, block_count });
        u32::try_from(self.regions.len() - 1).unwrap_or(u32::MAX)
    }
}

/// Bytes of a slot's page of `page` bytes that belong to keys, where every layer that shares the
/// slot can keep its keys in so many and its values in the rest; a state takes the whole page.
fn key_page(shard: &Shard, grouping: &Grouping, slot: usize, page: u64) -> Option<u64> {
    let (mut most_keys, mut most_values) = (0, 0);
    for group in &grouping.groups {
        let Some(&layer) = group.layers.get(slot) else { continue };
        let layer = &shard.model.layers[layer];
        // A layer of another stage leaves its slot empty.
        if layer.parts.is_empty() {
            continue;
        }
        let tokens = u64::from(layer.kind.tokens_a_block(group.block_size));
        most_keys = layer.part(Role::Key)?.total().saturating_mul(tokens).max(most_keys);
        most_values = layer.part(Role::Value)?.total().saturating_mul(tokens).max(most_values);
    }
    (most_keys > 0 && most_keys.saturating_add(most_values) <= page).then_some(most_keys)
}

struct Placer<'a> {
    slots: &'a Slots,
    slot: usize,
    group: u32,
    block_size: u32,
}

impl Placer<'_> {
    fn place(&self, shard: &Shard, index: usize) -> Option<PlacedLayer> {
        let layer = &shard.model.layers[index];
        if layer.parts.is_empty() {
            return None;
        }
        let firsts = &shard.first_units[index];
        let parts = if layer.kind.is_recurrent() {
            self.state(layer, firsts)
        } else {
            self.attention(layer, firsts)
        };
        let (name, kind) = (layer.name.clone(), layer.kind);
        Some(PlacedLayer { name, kind, group: self.group, parts, packing: None })
    }

    /// The parts of a state follow each other, each with its units side by side.
    fn state(&self, layer: &Layer, firsts: &[u32]) -> Vec<Part> {
        let (region, mut offset) = self.slots.starts[self.slot][0];
        let place = |(part, &first): (&LayerPart, &u32)| {
            let placed = Part {
                role: part.role,
                units: units(part, first),
                bytes: part.bytes,
                region,
                offset,
                unit_stride: u64::from(part.bytes),
                token_stride: 0,
                tile: None,
            };
            offset = offset.saturating_add(part.total());
            placed
        };
        layer.parts.iter().zip(firsts).map(place).collect()
    }

    fn attention(&self, layer: &Layer, firsts: &[u32]) -> Vec<Part> {
        let order = self.slots.placement.order;
        let kernel = self.slots.placement.kernel_block.filter(|&kernel| kernel < self.block_size);
        let tokens = u64::from(kernel.unwrap_or(self.block_size));
        let joint: u64 = layer.parts.iter().map(|part| u64::from(part.bytes)).sum();
        let [(keys, _), (values, _)] = self.slots.starts[self.slot];
        let mut before = 0_u64;
        let place = |(index, (part, &first)): (usize, (&LayerPart, &u32))| {
            let apart = order == PageOrder::Apart;
            let (region, start) =
                self.slots.starts[self.slot][if apart { index.min(1) } else { 0 }];
            let row = if apart { u64::from(part.bytes) } else { joint };
            let units_of = u64::from(part.units);
            let (unit_stride, token_stride) = match order {
                PageOrder::TokensOutside => (row, row.saturating_mul(units_of)),
                _ => (row.saturating_mul(tokens), row),
            };
            let stride = row.saturating_mul(units_of).saturating_mul(tokens);
            let offset = start.saturating_add(before);
            before = before.saturating_add(match apart {
                false => u64::from(part.bytes),
                // Where a state may take the whole page, values follow all keys of the block.
                true if keys == values => part.total().saturating_mul(self.block_size.into()),
                true => 0,
            });
            Part {
                role: part.role,
                units: units(part, first),
                bytes: part.bytes,
                region,
                offset,
                unit_stride,
                token_stride,
                tile: kernel.map(|tokens| Tile { tokens, stride }),
            }
        };
        layer.parts.iter().zip(firsts).enumerate().map(place).collect()
    }
}

fn units(part: &LayerPart, first: u32) -> Range<u32> {
    first..first.saturating_add(part.units)
}
