//! Random pages: any nesting of kernel blocks, units and tokens, with padding anywhere.

use kv_layout::{Layer, Part, PlacedLayer, Tile};

use super::rng::Rng;

/// A layer's parts from byte 0 on, and the bytes of its page.
pub struct Page {
    pub parts: Vec<Part>,
    pub bytes: u64,
}

/// The units that a rank keeps of each part.
pub type Units = Vec<std::ops::Range<u32>>;

/// A page of a state: its parts one after the other.
pub fn state(layer: &Layer, units: &Units, rng: &mut Rng) -> Page {
    let mut bytes = rng.below(3);
    let mut parts = Vec::new();
    for (part, units) in layer.parts.iter().zip(units) {
        let unit_stride = u64::from(part.bytes) + if rng.chance(4) { rng.below(3) } else { 0 };
        let count = u64::from(units.end - units.start);
        parts.push(Part {
            role: part.role,
            units: units.clone(),
            bytes: part.bytes,
            region: 0,
            offset: bytes,
            unit_stride,
            token_stride: 0,
            tile: None,
        });
        bytes += count * unit_stride + rng.below(3);
    }
    Page { parts, bytes }
}

/// A page of `block` tokens.
pub fn attention(layer: &Layer, units: &Units, block: u64, rng: &mut Rng) -> Page {
    let divisors: Vec<u64> = (1..=block).filter(|size| block.is_multiple_of(*size)).collect();
    let tile = if rng.chance(2) { rng.pick(&divisors) } else { block };
    let tiled = tile < block || rng.chance(8);
    let same_units = units.windows(2).all(|pair| pair[0] == pair[1]);
    let pad = |rng: &mut Rng| if rng.chance(5) { rng.within(1, 3) } else { 0 };
    let mut parts = Vec::new();
    let mut bytes = pad(rng);
    let joint = same_units && rng.chance(2);
    let row: u64 = layer.parts.iter().map(|part| u64::from(part.bytes)).sum();
    let mut nest = [(0, block / tile), (1, 0), (2, tile)];
    rng.shuffle(&mut nest);
    let row_pad = pad(rng);
    let mut within_row = 0;
    for (part, units) in layer.parts.iter().zip(units) {
        let count = u64::from(units.end - units.start);
        let mut stride = if joint { row } else { u64::from(part.bytes) } + row_pad;
        let mut strides = [0; 3];
        for (dim, steps) in nest {
            strides[dim] = stride;
            let steps = if dim == 1 { count } else { steps };
            // All parts of a row must step alike.
            stride = stride * steps + if joint { 0 } else { pad(rng) };
        }
        parts.push(Part {
            role: part.role,
            units: units.clone(),
            bytes: part.bytes,
            region: 0,
            offset: bytes + within_row,
            unit_stride: strides[1],
            token_stride: strides[2],
            tile: tiled.then_some(Tile { tokens: tile as u32, stride: strides[0] }),
        });
        if joint {
            within_row += u64::from(part.bytes);
        } else {
            bytes += stride + pad(rng);
        }
    }
    if joint {
        let count = u64::from(units[0].end - units[0].start);
        bytes += (row + row_pad) * block * count + pad(rng);
    }
    Page { parts, bytes }
}

/// Puts pages into regions of their own: one for each layer, or one for each part.
pub fn apart(layer: &mut PlacedLayer, page: Page, regions: &mut Vec<u64>, rng: &mut Rng) {
    let split = rng.chance(3);
    for (index, mut part) in page.parts.into_iter().enumerate() {
        if index == 0 || split {
            // Of a split page each region keeps the whole: the rest of it is padding.
            regions.push(page.bytes + rng.below(4));
        }
        part.region = regions.len() as u32 - 1;
        layer.parts.push(part);
    }
}
