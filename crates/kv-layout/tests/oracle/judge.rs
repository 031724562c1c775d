//! Runs the plans of all ranks of a pair of engines on labelled bytes, and judges each byte.

use std::collections::{BTreeMap, BTreeSet};

use kv_layout::{BlockTable, CacheLayout, Holding, Plan, PlanError, Span, Target, plan, readers};
use strided::{BlockCopy, Pattern};

use super::expect::Expected;
use super::limits;
use super::mask;
use super::memory::{Labels, Memory, Rank, WRITTEN, ZEROED, slots};

/// A request on two engines.
pub struct World<'a> {
    pub sources: Vec<Rank<'a>>,
    pub targets: Vec<Rank<'a>>,
    /// Tokens that each group of each target rank has.
    pub hits: Vec<Vec<u64>>,
    pub span: Span,
}

/// What became of a case.
#[derive(Debug, Default)]
pub struct Done {
    pub copies: usize,
    pub bytes: u64,
}

/// Why a case is not done.
#[derive(Debug)]
pub enum Fault {
    /// The planner refused it.
    Refused(PlanError),
    /// The plan is wrong.
    Wrong(String),
}

impl From<String> for Fault {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

/// Plans for every rank of the target and judges all of it.
pub fn judge(world: &World<'_>) -> Result<Done, Fault> {
    let (sources, targets) = (layouts(&world.sources), layouts(&world.targets));
    let plans = match plans(world, &targets) {
        Ok(plans) => plans,
        Err(why) => {
            limits::justified(world, &why)?;
            return Err(Fault::Refused(why));
        }
    };
    limits::respected(world)?;
    let sets = readers(&sources, &targets).map_err(Fault::Refused)?;
    for (rank, plan) in plans.iter().enumerate() {
        for (source, copies) in plan.reads.iter().enumerate() {
            if !copies.is_empty() && !sets[source].contains(&rank) {
                return Err(format!("rank {rank} reads source {source}: no reader of it").into());
            }
        }
    }
    let tokens = extent(world.sources.iter().chain(&world.targets));
    let all = sources.iter().chain(&targets).copied();
    let labels = Labels::new(all, tokens);
    let from: Vec<Memory> =
        world.sources.iter().map(|rank| Memory::new(rank, &labels)).collect::<Result<_, _>>()?;
    let mut done = Done::default();
    for (rank, plan) in plans.iter().enumerate() {
        let mut to = Memory::new(&world.targets[rank], &labels)?;
        run(plan, &from, &mut to).map_err(|why| format!("rank {rank}: {why}"))?;
        inspect(world, rank, &to).map_err(|why| format!("rank {rank}: {why}"))?;
        compact(world, rank, plan, tokens).map_err(|why| format!("rank {rank}: {why}"))?;
        done.copies += plan.copies().count();
        done.bytes += plan.bytes();
    }
    Ok(done)
}

fn layouts<'a>(ranks: &[Rank<'a>]) -> Vec<&'a CacheLayout> {
    ranks.iter().map(|rank| rank.layout).collect()
}

fn plans<'w>(world: &'w World<'_>, ranks: &[&CacheLayout]) -> Result<Vec<Plan>, PlanError> {
    let hold = |rank: &'w Rank<'_>| Holding { layout: rank.layout, tables: &rank.tables };
    let sources: Vec<_> = world.sources.iter().map(hold).collect();
    let of = |rank: usize| {
        let (tables, hits) = (&world.targets[rank].tables, &world.hits[rank]);
        plan(&sources, Target { ranks, rank, tables, hits }, world.span)
    };
    (0..ranks.len()).map(of).collect()
}

/// Each layout with its tables.
pub fn holdings<'a>(layouts: &'a [CacheLayout], tables: &'a [Vec<BlockTable>]) -> Vec<Holding<'a>> {
    layouts.iter().zip(tables).map(|(layout, tables)| Holding { layout, tables }).collect()
}

/// One more than the last position that any table reaches.
fn extent<'a>(ranks: impl Iterator<Item = &'a Rank<'a>>) -> u64 {
    let last = |rank: &'a Rank<'a>| {
        let slots = rank.layout.layers.iter().flat_map(|layer| slots(rank, layer));
        slots.map(|slot| slot.token + 1).max().unwrap_or(1)
    };
    ranks.map(last).max().unwrap_or(1)
}

/// Executes a plan byte by byte.
fn run(plan: &Plan, from: &[Memory], to: &mut Memory) -> Result<(), String> {
    for (source, copies) in plan.reads.iter().enumerate() {
        for copy in copies {
            transfer(copy, &from[source], to).map_err(|why| format!("source {source}: {why}"))?;
        }
    }
    for hole in &plan.zero {
        let offsets = offsets(hole.pattern());
        for &id in hole.ids().iter() {
            for &at in &offsets {
                to.mark(hole.region().0, id, at, ZEROED)?;
            }
        }
    }
    Ok(())
}

fn transfer(copy: &BlockCopy, from: &Memory, to: &mut Memory) -> Result<(), String> {
    let (source, target) = (copy.source(), copy.target());
    let (at_source, at_target) = (offsets(source.pattern()), offsets(target.pattern()));
    if at_source.len() != at_target.len() || source.ids().len() != target.ids().len() {
        return Err("sides of unequal length".to_owned());
    }
    let (read, write) = (source.region().0, target.region().0);
    for (&read_id, &write_id) in source.ids().iter().zip(target.ids().iter()) {
        for (&at, &put) in at_source.iter().zip(&at_target) {
            let label = from.label(read, read_id, at);
            if label.is_none() {
                return Err(format!("reads region {read} block {read_id} byte {at}: a canary"));
            }
            to.mark(write, write_id, put, WRITTEN)?;
            if label != to.label(write, write_id, put) {
                return Err(format!("region {write} block {write_id} byte {put}: a wrong byte"));
            }
        }
    }
    Ok(())
}

/// Every byte of a pattern, in its order.
fn offsets(pattern: &Pattern) -> Vec<u64> {
    let mut starts = vec![pattern.offset()];
    for dim in pattern.dims() {
        let mut next = Vec::with_capacity(starts.len() * dim.count as usize);
        for start in starts {
            for step in 0..u64::from(dim.count) {
                next.push(start + step * dim.stride);
            }
        }
        starts = next;
    }
    let bytes = |start: u64| (0..pattern.element_len()).map(move |byte| start + byte);
    starts.into_iter().flat_map(bytes).collect()
}

/// Whether each byte of a target has the mark that it must have.
fn inspect(world: &World<'_>, rank: usize, to: &Memory) -> Result<(), String> {
    let target = &world.targets[rank];
    for layer in &target.layout.layers {
        let expected = Expected::of(world, rank, layer);
        for slot in slots(target, layer) {
            for part in &layer.parts {
                for unit in 0..u64::from(part.units.end - part.units.start) {
                    for &mark in to.marks(part, unit, &slot) {
                        let right = expected.judge(slot.token, mark);
                        right.map_err(|why| {
                            let (name, role) = (&layer.name, part.role);
                            format!("{name}, {role} {unit}, token {}: {why}", slot.token)
                        })?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Whether the plan's size is that of the shapes and of the lists of ids, not their product.
fn compact(world: &World<'_>, rank: usize, plan: &Plan, tokens: u64) -> Result<(), String> {
    let target = &world.targets[rank];
    let mut most_copies = 0;
    for layer in &target.layout.layers {
        for source in &world.sources {
            let Some(had) = source.layout.layers.iter().find(|had| had.name == layer.name) else {
                continue;
            };
            let cuts = Expected::cuts(source.layout, had, target.layout, layer);
            most_copies += cuts * layer.parts.len() as u64 * 2 * world.sources.len() as u64;
        }
    }
    let copies = plan.copies().count() as u64;
    if copies > most_copies {
        return Err(format!("{copies} copies, more than {most_copies}"));
    }
    // Layers of one group may see differently far: a list for each kind and each source. What is
    // zeroed is in lists too.
    let starts: BTreeSet<_> = target
        .layout
        .layers
        .iter()
        .map(|layer| (layer.group, mask::first_visible(layer.kind, world.span.resume_at)))
        .collect();
    let lists: BTreeMap<*const u32, usize> = plan
        .copies()
        .map(BlockCopy::target)
        .chain(&plan.zero)
        .map(|blocks| (blocks.ids().as_ptr(), blocks.ids().len()))
        .collect();
    let ids: usize = lists.values().sum();
    let most_ids = starts.len() * (2 * world.sources.len() + 1) * 2 * (tokens as usize + 2);
    if ids > most_ids { Err(format!("{ids} ids, more than {most_ids}")) } else { Ok(()) }
}
