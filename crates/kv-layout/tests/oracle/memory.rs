//! What each byte of a rank's blocks is: explicit maps, one number a byte.

use std::collections::BTreeMap;

use kv_layout::{BlockTable, CacheLayout, Part, PlacedLayer, Role};

/// One rank and the request's blocks on it.
#[derive(Clone, Debug)]
pub struct Rank<'a> {
    pub layout: &'a CacheLayout,
    pub tables: Vec<BlockTable>,
    /// Of each table, which ids are the request's; the others are null or stale.
    pub live: Vec<Vec<bool>>,
}

/// Gives each byte that the model keeps of a request a number, not 0.
pub struct Labels {
    first: BTreeMap<(String, Role), (u32, u32)>,
    tokens: u32,
}

impl Labels {
    /// For all layers of `layouts` and positions below `tokens`.
    pub fn new<'a>(layouts: impl Iterator<Item = &'a CacheLayout>, tokens: u64) -> Self {
        let mut sizes: BTreeMap<(String, Role), (u32, u32)> = BTreeMap::new();
        for layer in layouts.flat_map(|layout| &layout.layers) {
            for part in &layer.parts {
                let size = sizes.entry((layer.name.clone(), part.role)).or_default();
                *size = (size.0.max(part.units.end), size.1.max(part.bytes));
            }
        }
        let tokens = tokens as u32;
        let mut next = 1;
        let mut number = |(units, bytes): (u32, u32)| {
            let first = next;
            next += units * bytes * tokens;
            (first, bytes)
        };
        let first = sizes.into_iter().map(|(name, size)| (name, number(size))).collect();
        Self { first, tokens }
    }

    /// The number of the first byte of a unit of a token, as a function of the two; its other
    /// bytes follow.
    fn of(&self, layer: &PlacedLayer, role: Role) -> impl Fn(u32, u64) -> u32 + use<> {
        let (first, bytes) = self.first[&(layer.name.clone(), role)];
        let tokens = self.tokens;
        move |unit, token| first + (unit * tokens + token as u32) * bytes
    }
}

/// A token of a block of the request's.
pub struct Slot {
    /// Position in the sequence; 0 for a state.
    pub token: u64,
    pub id: u32,
    pub in_block: u64,
}

/// The slots of the request's own blocks in one layer.
pub fn slots(rank: &Rank<'_>, layer: &PlacedLayer) -> Vec<Slot> {
    let group = layer.group as usize;
    let (table, live) = (&rank.tables[group], &rank.live[group]);
    if layer.kind.is_recurrent() {
        let state = |(&id, _): (&u32, &bool)| Slot { token: 0, id, in_block: 0 };
        return table.ids.iter().zip(live).filter(|(_, live)| **live).map(state).collect();
    }
    let shape = rank.layout.groups[group];
    let (size, ways) = (u64::from(shape.block_size), u64::from(shape.context.ways));
    let mut block = table.first_token / size;
    let mut found = Vec::new();
    for (&id, &live) in table.ids.iter().zip(live) {
        while block % ways != u64::from(shape.context.rank) {
            block += 1;
        }
        if live {
            let slot = |in_block| Slot { token: block * size + in_block, id, in_block };
            found.extend((0..size).map(slot));
        }
        block += 1;
    }
    found
}

/// Where the unit and token of a block are in it, by the layout's numbers.
pub fn address(part: &Part, unit: u64, in_block: u64) -> u64 {
    let (tile, token) = match part.tile {
        None => (0, in_block),
        Some(tile) => {
            let size = u64::from(tile.tokens);
            (in_block / size * tile.stride, in_block % size)
        }
    };
    part.offset + tile + unit * part.unit_stride + token * part.token_stride
}

/// The bytes of the request's blocks on one rank.
pub struct Memory {
    /// Of each block id, which of the request's it is, from 1 on; 0 for another's.
    places: Vec<u32>,
    strides: Vec<usize>,
    /// Of each region, the labels of the request's blocks one after the other; 0 is a canary.
    labels: Vec<Vec<u32>>,
    /// Of each of these, whether it was written (1) or zeroed (2).
    marks: Vec<Vec<u8>>,
}

pub const WRITTEN: u8 = 1;
pub const ZEROED: u8 = 2;

impl Memory {
    /// The rank's memory; an error where two things share a byte.
    pub fn new(rank: &Rank<'_>, labels: &Labels) -> Result<Self, String> {
        let mut memory = Self::empty(rank);
        for layer in &rank.layout.layers {
            let slots = slots(rank, layer);
            for part in &layer.parts {
                let label = labels.of(layer, part.role);
                for unit in part.units.clone() {
                    for slot in &slots {
                        memory.fill(part, unit, slot, label(unit, slot.token))?;
                    }
                }
            }
        }
        Ok(memory)
    }

    fn empty(rank: &Rank<'_>) -> Self {
        let ids = || {
            rank.tables.iter().zip(&rank.live).flat_map(|(table, live)| {
                table.ids.iter().zip(live).filter(|(_, live)| **live).map(|(&id, _)| id as usize)
            })
        };
        let mut places = vec![0; ids().max().map_or(0, |id| id + 1)];
        let mut count = 0;
        for id in ids() {
            if places[id] == 0 {
                count += 1;
                places[id] = count;
            }
        }
        let strides: Vec<usize> =
            rank.layout.regions.iter().map(|region| region.block_stride as usize).collect();
        let sizes = || strides.iter().map(|stride| stride * count as usize);
        let labels = sizes().map(|size| vec![0; size]).collect();
        let marks = sizes().map(|size| vec![0; size]).collect();
        Self { places, strides, labels, marks }
    }

    fn fill(&mut self, part: &Part, unit: u32, slot: &Slot, label: u32) -> Result<(), String> {
        let at = address(part, u64::from(unit - part.units.start), slot.in_block);
        let bytes = part.bytes as usize;
        if at as usize + bytes > self.strides[part.region as usize] {
            return Err(format!("layout: {part:?} leaves its block"));
        }
        let cell = self.cell(part.region, slot.id, at).ok_or("layout: a block of its own")?;
        let labels = &mut self.labels[part.region as usize][cell..cell + bytes];
        for (byte, place) in (0..).zip(labels) {
            if *place != 0 {
                return Err(format!("layout: {part:?} shares a byte of block {}", slot.id));
            }
            *place = label + byte;
        }
        Ok(())
    }

    /// Where a byte of one of the request's blocks is kept; `None` for any other byte.
    pub fn cell(&self, region: u32, id: u32, at: u64) -> Option<usize> {
        let stride = *self.strides.get(region as usize)?;
        let place = (*self.places.get(id as usize)?).checked_sub(1)? as usize;
        (at < stride as u64).then(|| place * stride + at as usize)
    }

    /// The label of a byte, unless it is not the request's or padding.
    pub fn label(&self, region: u32, id: u32, at: u64) -> Option<u32> {
        let label = self.labels[region as usize][self.cell(region, id, at)?];
        (label != 0).then_some(label)
    }

    /// Marks a byte of the request's that has no mark yet.
    pub fn mark(&mut self, region: u32, id: u32, at: u64, mark: u8) -> Result<(), String> {
        let Some(cell) = self.cell(region, id, at) else {
            return Err(format!("touches region {region} block {id} byte {at}: not the request's"));
        };
        if self.labels[region as usize][cell] == 0 {
            return Err(format!("touches padding: region {region} block {id} byte {at}"));
        }
        let place = &mut self.marks[region as usize][cell];
        if *place != 0 {
            return Err(format!("region {region} block {id} byte {at}: mark {mark} on {place}"));
        }
        *place = mark;
        Ok(())
    }

    /// The marks of one unit of one token.
    pub fn marks(&self, part: &Part, unit: u64, slot: &Slot) -> &[u8] {
        let at = address(part, unit, slot.in_block);
        let cell = self.cell(part.region, slot.id, at).unwrap();
        &self.marks[part.region as usize][cell..cell + part.bytes as usize]
    }
}
