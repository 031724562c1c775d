//! What is legal, with numbers in it that somebody else wrote.

use kv_layout::{
    BlockTable, CacheLayout, ContextShare, GroupLayout, Kind, Part, PlacedLayer, Role, Span, Tile,
};
use strided::Region;

use crate::Bytes;
use crate::engines::Engine;

/// Most tokens of one's own blocks: memory that is there, so that a plan may be as long.
pub const OWN_BLOCK: u32 = 64;

/// Spoils one rank of an engine: its tables or its layout. One's `own` blocks stay small.
pub fn engine(engine: &mut Engine, own: bool, from: &mut Bytes<'_>) {
    let rank = from.below(engine.layouts.len());
    match (from.below(4), engine.layouts.get_mut(rank), engine.tables.get_mut(rank)) {
        (0, _, Some(of_rank)) => tables(of_rank, from),
        (_, Some(of_rank), _) => layout(of_rank, own, from),
        _ => {}
    }
}

/// Other tokens.
pub fn span(span: &mut Span, from: &mut Bytes<'_>) {
    match from.below(3) {
        0 => span.valid = from.number(),
        1 => span.resume_at = from.number(),
        _ => {
            span.valid = u64::MAX - u64::from(from.byte());
            span.resume_at = from.number();
        }
    }
}

fn tables(tables: &mut Vec<BlockTable>, from: &mut Bytes<'_>) {
    let at = from.below(tables.len());
    let Some(table) = tables.get_mut(at) else { return };
    let mut ids = table.ids.to_vec();
    match from.below(6) {
        0 | 1 => table.first_token = from.number(),
        2 => ids.truncate(from.below(3)),
        3 => ids.extend((0..from.below(20)).map(|_| from.small())),
        4 if !ids.is_empty() => {
            let place = from.below(ids.len());
            ids[place] = from.small();
        }
        _ => {
            match from.chance(2) {
                true => drop(tables.pop()),
                false => tables.push(BlockTable { first_token: 0, ids: ids.into() }),
            }
            return;
        }
    }
    table.ids = ids.into();
}

fn layout(layout: &mut CacheLayout, own: bool, from: &mut Bytes<'_>) {
    match from.below(6) {
        0 => regions(&mut layout.regions, from),
        1 => groups(&mut layout.groups, own, from),
        2 | 3 => layers(&mut layout.layers, from),
        _ => {
            let at = from.below(layout.layers.len());
            if let Some(layer) = layout.layers.get_mut(at) {
                parts(&mut layer.parts, from);
            }
        }
    }
}

fn regions(regions: &mut Vec<Region>, from: &mut Bytes<'_>) {
    let at = from.below(regions.len());
    let Some(region) = regions.get_mut(at) else { return };
    match from.below(4) {
        0 => region.block_stride = from.number(),
        1 => region.block_count = from.small(),
        2 => drop(regions.pop()),
        // Room for everything: only then do the other numbers matter.
        _ => *region = Region { block_stride: u64::MAX / 4096, block_count: 4096 },
    }
}

fn groups(groups: &mut Vec<GroupLayout>, own: bool, from: &mut Bytes<'_>) {
    let at = from.below(groups.len());
    let Some(group) = groups.get_mut(at) else { return };
    match from.below(5) {
        0 if own => group.block_size = from.small() % (OWN_BLOCK + 1),
        0 => group.block_size = from.small(),
        1 => group.context.ways = from.small(),
        2 => group.context.rank = from.small(),
        3 => group.context = ContextShare { ways: from.small(), rank: from.within(0, 2) },
        _ => drop(groups.pop()),
    }
}

fn layers(layers: &mut Vec<PlacedLayer>, from: &mut Bytes<'_>) {
    let at = from.below(layers.len());
    let Some(layer) = layers.get_mut(at) else { return };
    match from.below(9) {
        0 => layer.group = from.small(),
        1 => layer.kind = Kind::SlidingWindow { window: from.small() },
        2 => layer.kind = Kind::ChunkedLocal { chunk: from.small() },
        3 => layer.kind = Kind::Full,
        4 => layer.packing = from.chance(2).then(|| "swizzled".to_owned()),
        5 => layer.name = format!("layers.{}", from.below(8)),
        6 => {
            let mut twin = layer.clone();
            twin.name = format!("layers.{}", from.below(12));
            layers.push(twin);
        }
        7 => drop(layers.remove(at)),
        _ => layers.reverse(),
    }
}

fn parts(parts: &mut Vec<Part>, from: &mut Bytes<'_>) {
    let at = from.below(parts.len());
    let Some(part) = parts.get_mut(at) else { return };
    match from.below(11) {
        0 => part.units.start = from.small(),
        1 => part.units.end = from.small(),
        2 => part.bytes = from.small(),
        3 => part.region = from.small(),
        4 => part.offset = from.number(),
        5 => part.unit_stride = from.number(),
        6 => part.token_stride = from.number(),
        7 => part.tile = Some(Tile { tokens: from.small(), stride: from.number() }),
        8 => part.role = from.pick(&[Role::Key, Role::Value, Role::Temporal]),
        9 => {
            let part = part.clone();
            parts.push(part);
        }
        _ => drop(parts.pop()),
    }
}
