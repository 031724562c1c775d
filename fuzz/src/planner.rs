//! The planner: no panic, overflow or allocation beyond the request's size for any block list,
//! id, count or address from outside.

use std::collections::BTreeSet;

use kv_layout::{BlockTable, CacheLayout, Holding, Plan, Span, Target, plan, readers};
use strided::{Blocks, Region};

use crate::engines::{self, Engine};
use crate::{Bytes, allowance, json, spoil};

/// Bytes for each thing that a layout lists (region, group, layer, part, 32 bytes of a name) and
/// for each block id: the planner keeps maps of names and places, and lists of ids.
const PER_THING: u64 = 512;

/// Bytes for each copy that there may be: one of a few hundred, in a list that grows by doubling,
/// and the same again for what leads to it.
const PER_COPY: u64 = 1 << 10;

/// Bytes for a byte of JSON: a part of 24 bytes, in a list that starts with room for four.
const PER_BYTE: u64 = 32;

/// How many ranges of a copy are looked at.
const LOOKED_AT: usize = 16;

/// Two engines, legal and then spoiled.
pub fn spoiled(input: &[u8]) {
    let mut from = Bytes::new(input);
    let model = engines::model(&mut from);
    let mut span = engines::span(&mut from);
    let source = engines::engine(&model, span, &mut from);
    let target = engines::engine(&model, span, &mut from);
    let (Some(mut source), Some(mut target)) = (source, target) else { return };
    let mut hits: Vec<u64> = Vec::new();
    for _ in 0..12 {
        if from.is_empty() {
            break;
        }
        match from.below(8) {
            0..5 => spoil::engine(&mut source, false, &mut from),
            5 => spoil::engine(&mut target, true, &mut from),
            6 => spoil::span(&mut span, &mut from),
            _ => hits.push(from.number()),
        }
    }
    answer(&source, &target, &hits, span);
}

/// A layout as a peer would send it, against an engine of one's own.
pub fn json(input: &[u8]) {
    let mut from = Bytes::new(input);
    let model = engines::model(&mut from);
    let span = engines::span(&mut from);
    let source = engines::engine(&model, span, &mut from);
    let target = engines::engine(&model, span, &mut from);
    let (Some(source), Some(target)) = (source, target) else { return };
    let (legal, tables) = (&source.layouts[0], &source.tables[0]);
    let text = match from.chance(2) {
        true => from.rest().to_vec(),
        false => {
            let mut value = serde_json::to_value(legal).unwrap_or_default();
            json::spoil(&mut value, &mut from);
            serde_json::to_vec(&value).unwrap_or_default()
        }
    };
    let allowed = allowance::of(text.len(), PER_BYTE);
    let read = allowance::within(allowed, "a layout", || serde_json::from_slice(&text));
    let Ok(layout) = read else { return };
    let layout: CacheLayout = layout;
    let table = |group: usize| tables[group % tables.len()].clone();
    let tables = (0..layout.groups.len()).map(table).collect();
    answer(&Engine { layouts: vec![layout], tables: vec![tables] }, &target, &[], span);
}

/// Plans for every rank of the target.
fn answer(source: &Engine, target: &Engine, hits: &[u64], span: Span) {
    let holding = |(layout, tables)| Holding { layout, tables };
    let tables = source.tables.iter().map(Vec::as_slice);
    let from: Vec<Holding<'_>> = source.layouts.iter().zip(tables).map(holding).collect();
    let all: Vec<&CacheLayout> = source.layouts.iter().collect();
    let ranks: Vec<&CacheLayout> = target.layouts.iter().collect();
    let things: usize = all.iter().chain(&ranks).map(|layout| things(layout)).sum();
    let ids = source.tables.iter().flatten().map(|table| table.ids.len()).sum::<usize>();
    for (rank, tables) in target.tables.iter().enumerate() {
        let copies = copies(ranks[rank], tables, all.len());
        let allowed = allowance::of(things + ids, PER_THING) + allowance::of(copies, PER_COPY);
        let wanted = Target { ranks: &ranks, rank, tables, hits };
        let planned = allowance::within(allowed, "a plan", || plan(&from, wanted, span));
        if let Ok(planned) = planned {
            look(&planned, &from, ranks[rank], tables);
        }
    }
    let outside = Target { ranks: &ranks, rank: ranks.len(), tables: &[], hits };
    assert!(plan(&from, outside, span).is_err());
    let takes = allowance::of(things * all.len() * all.len(), PER_THING);
    let _ = allowance::within(takes, "readers", || readers(&all, &ranks));
    for layout in all.iter().chain(&ranks) {
        spans(layout);
    }
}

/// What a layout lists.
fn things(layout: &CacheLayout) -> usize {
    let CacheLayout { regions, groups, layers } = layout;
    let of_layer = layers.iter().map(|layer| 1 + layer.parts.len() + layer.name.len() / 32);
    regions.len() + groups.len() + of_layer.sum::<usize>()
}

/// Most copies that a rank's plan can have: one for each part, each slot of its own blocks, and
/// each source. Its own blocks are memory that it has; no number of a peer's is in here.
fn copies(layout: &CacheLayout, tables: &[BlockTable], sources: usize) -> usize {
    let parts: usize = layout.layers.iter().map(|layer| layer.parts.len()).sum();
    let slots = tables.iter().zip(&layout.groups);
    let slots = slots.map(|(table, group)| table.ids.len() * (group.block_size as usize).max(1));
    parts * (1 + slots.sum::<usize>()) * (1 + sources)
}

/// Whatever was sent, a copy stays within the blocks of the request.
fn look(plan: &Plan, from: &[Holding<'_>], own: &CacheLayout, tables: &[BlockTable]) {
    let _ = plan.bytes();
    assert_eq!(plan.reads.len(), from.len());
    let ids = |tables: &[BlockTable]| {
        tables.iter().flat_map(|table| table.ids.iter().copied()).collect::<BTreeSet<u32>>()
    };
    let of_target = ids(tables);
    for (copies, source) in plan.reads.iter().zip(from) {
        let of_source = ids(source.tables);
        for copy in copies {
            let a = inside(copy.source(), source.layout, &of_source);
            let b = inside(copy.target(), own, &of_target);
            let ranges = copy.ranges(a.block_stride, b.block_stride);
            assert!(ranges.take(LOOKED_AT).all(|range| range.len > 0));
        }
    }
    for blocks in &plan.zero {
        inside(blocks, own, &of_target);
    }
}

fn inside(blocks: &Blocks, layout: &CacheLayout, ids: &BTreeSet<u32>) -> Region {
    let region = layout.regions[blocks.region().0 as usize];
    assert_eq!(region.check(blocks), Ok(()));
    assert!(blocks.ids().iter().all(|id| ids.contains(id)), "a block that is not the request's");
    region
}

/// What may be shown of each group.
fn spans(layout: &CacheLayout) {
    let allowed = allowance::of(things(layout), PER_THING);
    for group in 0..=u32::try_from(layout.groups.len()).unwrap_or(u32::MAX) {
        allowance::within(allowed, "spans", || layout.group_spans(group));
    }
}
