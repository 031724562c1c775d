//! Numbers from outside, spoiled at random: whatever they are, the planner answers.

use kv_layout::{
    BlockTable, CacheLayout, EngineShape, Kind, Plan, Span, Target, Tile, kept, plan, readers,
};

use super::judge::holdings;
use super::memory::Rank;
use super::random::Case;
use super::rng::Rng;

/// A number that somebody may send.
fn number(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => 0,
        1 => rng.below(5),
        2 => u64::from(u32::MAX) - rng.below(2),
        3 => u64::MAX - rng.below(2),
        4 => 1 << rng.below(64),
        5 => rng.below(1 << 20),
        6 => u64::from(rng.next() as u32),
        _ => rng.next(),
    }
}

fn small(rng: &mut Rng) -> u32 {
    number(rng) as u32
}

/// Plans a spoiled case for all ranks; says whether one of them was planned.
pub fn survive(seed: u64) -> bool {
    let mut case = Case::new(seed);
    let mut rng = Rng::new(!seed);
    let rng = &mut rng;
    let (mut sources, mut targets): (Vec<_>, Vec<_>) = {
        let world = case.world();
        let tables = |ranks: &[Rank<'_>]| ranks.iter().map(|rank| rank.tables.clone()).collect();
        (tables(&world.sources), tables(&world.targets))
    };
    let mut span = case.span;
    for _ in 0..rng.within(1, 4) {
        let here = rng.chance(3);
        let (layouts, tables) = match here {
            true => (&mut case.targets, &mut targets),
            false => (&mut case.sources, &mut sources),
        };
        let rank = rng.below(layouts.len() as u64) as usize;
        match rng.below(6) {
            0 => spoil_tables(&mut tables[rank], rng),
            1 => spoil_span(&mut span, rng),
            _ => spoil_layout(&mut layouts[rank], here, rng),
        }
    }
    let hits: Vec<u64> = (0..rng.below(6)).map(|_| number(rng)).collect();
    let hits = if rng.chance(2) { hits } else { Vec::new() };
    answer(&case, &sources, &targets, &hits, span, rng)
}

fn answer(
    case: &Case,
    sources: &[Vec<BlockTable>],
    targets: &[Vec<BlockTable>],
    hits: &[u64],
    span: Span,
    rng: &mut Rng,
) -> bool {
    let from = holdings(&case.sources, sources);
    let ranks: Vec<&CacheLayout> = case.targets.iter().collect();
    let all: Vec<&CacheLayout> = case.sources.iter().collect();
    let mut planned = false;
    for (rank, tables) in targets.iter().enumerate() {
        let plan = plan(&from, Target { ranks: &ranks, rank, tables, hits }, span);
        planned |= plan.as_ref().map(Plan::bytes).is_ok();
    }
    let outside = Target { ranks: &ranks, rank: ranks.len(), tables: &[], hits };
    assert!(plan(&from, outside, span).is_err());
    let _ = readers(&all, &ranks);
    for layout in ranks.iter().chain(&all) {
        for group in 0..=layout.groups.len() as u32 {
            let _ = layout.group_spans(group);
        }
        for layer in &layout.layers {
            let _ = kept(layer.kind, small(rng), number(rng), number(rng));
        }
    }
    for table in sources.iter().flatten() {
        let _ = BlockTable::from_positions(small(rng), small(rng), &table.ids);
        let _ = BlockTable::state(number(rng), &table.ids, number(rng) as usize);
        let _ = table.translated(&[3, 1, 2]);
    }
    planned
}

fn spoil_span(span: &mut Span, rng: &mut Rng) {
    match rng.below(3) {
        0 => span.valid = number(rng),
        1 => span.resume_at = number(rng),
        _ => {
            span.valid = number(rng);
            span.resume_at = rng.below(span.valid);
        }
    }
}

fn spoil_tables(tables: &mut Vec<BlockTable>, rng: &mut Rng) {
    let at = rng.below(tables.len() as u64) as usize;
    let Some(table) = tables.get_mut(at) else { return };
    let mut ids = table.ids.to_vec();
    match rng.below(5) {
        0 => table.first_token = number(rng),
        1 => ids.truncate(rng.below(3) as usize),
        2 => ids.extend((0..rng.below(20)).map(|_| small(rng))),
        3 if !ids.is_empty() => {
            let place = rng.below(ids.len() as u64) as usize;
            ids[place] = small(rng);
        }
        _ => {
            tables.pop();
            return;
        }
    }
    table.ids = ids.into();
}

/// One's `own` blocks are memory that is there: their tokens bound the plan, so they stay few.
fn spoil_layout(layout: &mut CacheLayout, own: bool, rng: &mut Rng) {
    let CacheLayout { regions, groups, layers } = layout;
    let at = |len: usize, rng: &mut Rng| rng.below(len as u64) as usize;
    match rng.below(8) {
        0 if !regions.is_empty() => {
            let region = at(regions.len(), rng);
            match rng.below(3) {
                0 => regions[region].block_stride = number(rng),
                1 => regions[region].block_count = small(rng),
                _ => drop(regions.pop()),
            }
        }
        1 | 2 if !groups.is_empty() => {
            let group = at(groups.len(), rng);
            match rng.below(4) {
                0 if own => groups[group].block_size = small(rng) % 5_000,
                0 => groups[group].block_size = small(rng),
                1 => groups[group].context.ways = small(rng),
                2 => groups[group].context.rank = small(rng),
                _ => drop(groups.pop()),
            }
        }
        _ if !layers.is_empty() => {
            let layer = at(layers.len(), rng);
            match rng.below(8) {
                0 => layers[layer].group = small(rng),
                1 => layers[layer].kind = Kind::SlidingWindow { window: small(rng) },
                2 => layers[layer].kind = Kind::ChunkedLocal { chunk: small(rng) },
                3 => layers.push(layers[layer].clone()),
                _ if layers[layer].parts.is_empty() => {}
                _ => {
                    let part = at(layers[layer].parts.len(), rng);
                    spoil_part(&mut layers[layer].parts, part, rng);
                }
            }
        }
        _ => {}
    }
}

fn spoil_part(parts: &mut Vec<kv_layout::Part>, at: usize, rng: &mut Rng) {
    let part = &mut parts[at];
    match rng.below(10) {
        0 => part.units.start = small(rng),
        1 => part.units.end = small(rng),
        2 => part.bytes = small(rng),
        3 => part.region = small(rng),
        4 => part.offset = number(rng),
        5 => part.unit_stride = number(rng),
        6 => part.token_stride = number(rng),
        7 => part.tile = Some(Tile { tokens: small(rng), stride: number(rng) }),
        8 => {
            let part = part.clone();
            parts.push(part);
        }
        _ => drop(parts.pop()),
    }
}

/// Shapes are made by whoever runs an engine, not by a peer: no panic, for sizes that a machine
/// may have.
pub fn survive_shape(model: &kv_layout::Model, seed: u64) {
    let mut rng = Rng::new(seed);
    let rng = &mut rng;
    let shape = EngineShape {
        tensor: rng.below(40) as u32,
        pipeline: rng.below(6) as u32,
        context: rng.below(6) as u32,
        block_size: small(rng),
        kernel_block: rng.chance(2).then(|| small(rng)),
        order: rng.pick(&super::grid::ORDERS),
    };
    if let Ok(layouts) = shape.layouts(model, small(rng)) {
        for layout in &layouts {
            let _ = layout.group_spans(0);
        }
    }
}
