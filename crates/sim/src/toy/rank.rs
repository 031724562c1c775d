//! The memory of one rank: bytes, blocks, and where each row lies.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use kv_layout::{CacheLayout, Model, Part, PlacedLayer};

use super::weights::Draw;
use super::{Fault, Row, index};

/// What memory holds that nobody has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// Numbers as another request may have left them.
    Numbers,
    /// NaN: whatever is computed from it is NaN as well, also times zero.
    NotNumbers,
}

#[derive(Clone, Debug)]
pub(super) struct Rank {
    pub(super) layout: CacheLayout,
    /// Of each layer of the model, its index in the layout.
    placed: Vec<Option<usize>>,
    /// The bytes of each region.
    memory: Vec<Vec<u8>>,
    /// Of each group, the block of each index in the sequence that is this rank's. The state of
    /// a recurrent group is at 0.
    pub(super) blocks: Vec<BTreeMap<u64, u32>>,
    free: Vec<u32>,
    garbage: Garbage,
}

impl Rank {
    pub(super) fn new(model: &Model, layout: CacheLayout, garbage: Garbage, seed: u64) -> Self {
        let name = |name: &String| layout.layers.iter().position(|layer| layer.name == *name);
        let placed = model.layers.iter().map(|layer| name(&layer.name)).collect();
        let blocks = vec![BTreeMap::new(); layout.groups.len()];
        let count = layout.regions.first().map_or(1, |region| region.block_count);
        // Block 0 is the null block.
        let mut free: Vec<u32> = (1..count).collect();
        for (at, with) in Draw::new(seed).below(free.len(), free.len()).into_iter().enumerate() {
            free.swap(at, with);
        }
        let bytes = |stride: u64| filled(index(stride) * count as usize, garbage);
        let memory = layout.regions.iter().map(|region| bytes(region.block_stride)).collect();
        Self { layout, placed, memory, blocks, free, garbage }
    }

    /// The layer, where this rank keeps it.
    pub(super) fn layer(&self, layer: usize) -> Option<&PlacedLayer> {
        self.layout.layers.get(self.placed.get(layer).copied()??)
    }

    /// The part, where this rank keeps the unit.
    pub(super) fn part(&self, row: Row) -> Option<(&PlacedLayer, &Part)> {
        let layer = self.layer(row.layer)?;
        let part = layer.parts.iter().find(|part| part.role == row.role)?;
        part.units.contains(&row.unit).then_some((layer, part))
    }

    /// The part that a row lies in, the first byte of its block, and its slot there.
    fn place(&self, row: Row, token: u64) -> Option<(&Part, u64, u64)> {
        let (layer, part) = self.part(row)?;
        let group = layer.group as usize;
        let (block, slot) = match layer.kind.is_recurrent() {
            true => (0, 0),
            false => {
                let size = u64::from(self.layout.groups[group].block_size);
                (token / size, token % size)
            }
        };
        let id = self.blocks[group].get(&block)?;
        Some((part, u64::from(*id) * self.stride(part.region), slot))
    }

    /// Appends the numbers of the rows of `tokens`, which lie in one block.
    pub(super) fn read(
        &self,
        row: Row,
        tokens: Range<u64>,
        numbers: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let missing = Fault::NoPlace { row, token: tokens.start };
        let (part, block, first) = self.place(row, tokens.start).ok_or(missing)?;
        for token in tokens.clone() {
            let at = block + within(part, row.unit, first + token - tokens.start);
            for word in self.bytes(part.region, at, part.bytes.into())?.as_chunks().0 {
                let number = f64::from_le_bytes(*word);
                if number.is_nan() {
                    return Err(Fault::NotANumber { row, token });
                }
                numbers.push(number);
            }
        }
        Ok(())
    }

    pub(super) fn write(&mut self, row: Row, token: u64, numbers: &[f64]) -> Result<(), Fault> {
        let place = self.place(row, token).ok_or(Fault::NoPlace { row, token })?;
        let (part, block, slot) = place;
        let (region, len) = (part.region, part.bytes.into());
        let at = block + within(part, row.unit, slot);
        let bytes = self.bytes_mut(region, at, len)?;
        for (word, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
            *word = number.to_le_bytes();
        }
        Ok(())
    }

    /// Takes a block for place `block` of a group, with whatever is in it; `None` where the pool
    /// is empty.
    pub(super) fn take(&mut self, group: usize, block: u64) -> Option<u32> {
        let id = self.free.pop()?;
        self.blocks[group].insert(block, id);
        Some(id)
    }

    /// An engine whose kernels must not meet NaN zeroes each block that it hands out to itself.
    pub(super) fn clean(&mut self, id: u32) {
        if self.garbage == Garbage::NotNumbers {
            self.each_page(id, |page| page.fill(0));
        }
    }

    /// Gives back the blocks of a group before `first`; others use them at once.
    pub(super) fn drop_before(&mut self, group: usize, first: u64) {
        let kept = self.blocks[group].split_off(&first);
        let garbage = self.garbage;
        for (_, id) in std::mem::replace(&mut self.blocks[group], kept) {
            self.each_page(id, |page| page.copy_from_slice(&filled(page.len(), garbage)));
            self.free.insert(0, id);
        }
    }

    fn each_page(&mut self, id: u32, mut with: impl FnMut(&mut [u8])) {
        for (region, memory) in self.layout.regions.iter().zip(&mut self.memory) {
            let stride = index(region.block_stride);
            with(&mut memory[id as usize * stride..][..stride]);
        }
    }

    /// All blocks of the request.
    pub(super) fn ids(&self) -> BTreeSet<u32> {
        self.blocks.iter().flat_map(|blocks| blocks.values().copied()).collect()
    }

    pub(super) fn bytes(&self, region: u32, at: u64, len: u64) -> Result<&[u8], Fault> {
        let memory = self.memory.get(region as usize);
        let bytes = memory.and_then(|memory| memory.get(index(at)..index(at.checked_add(len)?)));
        bytes.ok_or(Fault::Copy { region, bytes: len })
    }

    pub(super) fn bytes_mut(&mut self, region: u32, at: u64, len: u64) -> Result<&mut [u8], Fault> {
        let memory = self.memory.get_mut(region as usize);
        let bytes =
            memory.and_then(|memory| memory.get_mut(index(at)..index(at.checked_add(len)?)));
        bytes.ok_or(Fault::Copy { region, bytes: len })
    }

    /// Bytes from one block of a region to the next.
    pub(super) fn stride(&self, region: u32) -> u64 {
        self.layout.regions.get(region as usize).map_or(0, |region| region.block_stride)
    }
}

/// First byte of a unit of a slot within its block.
fn within(part: &Part, unit: u32, slot: u64) -> u64 {
    let unit = u64::from(unit - part.units.start) * part.unit_stride;
    let (tiles, slot) = match part.tile {
        Some(tile) => {
            let tokens = u64::from(tile.tokens);
            (slot / tokens * tile.stride, slot % tokens)
        }
        None => (0, slot),
    };
    part.offset + tiles + unit + slot * part.token_stride
}

/// Bytes of a stretch that repeats itself: filling a pool must not take longer than using it.
fn filled(bytes: usize, garbage: Garbage) -> Vec<u8> {
    let word = |at: u32| match garbage {
        Garbage::Numbers => f64::from(at * 7919 % 1009) / 100.0 - 5.0,
        Garbage::NotNumbers => f64::NAN,
    };
    let mut stretch = Vec::new();
    (0..1009).for_each(|at| stretch.extend_from_slice(&word(at).to_le_bytes()));
    let mut memory = vec![0; bytes];
    for part in memory.chunks_mut(stretch.len()) {
        part.copy_from_slice(&stretch[..part.len()]);
    }
    memory
}
