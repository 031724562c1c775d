//! The limits of the planner, each checked by a second computation: a refusal is justified, and
//! what is planned is none of them.

use kv_layout::{CacheLayout, Part, PlacedLayer, PlanError};

use super::expect::Expected;
use super::judge::World;
use super::memory::{Rank, slots};

/// Whether the case is what the refusal says; an error where it is not.
pub fn justified(world: &World<'_>, why: &PlanError) -> Result<(), String> {
    let right = match why {
        PlanError::Opaque { .. } => opaque(world, true),
        PlanError::Interleave { .. } => interleaved(world),
        PlanError::StatePosition { .. } => misplaced(world, true),
        // Others are never right; the caller says which it is.
        _ => true,
    };
    if right { Ok(()) } else { Err(format!("refused without reason: {why}")) }
}

/// Whether a planned case is none that must be refused.
pub fn respected(world: &World<'_>) -> Result<(), String> {
    if misplaced(world, false) {
        return Err("planned a state of another position".to_owned());
    }
    if opaque(world, false) {
        return Err("planned opaque pages between unequal shapes".to_owned());
    }
    Ok(())
}

/// Every layer of every target rank, with all that sources have of it.
fn layers<'w>(
    world: &'w World<'_>,
) -> impl Iterator<Item = (usize, &'w PlacedLayer, Vec<(&'w Rank<'w>, &'w PlacedLayer)>)> {
    let ranks = world.targets.iter().enumerate();
    let wanted = ranks
        .flat_map(|(rank, target)| target.layout.layers.iter().map(move |layer| (rank, layer)));
    wanted.map(|(rank, layer)| {
        let had = world.sources.iter().flat_map(|source| {
            let same = source.layout.layers.iter().filter(|had| had.name == layer.name);
            same.map(move |had| (source, had))
        });
        (rank, layer, had.collect())
    })
}

/// Whether the target, or some rank of `sources`, has a wanted state of another position. What a
/// rank of the source that is not read has is its own affair.
fn misplaced(world: &World<'_>, sources: bool) -> bool {
    let resume_at = world.span.resume_at;
    let seen = |rank: &Rank<'_>, layer: &PlacedLayer| rank.tables[layer.group as usize].first_token;
    resume_at > 0
        && layers(world).any(|(rank, layer, had)| {
            layer.kind.is_recurrent()
                && world.hits[rank].get(layer.group as usize) != Some(&resume_at)
                && (seen(&world.targets[rank], layer) != resume_at
                    || sources && had.iter().any(|(source, had)| seen(source, had) != resume_at))
        })
}

fn interleaved(world: &World<'_>) -> bool {
    let shape = |layout: &CacheLayout, layer: &PlacedLayer| layout.groups[layer.group as usize];
    layers(world).any(|(rank, layer, had)| {
        let to = shape(world.targets[rank].layout, layer);
        had.iter().any(|(source, had)| {
            let from = shape(source.layout, had);
            let shared = from.context.ways > 1 || to.context.ways > 1;
            !layer.kind.is_recurrent() && shared && from.block_size != to.block_size
        })
    })
}

/// Whether for some opaque layer of which something is needed no source packs the very same
/// bytes in the same blocks; or not every source does, where `all` must. The ranks of a real
/// engine pack alike: between the two, the planner may do as it likes.
fn opaque(world: &World<'_>, all: bool) -> bool {
    layers(world).any(|(rank, layer, had)| {
        let to = world.targets[rank].layout.groups[layer.group as usize].block_size;
        let same = |(source, had): &(&Rank<'_>, &PlacedLayer)| {
            let from = source.layout.groups[had.group as usize].block_size;
            (layer.kind.is_recurrent() || from == to) && alike(had, layer)
        };
        layer.packing.is_some()
            && needed(world, rank, layer)
            && !(if all { had.iter().all(same) } else { had.iter().any(same) })
    })
}

/// Whether this rank needs any token that it keeps of the layer.
fn needed(world: &World<'_>, rank: usize, layer: &PlacedLayer) -> bool {
    let expected = Expected::of(world, rank, layer);
    slots(&world.targets[rank], layer).iter().any(|slot| expected.needs(slot.token))
}

/// Whether all parts lie alike, wherever the page itself begins.
fn alike(had: &PlacedLayer, wanted: &PlacedLayer) -> bool {
    let shape = |part: &Part| {
        let Part { role, units, bytes, unit_stride, token_stride, tile, .. } = part.clone();
        (role, units, bytes, unit_stride, token_stride, tile)
    };
    had.parts.len() == wanted.parts.len()
        && wanted.parts.iter().all(|part| had.parts.iter().any(|other| shape(other) == shape(part)))
}
